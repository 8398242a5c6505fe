package sandbox

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// dies kills the daemon: what it has in memory is lost, and the next one gets what hutch-launch holds. Only its Manager
// is new; what is left of the old one is cut off from everything.
func (r *rig) dies() {
	r.t.Helper()
	synctest.Wait()
	old := r.m
	old.cfg.Launcher, old.cfg.Events, old.cfg.Audit = &fakeLauncher{r: r, gone: true}, noEvents{}, noAudit{}
	old.cfg.Logger = slog.New(slog.DiscardHandler)
	var held []launchapi.HeldSandbox
	namespaces := map[string]string{}
	r.launcher.mu.Lock()
	for id, p := range r.launcher.inits {
		h := launchapi.HeldSandbox{ID: id, PID: p.pid, Guest: r.launcher.stands(p), Pidfd: r.launcher.stands(p)}
		for key, e := range r.launcher.held {
			if filepath.Dir(key) == id {
				h.Execs = append(h.Execs, e.adopted(filepath.Base(key)))
			}
		}
		held = append(held, h)
		namespaces[id], _ = os.Readlink(filepath.Join(r.kernel.Proc(p.pid), "ns/net"))
		p.conn = newChannel()
		p.conn.init = p
	}
	r.launcher.mu.Unlock()
	r.networks.forget()
	old.mu.Lock()
	for _, s := range old.byID {
		for _, t := range []*time.Timer{s.ttl, s.idle} {
			if t != nil {
				t.Stop()
			}
		}
		if s.stopped {
			_ = s.lock.Close()
		} else {
			_ = s.guest.Close()
		}
	}
	old.mu.Unlock()
	old.trim.Stop()
	synctest.Wait()
	r.images.with(func(f *fakeImages) { f.leases = 0 })
	r.m = NewManager(r.cfg)
	if err := r.m.Adopt(context.Background(), held); err != nil {
		r.t.Fatal(err)
	}
	for _, h := range held { // what only the daemon that is dead knew of
		if r.state(h.ID) == api.StateRemoved {
			r.cgroups.Forget("/hutch/" + h.ID)
			_ = os.Remove(namespaces[h.ID])
		}
	}
}

// TestAdopt: the next daemon goes on with what there is: sandboxes that run, are paused, or are being made or stopped,
// names, scopes, their times to live, and commands; it ends what nobody has.
func TestAdopt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a := r.create(named("a"), func(req *CreateRequest) { req.Spec.TTLS = 100 })
		scope := r.create(scoped("agent:s", 1))
		paused := r.create()
		if _, err := r.m.Pauses.Pause(t.Context(), paused.ID); err != nil {
			t.Fatal(err)
		}
		stopped := r.create(named("stopped"))
		r.stop(stopped.ID)
		unrecorded := r.create()
		if err := os.Remove(filepath.Join(r.cfg.Dir, unrecorded.ID, recordFile)); err != nil {
			t.Fatal(err)
		}
		exec := r.start(params(a.ID, "hang"))
		testenv.Elapse(10 * time.Second)
		r.dies()
		for id, want := range map[string]api.State{"a": api.Running, scope.ID: api.Running, paused.ID: api.Paused,
			"stopped": api.Stopped, unrecorded.ID: api.StateRemoved} {
			if st := r.state(id); st != want {
				t.Errorf("%s is %s, want %s", id, st, want)
			}
		}
		if p := r.launcher.initOf(unrecorded.ID); p != nil {
			t.Error("what has no record lives")
		}
		if sb := r.create(scoped("agent:s", 2)); sb.ID != scope.ID {
			t.Error("another one for the scope")
		}
		rec, err := r.m.Execs.Get(api.ExecRef{Exec: exec})
		if err != nil || rec.State != api.ExecRunning {
			t.Fatalf("%+v, %v", rec, err)
		}
		if err := r.m.Execs.Signal(t.Context(), api.SignalParams{Exec: exec, Signal: "TERM"}); err != nil {
			t.Error(err)
		}
		if res := r.wait(exec); res.Verdict != api.VerdictSignal || res.ExitCode != 143 {
			t.Errorf("%+v", res)
		}
		if _, err := r.m.Pauses.Resume(t.Context(), paused.ID); err != nil {
			t.Error(err)
		}
		if res := r.run(params(paused.ID, "true")); res.Verdict != api.VerdictOK {
			t.Errorf("%+v", res)
		}
		testenv.Elapse(91 * time.Second)
		r.settle()
		if st := r.state(a.ID); st != api.StateRemoved {
			t.Errorf("behind its time it is %s", st)
		}
		for _, id := range []string{scope.ID, paused.ID, stopped.ID} {
			r.remove(id)
		}
		r.empty()
	})
}

// TestAdoptOwner: a sandbox whose owner's connection went with the daemon waits for a while, and then goes.
func TestAdoptOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		owned := func(req *CreateRequest) { req.Spec.Owner = api.OwnerConnection }
		comes, stays := r.create(owned), r.create(owned)
		r.dies()
		if _, err := r.m.Claim(t.Context(), Caller{Conn: 7}, api.SandboxParams{Sandbox: comes.ID}); err != nil {
			t.Error(err)
		}
		testenv.Elapse(claimGrace + time.Second)
		r.settle()
		if a, b := r.state(comes.ID), r.state(stays.ID); a != api.Running || b != api.StateRemoved {
			t.Errorf("%s and %s", a, b)
		}
		r.m.Disconnected(7)
		r.settle()
		if st := r.state(comes.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		r.empty()
	})
}

// stands is a file that stands for a PID 1.
func (l *fakeLauncher) stands(p *fakeInit) *os.File {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		l.r.t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), strconv.Itoa(p.pid))
}
