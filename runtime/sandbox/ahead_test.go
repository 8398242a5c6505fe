package sandbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ready sets how many sandboxes are launched ahead.
func ready(n int) func(*Config) { return func(c *Config) { c.Settings.Ready = n } }

// TestAhead: sandboxes that were launched ahead are claimed by who asks for nothing special, prepared for who asks for
// the same again, and replaced; in no list, and gone with the daemon.
func TestAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		one := func() {
			t.Helper()
			sb := r.create()
			if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
				t.Errorf("%+v", res)
			}
			r.remove(sb.ID)
			testenv.Elapse(time.Second)
		}
		one()
		if n := r.m.Ahead.Ready(); n != 2 || len(r.list()) != 0 {
			t.Errorf("%d wait, listed are %v", n, r.list())
		}
		launched := r.points.count("Launcher.Create")
		if r.points.count("Launcher.Claim") == 0 {
			t.Error("none was prepared")
		}
		one()
		if n := r.points.count("Launcher.Take"); n != 1 {
			t.Errorf("%d were taken as they had been prepared", n)
		}
		one()
		if n := r.points.count("Launcher.Create") - launched; n != 2 {
			t.Errorf("%d were launched for two", n)
		}
		other := r.create(func(req *CreateRequest) { req.Spec.Image = "other" }) // one that was not prepared
		if got := r.points.count("Launcher.Create"); got != launched+2 {
			t.Errorf("launched, and not claimed: %d", got)
		}
		r.remove(other.ID)
		strict := r.create(func(req *CreateRequest) { req.Spec.Seccomp = api.SeccompStrict }) // which fits none
		if got := r.points.count("Launcher.Create"); got != launched+3 {
			t.Errorf("%d", got)
		}
		r.remove(strict.ID)
		testenv.Elapse(time.Second)
	}, ready(2))
}

// TestAheadFails: a claim that fails launches anew, one whose PID 1 is dead is not used, an image that has changed is
// not the one that was prepared, and what cannot be launched ahead is tried at the next create alone.
func TestAheadFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		fill := func() {
			r.remove(r.create(func(req *CreateRequest) { req.Spec.Image = "first" }).ID)
			testenv.Elapse(time.Second)
		}
		fill()
		r.points.failing("Launcher.Claim", errInjected)
		sb := r.create(func(req *CreateRequest) { req.Spec.Image = "other" })
		r.points.failing("Launcher.Claim", nil)
		if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
			t.Errorf("%+v", res)
		}
		r.remove(sb.ID)
		fill()
		for _, p := range r.launcher.all() {
			p.die(int(unix.SIGKILL))
		}
		sb = r.create()
		if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
			t.Errorf("%+v", res)
		}
		r.remove(sb.ID)
		testenv.Elapse(5 * time.Second)
		if n := r.m.Ahead.Ready(); n != 2 {
			t.Errorf("%d wait", n)
		}
		fill()
		r.images.with(func(f *fakeImages) { f.lower = "layers/other" })
		sb = r.create(func(req *CreateRequest) { req.Spec.Image = "first" })
		if got := r.sandbox(sb.ID).root.Lower[0]; got != "other" {
			t.Errorf("it has the layer %s", got)
		}
		r.remove(sb.ID)
		testenv.Elapse(time.Second)
		for _, call := range []string{"Launcher.Create", "Kernel.Tmpfs", "Networks.Plain", "Init.setup"} {
			set := r.cfg.Settings
			set.Ready = 0
			r.m.Configure(set)
			r.remove(r.create(func(req *CreateRequest) { req.Spec.Seccomp = api.SeccompStrict }).ID)
			testenv.Elapse(time.Second) // those that waited are too many
			r.m.Configure(r.cfg.Settings)
			sb := r.create()
			r.points.failing(call, errInjected)
			r.points.forget()
			testenv.Elapse(time.Hour)
			r.points.failing(call, nil)
			if n := r.points.count(call); n != 1 {
				t.Errorf("%s: tried %d times", call, n)
			}
			r.remove(sb.ID)
			if n := r.m.Ahead.Ready(); n != 0 {
				t.Errorf("%s: %d wait", call, n)
			}
			r.empty()
		}
	}, ready(2))
}

// TestRunNew: a run makes a sandbox, runs a command and removes it, also when the command cannot be run, the caller
// goes or does not read the reply; its id is free before that.
func TestRunNew(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		run := func(argv ...string) (api.RunResult, func(), error) {
			var sent func()
			res, err := r.m.RunNew(t.Context(), RunRequest{
				Params: api.RunParams{Sandbox: &api.Spec{Image: "tiny", Name: "run"},
					Exec: api.ExecParams{Argv: argv, Stdio: &api.Stdio{}}},
				User: 1000, Conn: 1, Progress: func(api.Progress) {}, Started: func(*api.Sandbox, string, int) {},
				Sent: func(f func()) { sent = f },
			})
			return res, sent, err
		}
		for argv, want := range map[string]int{"true": 0, "exit": 0, "missing": 127} {
			res, sent, err := run(argv)
			if err != nil || res.Exec.ExitCode != want {
				t.Errorf("%s: %+v, %v", argv, res.Exec, err)
			}
			if st := r.state(res.Sandbox.ID); st != api.StateRemoved {
				t.Errorf("%s: %s before the reply is written", argv, st)
			}
			if sent == nil {
				t.Fatal("the reply is not waited for")
			}
			sent()
			testenv.Elapse(time.Second)
			r.settle()
			r.empty()
		}
		res, _, err := run("true") // whose reply nobody reads
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.m.Removing(); n != 1 {
			t.Errorf("%d are being removed", n)
		}
		if p := r.launcher.initOf(res.Sandbox.ID); p == nil {
			t.Error("PID 1 has gone before the reply")
		}
		testenv.Elapse(api.RunReplyPatience)
		r.settle()
		r.empty()
		r.points.failing("Cgroups.Make", errInjected)
		if _, _, err := run("true"); !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		r.points.failing("Cgroups.Make", nil)
		r.settle()
		r.empty()
	})
}

// TestCounts: who asks whether the daemon is idle is told since when.
func TestCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		exec := r.start(params(sb.ID, "hang"))
		if sandboxes, execs, _ := r.m.Counts(); sandboxes != 1 || execs != 1 || r.m.CloseEmpty() {
			t.Errorf("%d, %d", sandboxes, execs)
		}
		testenv.Elapse(10 * time.Second)
		if _, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: exec}); err != nil {
			t.Error(err)
		}
		testenv.Elapse(10 * time.Second)
		r.remove(sb.ID)
		testenv.Elapse(10 * time.Second)
		sandboxes, execs, since := r.m.Counts()
		if sandboxes != 0 || execs != 0 || time.Since(since) != 10*time.Second {
			t.Errorf("%d, %d since %v", sandboxes, execs, time.Since(since))
		}
		if !r.m.CloseEmpty() {
			t.Error("not empty")
		}
		_, err := r.m.Create(t.Context(), request())
		r.refused(api.Unavailable, err)
	})
}
