package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// TestVerdicts: how each command ends, in its result, its record, the event and the note for the next hutchd.
func TestVerdicts(t *testing.T) {
	r := newRig(t)
	sb := r.create()
	small := &api.Limits{OutputBytes: 1000}
	cpu := &api.Limits{CPUTimeS: 2}
	for _, tt := range []struct {
		argv   string
		change func(*api.ExecParams)
		before func()
		want   api.Verdict
		code   int
	}{
		{argv: "true", want: api.VerdictOK},
		{argv: "exit 7", want: api.VerdictNonzero, code: 7},
		{argv: "signal 15", want: api.VerdictSignal, code: 143},
		{argv: "signal 31", want: api.VerdictDenied, code: 159}, // SIGSYS
		{argv: "write x 900", change: func(p *api.ExecParams) { p.Limits = small }, want: api.VerdictOK},
		{argv: "write x 1001", change: func(p *api.ExecParams) { p.Limits = small }, want: api.VerdictOutput},
		{argv: "exit 137", before: func() { r.cgroups.onUse = func(c *fakeCgroups) { c.oom++ } },
			want: api.VerdictOOM, code: 137},
		{argv: "true", before: func() { r.cgroups.onUse = func(c *fakeCgroups) { c.oom++ } }, want: api.VerdictOK},
		{argv: "exit 1", before: func() { r.cgroups.onUse = func(c *fakeCgroups) { c.pids++ } },
			want: api.VerdictPIDs, code: 1},
		{argv: "true", change: func(p *api.ExecParams) { p.Limits = cpu },
			before: func() { r.cgroups.onUse = func(c *fakeCgroups) { c.usage += 3 * time.Second } },
			want:   api.VerdictTimeoutCPU},
		{argv: "missing", want: api.VerdictNotRun, code: 127},
		{argv: "forbidden", want: api.VerdictNotRun, code: 126},
	} {
		p := captured(sb.ID, strings.Fields(tt.argv)...)
		if tt.change != nil {
			tt.change(&p)
		}
		if tt.before != nil {
			tt.before()
		}
		res := r.run(p)
		r.cgroups.onUse = nil
		if res.Verdict != tt.want || res.ExitCode != tt.code && tt.want != api.VerdictOutput {
			t.Errorf("%s: %s with code %d, want %s with %d", tt.argv, res.Verdict, res.ExitCode, tt.want, tt.code)
		}
		if tt.want == api.VerdictNotRun {
			continue
		}
		if rec := lastExited(r, sb.ID); rec.Verdict != tt.want || rec.ExitCode != res.ExitCode {
			t.Errorf("%s: told %+v", tt.argv, rec)
		}
	}
	r.remove(sb.ID)
}

// lastExited is the last event of an end of a command of a sandbox.
func lastExited(r *rig, id string) api.ExitedEvent {
	events, audits := r.events.of(string(api.EventExecExited), id)
	_, notes := r.events.of(string(api.AuditExecEnd), id)
	if len(events) == 0 || len(notes)+len(audits) == 0 {
		r.t.Errorf("no end was told: %v", events)
		return api.ExitedEvent{}
	}
	return events[len(events)-1].data.(api.ExitedEvent)
}

// TestOutput: what a command writes is kept to the byte, whoever reads it when, and cut in the reply alone.
func TestOutput(t *testing.T) {
	r := newRig(t)
	sb := r.create()
	p := captured(sb.ID, "write", "0123456789", "1000")
	p.OutputBytes = 100
	res := r.run(p)
	if len(res.Stdout) > 300 || !res.Truncated || !strings.HasPrefix(res.Stdout, "0123456789") {
		t.Errorf("%+v", res)
	}
	p = captured(sb.ID, "cat")
	p.Stdin = "typed\n"
	if res := r.run(p); res.Stdout != "typed\n" {
		t.Errorf("%+v", res)
	}
	id := r.start(captured(sb.ID, "write", "abcdef", "2"))
	if res := r.wait(id); res.Stdout != "abcdefabcdef" {
		t.Errorf("%+v", res)
	}
	chunk, err := r.m.Execs.Read(t.Context(), api.ReadParams{Exec: id, Stream: api.Stdout, Offset: 4, Limit: 4})
	if err != nil || chunk.Data != "efab" || chunk.Next != 8 || chunk.EOF {
		t.Errorf("%+v, %v", chunk, err)
	}
	r.remove(sb.ID)
}

// TestTimeout: a command ends when its own time, its sandbox's or the daemon's is over; a longer one than the daemon
// allows is refused.
func TestTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		short := 5.0
		sb := r.create(func(req *CreateRequest) { req.Spec.Limits.TimeoutS = 20 })
		plain := r.create()
		for _, tt := range []struct {
			id      string
			timeout *float64
			want    time.Duration
		}{{sb.ID, &short, 5 * time.Second}, {sb.ID, nil, 20 * time.Second}, {plain.ID, nil, time.Minute}} {
			p := params(tt.id, "hang")
			p.TimeoutS = tt.timeout
			start := time.Now()
			res := r.run(p)
			if took := time.Since(start); took != tt.want || res.Verdict != api.VerdictTimeoutWall || !res.TimedOut ||
				len(res.Killed) != 1 {
				t.Errorf("after %v, want %v: %+v", took, tt.want, res)
			}
		}
		long := 3601.0
		p := params(plain.ID, "hang")
		p.TimeoutS = &long
		_, err := r.m.Execs.Start(t.Context(), exec.Request{Params: p, Started: func(string, int) {}})
		r.refused(api.InvalidArgument, err)
		p.Background, p.TimeoutS = true, nil // which has none
		id := r.start(p)
		testenv.Elapse(24 * time.Hour)
		if rec, err := r.m.Execs.Get(api.ExecRef{Exec: id}); err != nil || rec.State != api.ExecRunning {
			t.Errorf("%+v, %v", rec, err)
		}
		r.remove(sb.ID)
		r.remove(plain.ID)
	})
}

// TestCPUTime: a command ends when its processes have used up their CPU time, however long that takes.
func TestCPUTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		r.cgroups.onUse = func(c *fakeCgroups) { c.usage += 100 * time.Millisecond } // each look
		p := params(sb.ID, "hang")
		p.Limits = &api.Limits{CPUTimeS: 2}
		if res := r.run(p); res.Verdict != api.VerdictTimeoutCPU || !res.TimedOut || len(res.Killed) != 1 {
			t.Errorf("%+v", res)
		}
		if n := r.points.count("Cgroups.Usage"); n > 30 {
			t.Errorf("looked %d times", n)
		}
		r.remove(sb.ID)
	})
}

// TestExecKill: a kill ends the command and says whom; its caller and who waits get the same result. One that PID 1
// does not report costs the sandbox.
func TestExecKill(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		id := r.start(params(sb.ID, "stubborn"))
		waited := make(chan api.ExecResult, 1)
		go func() { waited <- r.wait(id) }()
		synctest.Wait()
		res, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: id})
		if other := <-waited; err != nil || res.Verdict != api.VerdictKilled || len(res.Killed) != 1 ||
			other.Verdict != res.Verdict {
			t.Errorf("%+v and %+v, %v", res, other, err)
		}
		if r.points.count("Cgroups.Kill") == 0 {
			t.Error("what it has started lives")
		}
		again, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: id}) // what it has left behind
		if err != nil || again.Verdict != api.VerdictKilled {
			t.Errorf("%+v, %v", again, err)
		}
		id = r.start(params(sb.ID, "immortal"))
		start := time.Now()
		res, err = r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: id})
		if took := time.Since(start); err != nil || took != exec.KillTimeout || res.ExitCode != 137 {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("with a PID 1 that does not obey it is %s", st)
		}
	})
}

// TestKillSandbox: the end of a sandbox ends its commands, with the verdict that says so, and the record stays.
func TestKillSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		execs := []string{r.start(params(sb.ID, "hang")), r.start(params(sb.ID, "stubborn"))}
		if _, err := r.m.Kill(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		for _, id := range execs {
			if res := r.wait(id); res.Verdict != api.VerdictSandbox || res.ExitCode != 137 {
				t.Errorf("%+v", res)
			}
		}
		got, err := r.m.Get(sb.ID)
		if err != nil || got.State != api.Stopped || got.Reason != "killed" || got.PID != 0 {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = r.m.Execs.Start(t.Context(),
			exec.Request{Params: params(sb.ID, "true"), Started: func(string, int) {}})
		r.refused(api.FailedPrecondition, err)
		if res, err := r.m.Kill(t.Context(), sb.ID); err != nil || len(res.Killed) > 0 {
			t.Errorf("%+v, %v", res, err)
		}
		r.remove(sb.ID)
		if _, err := r.m.Execs.Get(api.ExecRef{Exec: execs[0]}); api.ErrorCode(err) != api.NotFound {
			t.Errorf("%v", err)
		}
	})
}

// TestInitDies: a PID 1 that ends takes its sandbox along, which says why; commands that ran, or were being started,
// end as its.
func TestInitDies(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for argv, want := range map[string]string{
			"crash":    "failed: PID 1",
			"takeover": "failed: its PID 1 is not to be trusted",
		} {
			sb := r.create()
			other := r.start(params(sb.ID, "hang"))
			failed := r.events.await(sb.ID, api.Failed)
			res, err := r.m.Execs.Run(t.Context(), exec.Request{Params: params(sb.ID, argv),
				Started: func(string, int) {}})
			if err == nil && res.Verdict != api.VerdictSandbox {
				t.Errorf("%s: %+v", argv, res)
			}
			<-failed
			if res := r.wait(other); res.Verdict != api.VerdictSandbox {
				t.Errorf("%s: %+v", argv, res)
			}
			if said := strings.Join(r.events.states(sb.ID), ", "); !strings.Contains(said, want) {
				t.Errorf("%s: %q", argv, said)
			}
			if got, err := r.m.Get(sb.ID); err != nil || got.State != api.Failed || got.PID != 0 {
				t.Errorf("%s: %+v, %v", argv, got, err)
			}
			r.remove(sb.ID)
		}
	})
}

// TestNotStarted: a PID 1 that neither starts a command nor says why not has as much time as one that does not end one.
func TestNotStarted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		p := params(sb.ID, "silent")
		two := 2.0
		p.TimeoutS = &two
		start := time.Now()
		res, err := r.m.Execs.Run(t.Context(), exec.Request{Params: p, Started: func(string, int) {}})
		if took := time.Since(start); err != nil || res.Verdict != api.VerdictTimeoutWall ||
			took != 2*time.Second+exec.KillTimeout {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
	})
}

// TestLauncherLost: without hutch-launch every sandbox ends, its commands as lost, and each can still be removed.
func TestLauncherLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(rich)
		id := r.start(params(sb.ID, "hang"))
		failed := r.events.await(sb.ID, api.Failed)
		r.launcher.lose()
		<-failed
		if res := r.wait(id); res.Verdict != api.VerdictLost {
			t.Errorf("%+v", res)
		}
		_, err := r.m.Create(t.Context(), request())
		r.refused(api.Unavailable, err)
		r.remove(sb.ID)
		r.empty()
	})
}

// TestExecIDs: an id that the caller has chosen is one command's: while it is being started, runs, and is kept; and is
// free when it has not run, or is forgotten.
func TestExecIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		const id = "ex_abcdefghijkl"
		with := func(argv ...string) api.ExecParams {
			p := params(sb.ID, argv...)
			p.Exec = id
			return p
		}
		again := func(want api.Code) {
			t.Helper()
			_, err := r.m.Execs.Start(t.Context(), exec.Request{Params: with("true"), Started: func(string, int) {}})
			r.refused(want, err)
		}
		if res := r.run(with("missing")); res.Verdict != api.VerdictNotRun {
			t.Errorf("%+v", res)
		}
		arrived, release := r.points.holding("Init.exec")
		started := make(chan string)
		go func() { started <- r.start(with("hang")) }()
		<-arrived
		again(api.AlreadyExists)
		release()
		if got := <-started; got != id {
			t.Errorf("%s", got)
		}
		again(api.AlreadyExists)
		if _, err := r.m.Execs.Kill(t.Context(), api.ExecRef{Exec: id}); err != nil {
			t.Error(err)
		}
		again(api.AlreadyExists)
		for range 64 { // and the oldest is forgotten
			r.wait(r.start(params(sb.ID, "true")))
		}
		if res := r.wait(r.start(with("true"))); res.Exec != id {
			t.Errorf("%+v", res)
		}
		if list, err := r.execs(sb.ID); err != nil || len(list) != 64 {
			t.Errorf("%d are kept, %v", len(list), err)
		}
		r.remove(sb.ID)
	})
}

// TestRunCanceled: a command whose caller goes is killed, with what it has started, and nobody can ask for it.
func TestRunCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var id string
		_, err := r.m.Execs.Run(ctx, exec.Request{Params: params(sb.ID, "stubborn"),
			Started: func(started string, _ int) {
				id = started
				cancel(gone)
			}})
		if !errors.Is(err, gone) || lastExited(r, sb.ID).Verdict != api.VerdictCanceled {
			t.Errorf("%v, %+v", err, lastExited(r, sb.ID))
		}
		r.settle()
		if _, err := r.m.Execs.Get(api.ExecRef{Exec: id}); api.ErrorCode(err) != api.NotFound {
			t.Errorf("%v", err)
		}
		waits, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		id = r.start(params(sb.ID, "hang"))
		if _, err := r.m.Execs.Wait(waits, api.WaitParams{Exec: id}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if rec, err := r.m.Execs.Get(api.ExecRef{Exec: id}); err != nil || rec.State != api.ExecRunning {
			t.Errorf("who waits has ended it: %+v, %v", rec, err)
		}
		r.remove(sb.ID)
	})
}

// TestExecFails: whichever call of the start of a command fails, its caller hears of that, and nothing of it is left.
func TestExecFails(t *testing.T) {
	r := newRig(t)
	sb := r.create()
	try := func() error {
		p := captured(sb.ID, "exit", "1")
		p.Limits = &api.Limits{PIDs: 10} // a cgroup of its own
		_, err := r.m.Execs.Run(t.Context(), exec.Request{Params: p, Started: func(string, int) {}})
		return err
	}
	r.points.forget()
	if err := try(); err != nil {
		t.Fatal(err)
	}
	calls := r.points.names()
	if !slices.Contains(calls, "Cgroups.Make") || !slices.Contains(calls, "Launcher.Hold") {
		t.Fatalf("%q", calls)
	}
	fds, groups := openFDs(t), r.cgroups.made(sb.ID)
	for _, call := range []string{"Cgroups.Make", "Launcher.Hold", "Init.exec"} {
		r.points.failing(call, errInjected)
		if err := try(); !errors.Is(err, errInjected) {
			t.Errorf("%s: %v", call, err)
		}
		r.points.failing(call, nil)
		left := r.leftovers()
		if left["execs"] != 0 || left["running"] != 0 || left["starting"] != 0 || left["taken ids"] != 0 ||
			left["held execs"] != 0 || openFDs(t) > fds || r.cgroups.made(sb.ID) != groups {
			t.Errorf("%s left %v, %d fds before %d, %d cgroups before %d", call, left, openFDs(t), fds,
				r.cgroups.made(sb.ID), groups)
		}
	}
	if err := try(); err != nil {
		t.Error(err)
	}
	r.remove(sb.ID)
}

// TestSignals: a signal reaches the leader, is recorded, and one that is none is refused.
func TestSignals(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create()
		id := r.start(params(sb.ID, "hang"))
		r.refused(api.InvalidArgument, r.m.Execs.Signal(t.Context(), api.SignalParams{Exec: id, Signal: "SIGNONE"}))
		if err := r.m.Execs.Signal(t.Context(), api.SignalParams{Exec: id, Signal: "USR1"}); err != nil {
			t.Error(err)
		}
		if res := r.wait(id); res.Verdict != api.VerdictSignal || res.ExitCode != 128+int(unix.SIGUSR1) {
			t.Errorf("%+v", res)
		}
		r.refused(api.FailedPrecondition, r.m.Execs.Signal(t.Context(), api.SignalParams{Exec: id, Signal: "USR1"}))
		if _, audits := r.events.of(string(api.AuditSignal), sb.ID); len(audits) != 1 {
			t.Errorf("%v", audits)
		}
		r.remove(sb.ID)
	})
}
