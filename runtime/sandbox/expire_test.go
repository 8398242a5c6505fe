package sandbox

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// inBubble runs a test with a rig in a bubble of testing/synctest.
func inBubble(t *testing.T, test func(t *testing.T, r *rig), change ...func(*Config)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t, change...)) })
}

// settle lets everything happen that is under way.
func (r *rig) settle() {
	synctest.Wait()
	r.m.Settle(r.t.Context())
	synctest.Wait()
}

// TestLife: when the time of a sandbox is over, to the millisecond, it gets what its spec says, and its command what
// that means; not before, and not when its time was extended.
func TestLife(t *testing.T) {
	for _, tt := range []struct {
		name   string
		action api.LifeAction
		want   api.State
		code   int // of a command that obeys
	}{
		{"ttl", "", api.StateRemoved, 137}, {"ttl", api.LifeRemove, api.StateRemoved, 137},
		{"ttl", api.LifePause, api.Paused, 0}, {"ttl", api.LifeKill, api.Stopped, 137},
		{"ttl", api.LifeStop, api.Stopped, 3},
		{"idle", "", api.StateRemoved, 0}, {"idle", api.LifeRemove, api.StateRemoved, 0},
		{"idle", api.LifePause, api.Paused, 0}, {"idle", api.LifeKill, api.Stopped, 0},
		{"idle", api.LifeStop, api.Stopped, 0},
	} {
		t.Run(tt.name+" "+string(tt.action), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				sb := r.create(func(req *CreateRequest) {
					if tt.name == "ttl" {
						req.Spec.TTLS, req.Spec.TTLAction = 10, tt.action
					} else {
						req.Spec.IdleS, req.Spec.IdleAction = 10, tt.action
					}
				})
				var exec string
				if tt.name == "ttl" {
					exec = r.start(params(sb.ID, "obey", "3"))
				}
				testenv.Elapse(10*time.Second - time.Millisecond)
				if st := r.state(sb.ID); st != api.Running {
					t.Errorf("before its time it is %s", st)
				}
				var ended chan api.ExecResult
				if tt.code > 0 {
					ended = make(chan api.ExecResult, 1)
					go func() { ended <- r.wait(exec) }()
				}
				testenv.Elapse(2 * time.Millisecond)
				r.settle()
				if st := r.state(sb.ID); st != tt.want {
					t.Errorf("it is %s, want %s", st, tt.want)
				}
				if ended != nil {
					if res := <-ended; res.ExitCode != tt.code {
						t.Errorf("%+v", res)
					}
				}
				if said := strings.Join(r.events.states(sb.ID), ", "); !strings.Contains(said, tt.name+"_s is over") {
					t.Errorf("told %q", said)
				}
				if tt.want == api.Paused { // whatever needs it wakes it
					if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
						t.Errorf("%+v", res)
					}
				}
				if tt.want != api.StateRemoved {
					r.remove(sb.ID)
				}
				r.empty()
			})
		})
	}
}

// TestIdle: the time without a command counts from the end of the last one, and not while a call is under way.
func TestIdle(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(func(req *CreateRequest) { req.Spec.IdleS = 10 })
		testenv.Elapse(9 * time.Second)
		exec := r.start(params(sb.ID, "hang"))
		testenv.Elapse(time.Hour)
		if res, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: exec}); err == nil {
			t.Errorf("its timeout is over: %+v", res)
		}
		if st := r.state(sb.ID); st != api.StateRemoved { // ten seconds behind that
			t.Errorf("%s", st)
		}
		other := r.create(func(req *CreateRequest) { req.Spec.IdleS = 10 })
		for range 5 {
			testenv.Elapse(9 * time.Second)
			r.run(params(other.ID, "true"))
		}
		testenv.Elapse(9 * time.Second)
		if st := r.state(other.ID); st != api.Running {
			t.Errorf("%s", st)
		}
		testenv.Elapse(2 * time.Second)
		r.settle()
		if st := r.state(other.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
	})
}

// TestExtend: a sandbox lives so long from now on, and for ever with 0; the record says until when.
func TestExtend(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(func(req *CreateRequest) { req.Spec.TTLS = 10 })
		testenv.Elapse(9 * time.Second)
		got, err := r.m.Extend(sb.ID, 20)
		if err != nil || got.Expires == nil || got.Expires.Sub(sb.Created) != 29*time.Second {
			t.Errorf("%+v, %v", got.Expires, err)
		}
		testenv.Elapse(19 * time.Second)
		if got, err = r.m.Extend(sb.ID, 0); err != nil || got.Expires != nil {
			t.Errorf("%+v, %v", got.Expires, err)
		}
		testenv.Elapse(24 * time.Hour)
		if st := r.state(sb.ID); st != api.Running {
			t.Errorf("%s", st)
		}
		ttl := 1.0
		if _, err := r.m.Meters.Update(t.Context(), api.UpdateParams{Sandbox: sb.ID, TTLS: &ttl}); err != nil {
			t.Error(err)
		}
		testenv.Elapse(time.Second)
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		_, err = r.m.Extend(sb.ID, 1)
		r.refused(api.NotFound, err)
	})
}

// TestStoppedTTL: the time of a stopped sandbox runs on where it is to remove it, and else not.
func TestStoppedTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		remove := r.create(func(req *CreateRequest) { req.Spec.TTLS = 10 })
		pause := r.create(func(req *CreateRequest) { req.Spec.TTLS, req.Spec.TTLAction = 10, api.LifePause })
		for _, id := range []string{remove.ID, pause.ID} {
			if _, err := r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: id}); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Elapse(time.Minute)
		r.settle()
		if a, b := r.state(remove.ID), r.state(pause.ID); a != api.StateRemoved || b != api.Stopped {
			t.Errorf("%s and %s", a, b)
		}
		r.remove(pause.ID)
	})
}

// TestPaused: a pause stops the clocks of commands and not the sandbox's own; what needs the sandbox resumes it; a
// pause that the cgroup refuses leaves it as it was.
func TestPaused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(func(req *CreateRequest) { req.Spec.TTLS = 3600 })
		p := params(sb.ID, "hang")
		ten := 10.0
		p.TimeoutS = &ten
		exec := r.start(p)
		testenv.Elapse(4 * time.Second)
		for range 2 {
			got, err := r.m.Pauses.Pause(t.Context(), sb.ID)
			if err != nil || got.State != api.Paused || got.Paused.By != api.PauseFreezer {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if n := r.points.count("Cgroups.Freeze"); n != 1 {
			t.Errorf("frozen %d times", n)
		}
		testenv.Elapse(time.Minute)
		got, err := r.m.Pauses.Resume(t.Context(), sb.ID)
		if err != nil || got.State != api.Running || got.Paused != nil {
			t.Errorf("%+v, %v", got, err)
		}
		testenv.Elapse(5 * time.Second)
		if rec, err := r.m.Execs.Get(api.ExecRef{Exec: exec}); err != nil || rec.State != api.ExecRunning {
			t.Errorf("%+v, %v", rec, err)
		}
		testenv.Elapse(time.Second)
		if res := r.wait(exec); res.Verdict != api.VerdictTimeoutWall {
			t.Errorf("%+v", res)
		}
		if _, err := r.m.Pauses.Pause(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if res := r.run(params(sb.ID, "exit", "4")); res.ExitCode != 4 {
			t.Errorf("%+v", res)
		}
		r.points.failing("Cgroups.Freeze", errInjected)
		_, err = r.m.Pauses.Pause(t.Context(), sb.ID)
		r.refused(api.Unavailable, err)
		r.points.failing("Cgroups.Freeze", nil)
		if got, err := r.m.Get(sb.ID); err != nil || got.State != api.Running || got.Paused != nil {
			t.Errorf("%+v, %v", got, err)
		}
		if res := r.run(params(sb.ID, "true")); res.Verdict != api.VerdictOK {
			t.Errorf("%+v", res)
		}
		if _, err := r.m.Pauses.Pause(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		testenv.Elapse(time.Hour) // ttl_s goes by the wall's
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
	})
}

// TestPausedBySignals: where there are no cgroups PID 1 stops the processes.
func TestPausedBySignals(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		p := params(sb.ID, "hang")
		ten := 10.0
		p.TimeoutS = &ten
		exec := r.start(p)
		testenv.Elapse(9 * time.Second)
		if got, err := r.m.Pauses.Pause(t.Context(), sb.ID); err != nil || got.Paused.By != api.PauseSignal {
			t.Fatalf("%+v, %v", got, err)
		}
		testenv.Elapse(time.Hour)
		if _, err := r.m.Pauses.Resume(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if res := r.wait(exec); res.Verdict != api.VerdictTimeoutWall || time.Since(start) != time.Second {
			t.Errorf("after %v: %+v", time.Since(start), res)
		}
		if calls := r.points.names(); !slices.Contains(calls, "Init.stop") || !slices.Contains(calls, "Init.go_on") {
			t.Errorf("%q", calls)
		}
		r.remove(sb.ID)
	}, func(c *Config) {
		c.Host.CgroupMode, c.Host.CgroupPath, c.Host.CgroupV2, c.Host.CgroupMount = "none", "", false, ""
		c.Host.Controllers = nil
	})
}
