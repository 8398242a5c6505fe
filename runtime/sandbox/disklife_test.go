package sandbox

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// limited has a limit of a mebibyte.
func limited(req *CreateRequest) { req.Spec.Limits = api.Limits{DiskBytes: 1 << 20, Inodes: 1000} }

// TestDiskLimit: a sandbox that has written more than its limit has its commands ended, with that verdict; the next may
// remove files and finds that it can write none; more is allowed by an update, and less than there is refused.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // a disk, where the limit is watched
	synctest.Test(t, func(t *testing.T) {
		r := newRigIn(t, dir)
		r.cgroups.onUse = func(c *fakeCgroups) { c.usage += time.Millisecond } // something runs
		sb := r.create(limited)
		if r.sandbox(sb.ID).meter.Disk().Hard() {
			testenv.Require(t, probe.Check{Name: "a folder on a disk", Status: probe.No, Detail: dir + " is in memory"})
		}
		id := r.start(params(sb.ID, "hang"))
		r.write(sb.ID, "tmp/large", strings.Repeat("x", 2<<20))
		res := r.wait(id)
		if res.Verdict != api.VerdictDisk || res.Limit == nil {
			t.Errorf("%+v", res)
		}
		if hits, _ := r.events.of(string(api.EventLimitHit), sb.ID); len(hits) == 0 {
			t.Error("nobody was told")
		}
		testenv.Elapse(time.Second)
		r.start(params(sb.ID, "hang"))
		var fsize uint64 = 1
		for _, l := range r.lastAsked(sb.ID).Rlimits {
			if l.Resource == exec.Resources["fsize"] {
				fsize = l.Soft
			}
		}
		if fsize != 0 {
			t.Errorf("a command of a full sandbox may write files of %d bytes", fsize)
		}
		update := func(bytes int64) error {
			_, err := r.m.Meters.Update(t.Context(), api.UpdateParams{Sandbox: sb.ID,
				Limits: api.Limits{DiskBytes: bytes}})
			return err
		}
		if err := update(8 << 20); err != nil {
			t.Error(err)
		}
		r.refused(api.FailedPrecondition, update(1<<20))
		if err := os.Remove(r.file(sb.ID, "tmp/large")); err != nil {
			t.Fatal(err)
		}
		if err := update(1 << 20); err != nil {
			t.Error(err)
		}
		if got, err := r.m.Get(sb.ID); err != nil || got.Limits.DiskBytes != 1<<20 {
			t.Errorf("%+v, %v", got.Limits, err)
		}
		r.remove(sb.ID)
	})
}

// TestDiskOwn: where files are in memory a limit is a file system of its own, that is stopped with, copied, and made
// again.
func TestDiskOwn(t *testing.T) {
	r := newRig(t)
	sb := r.create(limited)
	if !r.sandbox(sb.ID).meter.Disk().Hard() {
		r.remove(sb.ID)
		testenv.Require(t, probe.Check{Name: "a folder in memory", Status: probe.No, Detail: "/dev/shm is none"})
	}
	if n := r.points.count("Kernel.Tmpfs"); n != 2 {
		t.Errorf("%d file systems were made", n)
	}
	more := api.UpdateParams{Sandbox: sb.ID, Limits: api.Limits{DiskBytes: 2 << 20}}
	if _, err := r.m.Meters.Update(t.Context(), more); err != nil {
		t.Error(err)
	}
	if n := r.points.count("Kernel.Reconfigure"); n != 1 {
		t.Errorf("changed %d times", n)
	}
	r.remove(sb.ID)
	r.empty()
}

// lastAsked is what the PID 1 of a sandbox was asked to start last.
func (r *rig) lastAsked(id string) (req guestapi.Request) {
	r.t.Helper()
	p := r.launcher.initOf(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[len(p.asked)-1]
}

// TestAsked: what PID 1 is asked to start has the environment, the folder, the user and the limits of image, sandbox
// and command, the later over the earlier.
func TestAsked(t *testing.T) {
	r := newRig(t)
	r.images.with(func(f *fakeImages) {
		f.config = api.ImageConfig{Env: []string{"A=image", "B=image"}, WorkingDir: "/image", User: "1000"}
	})
	sb := r.create(func(req *CreateRequest) {
		req.Spec.Env = map[string]string{"B": "sandbox", "C": "sandbox"}
		req.Spec.CapDrop = []string{"CHOWN"}
		req.Spec.Limits = api.Limits{CPUs: 2}
	})
	p := captured(sb.ID, "true")
	p.Env = map[string]string{"C": "exec"}
	p.Limits = &api.Limits{CPUTimeS: 1.5}
	r.run(p)
	req := r.lastAsked(sb.ID)
	for _, want := range []string{"A=image", "B=sandbox", "C=exec", "PATH=" + exec.DefaultPath,
		"HOSTNAME=" + sb.Hostname} {
		if !slices.Contains(req.Env, want) {
			t.Errorf("%q lacks %q", req.Env, want)
		}
	}
	if req.Cwd != "/image" || req.User != "1000" || req.CapDrop != 1 || req.Cgroup == "" || len(req.CPUs) != 8 {
		t.Errorf("%+v", req)
	}
	limits := map[int]uint64{}
	for _, l := range req.Rlimits {
		limits[l.Resource] = l.Soft
	}
	if limits[exec.Resources["nproc"]] != 1000 || limits[0] != 2 { // RLIMIT_CPU
		t.Errorf("%v", limits)
	}
	p.User, p.Cwd = "0", "/elsewhere"
	r.run(p)
	if req := r.lastAsked(sb.ID); req.User != "0" || req.Cwd != "/elsewhere" || req.MkCwd {
		t.Errorf("%+v", req)
	}
	r.remove(sb.ID)
}

// TestStdinOpen: the stdin of a command is open until it is closed, and only of one that was started so.
func TestStdinOpen(t *testing.T) {
	r := newRig(t)
	sb := r.create()
	id := r.start(captured(sb.ID, "stubborn"))
	if err := r.m.Execs.Write(t.Context(), api.WriteParams{Exec: id, Data: "typed"}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := r.m.Execs.CloseStdin(t.Context(), api.ExecRef{Exec: id}); err != nil {
			t.Error(err)
		}
	}
	r.refused(api.FailedPrecondition, r.m.Execs.Write(t.Context(), api.WriteParams{Exec: id, Data: "more"}))
	p := captured(sb.ID, "stubborn")
	p.Background = true
	r.refused(api.FailedPrecondition, r.m.Execs.Write(t.Context(), api.WriteParams{Exec: r.start(p), Data: "x"}))
	kept, err := r.m.Execs.Keep(t.Context(), captured(sb.ID, "stubborn"), "py")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := r.m.Execs.Kept(sb.ID); err != nil || len(list) != 1 || list[0].Exec != kept.Exec {
		t.Errorf("%+v, %v", list, err)
	}
	if res := r.stop(sb.ID); !slices.Equal(res.Ended.Contexts, []string{"py"}) || len(res.Ended.Execs) != 2 {
		t.Errorf("%+v", res.Ended)
	}
	r.remove(sb.ID)
}
