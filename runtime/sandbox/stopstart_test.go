package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// file is a path in what a sandbox has written, where it is now.
func (r *rig) file(id, name string) string {
	for _, dir := range []string{filepath.Join(r.cfg.Dir, id), r.cfg.Shelf.Box(id)} {
		if _, err := os.Stat(dir); err == nil {
			return filepath.Join(dir, "fs/upper", name)
		}
	}
	r.t.Fatalf("sandbox %s has no folder", id)
	return ""
}

// write is what a command in a sandbox does.
func (r *rig) write(id, name, text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file(id, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// read is the text of a file, "" where there is none.
func (r *rig) read(id, name string) string {
	r.t.Helper()
	text, err := os.ReadFile(r.file(id, name))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(text)
}

// stop stops one without waiting for its commands.
func (r *rig) stop(id string) api.StopResult {
	r.t.Helper()
	none := 0.0
	res, err := r.m.Keep.Stop(r.t.Context(), api.StopParams{Sandbox: id, TimeoutS: &none})
	if err != nil {
		r.t.Fatalf("stop: %v", err)
	}
	return res
}

// startBox starts one that is stopped.
func (r *rig) startBox(id string) api.Sandbox {
	r.t.Helper()
	sb, err := r.m.Keep.Start(r.t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: id})
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return sb
}

// TestStopStart: a stopped sandbox has its id, name, record and files, and nothing else of what it had; it goes on with
// them, as often as one likes, and what was removed from the place of a mount is there again.
func TestStopStart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(rich, func(req *CreateRequest) { req.Spec.Labels = map[string]string{"k": "v"} })
		for round := range 3 {
			r.write(sb.ID, "tmp/file", "kept")
			if err := os.RemoveAll(r.file(sb.ID, "dev")); err != nil {
				t.Fatal(err)
			}
			r.start(params(sb.ID, "hang"))
			res := r.stop("rich")
			if res.ID != sb.ID || res.Name != "rich" || res.State != api.Stopped || !res.Kept || res.PID != 0 ||
				res.Labels["k"] != "v" || res.Limits != sb.Limits || res.Network.Mode != api.NetAllow {
				t.Errorf("%+v", res)
			}
			left := r.leftovers()
			for _, what := range []string{"cgroups", "processes", "mounts", "open networks", "leases of images",
				"files in home/sandboxes", "files in proc", "files in netns", "held execs", "running", "execs"} {
				if left[what] != 0 {
					t.Errorf("round %d: a stopped sandbox has %d %s", round, left[what], what)
				}
			}
			if sandboxes, _, _ := r.m.Counts(); sandboxes != 0 {
				t.Errorf("%d count", sandboxes)
			}
			r.stop("rich") // again does nothing
			_, err := r.m.Execs.Start(t.Context(),
				exec.Request{Params: params(sb.ID, "true"), Started: func(string, int) {}})
			r.refused(api.FailedPrecondition, err)
			_, err = r.m.Create(t.Context(), request(named("rich")))
			r.refused(api.AlreadyExists, err)
			if got := r.startBox("rich"); got.ID != sb.ID || got.State != api.Running || got.Kept ||
				got.Labels["k"] != "v" {
				t.Errorf("%+v", got)
			}
			if got := r.read(sb.ID, "tmp/file"); got != "kept" {
				t.Errorf("%q", got)
			}
			if _, err := os.Stat(r.file(sb.ID, "dev")); err != nil {
				t.Error(err)
			}
			if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
				t.Errorf("%+v", res)
			}
			r.startBox(sb.ID) // one that runs is left alone
		}
		r.remove("rich")
		r.empty()
		if pins, _ := r.images.Pins(); len(pins) > 0 {
			t.Errorf("%v", pins)
		}
	})
}

// TestStopEnds: a stop says which commands ended and which ports were closed, without their tokens; who obeys in time
// ends as it likes.
func TestStopEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(rich)
		obeys, stubborn := r.start(params(sb.ID, "obey", "5")), r.start(params(sb.ID, "stubborn"))
		r.run(params(sb.ID, "true"))
		if _, err := r.m.Ports.Expose(t.Context(), api.PortExposeParams{Sandbox: sb.ID, Port: 8080}, nil); err != nil {
			t.Fatal(err)
		}
		results := make(chan api.ExecResult, 2)
		for _, id := range []string{obeys, stubborn} {
			go func() { results <- r.wait(id) }()
		}
		synctest.Wait()
		start := time.Now()
		res, err := r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: sb.ID})
		if took := time.Since(start); err != nil || took != keep.StopGrace {
			t.Errorf("after %v: %v", took, err)
		}
		want := []string{obeys, stubborn}
		slices.Sort(want)
		e := res.Ended
		if !slices.Equal(e.Execs, want) || len(e.Ports) != 1 || e.Ports[0].Port != 8080 || !e.Ports[0].Token ||
			e.Note == "" {
			t.Errorf("%+v", e)
		}
		verdicts := map[string]bool{}
		for range 2 {
			got := <-results
			verdicts[string(got.Verdict)+" "+got.Exec] = true
		}
		if !verdicts["nonzero "+obeys] || !verdicts["sandbox "+stubborn] && !verdicts["killed "+stubborn] {
			t.Errorf("%v", verdicts)
		}
		_, audits := r.events.of(string(api.AuditPortClosed), sb.ID)
		if port, ok := audits[0].data.(api.Port); len(audits) != 1 || !ok || port.Port != 8080 || port.Token != "" {
			t.Errorf("%v", audits)
		}
		r.startBox(sb.ID)
		if ports, err := r.ports(sb.ID); err != nil || len(ports) > 0 {
			t.Errorf("%v, %v", ports, err)
		}
		r.remove(sb.ID)
	})
}

// TestStartFails: whichever call of a start fails, the sandbox is stopped as before, with its files, and the next start
// is well.
func TestStartFails(t *testing.T) {
	r := newRig(t)
	sb := r.create(rich)
	r.write(sb.ID, "tmp/file", "kept")
	r.stop(sb.ID)
	r.points.forget()
	r.startBox(sb.ID)
	starts := r.points.names()
	r.stop(sb.ID)
	fds := openFDs(t)
	for _, call := range starts {
		if slices.Contains(optional, call) || call == "Images.Unpin" {
			continue
		}
		r.points.failing(call, errInjected)
		_, err := r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: sb.ID})
		r.points.failing(call, nil)
		if !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", call, err)
		}
		if got, err := r.m.Get("rich"); err != nil || got.State != api.Stopped || !got.Kept {
			t.Errorf("%s: %+v, %v", call, got, err)
		}
		if got := r.read(sb.ID, "tmp/file"); got != "kept" {
			t.Errorf("%s: %q", call, got)
		}
		if left := r.leftovers(); left["processes"]+left["mounts"]+left["cgroups"]+left["creating"]+
			left["leases of images"] != 0 || openFDs(t) > fds {
			t.Errorf("%s left %v, %d fds before %d", call, left, openFDs(t), fds)
		}
	}
	r.startBox(sb.ID)
	r.remove(sb.ID)
}

// TestStopFails: a stop that fails before the files are safe can be done again, or the sandbox be removed, for good;
// behind that it is stopped, whatever cannot be given back.
func TestStopFails(t *testing.T) {
	r := newRig(t)
	stop := func(id string) error {
		none := 0.0
		_, err := r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: id, TimeoutS: &none})
		return err
	}
	for name, tt := range map[string]struct {
		fail, well func(id string)
		stopped    bool
	}{
		"pin": {
			fail: func(string) { r.points.failing("Images.Pin", errInjected) },
			well: func(string) { r.points.failing("Images.Pin", nil) },
		},
		"shelf": { // as where something is still mounted in the folder
			fail: func(id string) {
				if err := os.MkdirAll(filepath.Join(r.cfg.Shelf.Box(id), "other"), 0o700); err != nil {
					t.Fatal(err)
				}
			},
			well: func(id string) {
				if err := os.RemoveAll(r.cfg.Shelf.Box(id)); err != nil {
					t.Fatal(err)
				}
			},
		},
		"network": {
			fail:    func(string) { r.points.failing("Networks.Close networks", errInjected) },
			well:    func(string) { r.points.failing("Networks.Close networks", nil) },
			stopped: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, again := range []bool{true, false} {
				sb := r.create(rich)
				r.write(sb.ID, "tmp/file", "kept")
				r.points.forget()
				tt.fail(sb.ID)
				err := stop(sb.ID)
				tt.well(sb.ID)
				if (err == nil) != tt.stopped {
					t.Errorf("%v", err)
				}
				if again {
					if err := stop(sb.ID); err != nil {
						t.Fatalf("again: %v", err)
					}
					r.startBox(sb.ID)
					if got := r.read(sb.ID, "tmp/file"); got != "kept" {
						t.Errorf("%q", got)
					}
					if n := r.points.count("Images.Pin"); name == "shelf" && n != 1 { // by then its mounts are gone
						t.Errorf("what it had was noted %d times", n)
					}
				}
				r.remove(sb.ID)
				r.empty()
				if ids, err := r.cfg.Shelf.Boxes(); err != nil || len(ids) > 0 {
					t.Errorf("the next daemon has %v, %v", ids, err)
				}
				if pins, _ := r.images.Pins(); len(pins) > 0 {
					t.Errorf("%v", pins)
				}
			}
		})
	}
}

// TestStopKept: the next daemon has what this one has stopped, and goes on with it; a private one has nothing of it.
func TestStopKept(t *testing.T) {
	r := newRig(t)
	sb := r.create(named("kept"))
	r.write(sb.ID, "tmp/file", "kept")
	r.run(captured(sb.ID, "write", "said\n"))
	id := r.start(captured(sb.ID, "write", "said\n"))
	r.wait(id)
	r.stop(sb.ID)
	if err := r.m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.open()
	got, err := r.m.Get("kept")
	if err != nil || got.ID != sb.ID || got.State != api.Stopped {
		t.Fatalf("%+v, %v", got, err)
	}
	if res := r.wait(id); res.Stdout != "said\n" { // until it starts
		t.Errorf("%+v", res)
	}
	r.startBox(sb.ID)
	if got := r.read(sb.ID, "tmp/file"); got != "kept" {
		t.Errorf("%q", got)
	}
	if _, err := r.m.Execs.Get(api.ExecRef{Exec: id}); api.ErrorCode(err) != api.NotFound {
		t.Errorf("%v", err)
	}
	r.stop(sb.ID)
	if err := r.m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.cfg.Ephemeral = true
	r.open()
	if list := r.list(); len(list) > 0 {
		t.Errorf("a private daemon lists %+v", list)
	}
	own := r.create()
	r.stop(own.ID)
	if err := r.m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ids, err := r.cfg.Shelf.Boxes(); err != nil || !slices.Equal(ids, []string{sb.ID}) {
		t.Errorf("%v, %v", ids, err)
	}
	r.cfg.Ephemeral = false
	r.open()
	r.remove(sb.ID)
}

// TestStopTurns: stop, start and remove of one sandbox at the same time come one after the other, and end as one of
// them says.
func TestStopTurns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 5 {
			sb := r.create()
			done := make(chan error)
			for i := range 6 {
				go func() {
					var err error
					switch i % 3 {
					case 0:
						_, err = r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: sb.ID})
					case 1:
						_, err = r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: sb.ID})
					default:
						if i > 3 {
							_, err = r.m.Remove(t.Context(), sb.ID)
						}
					}
					done <- err
				}()
			}
			for range 6 {
				if err := <-done; err != nil && api.ErrorCode(err) != api.NotFound {
					t.Error(err)
				}
			}
			r.settle()
			if st := r.state(sb.ID); st != api.StateRemoved {
				t.Errorf("%s", st)
			}
			r.empty()
		}
	})
}

// TestTurn: who wants to stop, start, end or remove a sandbox that is just being started, also as the last part of a
// restore, waits for that.
func TestTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for name, want := range map[string]api.State{"stop": api.Stopped, "start": api.Running, "kill": api.Stopped,
			"remove": api.StateRemoved} {
			for _, restore := range []bool{false, true} {
				sb := r.create()
				sn, err := r.m.Keep.CreateSnapshot(t.Context(), keep.Caller{User: 1000},
					api.SnapshotCreateParams{Sandbox: sb.ID})
				if err != nil {
					t.Fatal(err)
				}
				arrived, release := r.points.holding("Launcher.Create")
				first, second := make(chan error), make(chan error, 1)
				if !restore {
					r.stop(sb.ID)
				}
				go func() {
					var err error
					if restore {
						p := api.SnapshotRestoreParams{Snapshot: sn.ID}
						_, err = r.m.Keep.RestoreSnapshot(t.Context(), keep.Caller{User: 1000, Conn: 1}, p)
					} else {
						_, err = r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: sb.ID})
					}
					first <- err
				}()
				<-arrived
				go func() {
					var err error
					switch name {
					case "stop":
						_, err = r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: sb.ID})
					case "start":
						_, err = r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: sb.ID})
					case "kill":
						_, err = r.m.Kill(t.Context(), sb.ID)
					case "remove":
						_, err = r.m.Remove(t.Context(), sb.ID)
					}
					second <- err
				}()
				synctest.Wait()
				select {
				case err := <-second:
					t.Errorf("%s did not wait: %v", name, err)
					second <- nil
				default:
				}
				release()
				if err, err2 := <-first, <-second; err != nil || err2 != nil {
					t.Errorf("%s, restore %v: %v and %v", name, restore, err, err2)
				}
				r.settle()
				if st := r.state(sb.ID); st != want {
					t.Errorf("behind %s it is %s", name, st)
				}
				if want != api.StateRemoved {
					r.remove(sb.ID)
				}
				if _, err := r.m.Keep.RemoveSnapshot(t.Context(), keep.Caller{User: 1000},
					api.SnapshotParams{Snapshot: sn.ID}); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// TestStoppedGone: in whatever moment of a stop its caller goes, the sandbox is one that can be started.
func TestStoppedGone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		r.start(params(sb.ID, "stubborn"))
		stopped := r.events.await(sb.ID, api.Stopped)
		go func() { _, _ = r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: sb.ID}) }()
		testenv.Elapse(time.Second)
		if st := r.state(sb.ID); st != api.Running { // it waits for its command
			t.Errorf("%s", st)
		}
		<-stopped
		r.settle()
		if said := strings.Join(r.events.states(sb.ID), ", "); said != "running, stopped: stopped" {
			t.Errorf("%q", said)
		}
		r.startBox(sb.ID)
		r.remove(sb.ID)
	})
}
