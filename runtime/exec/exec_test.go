package exec_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/exec/exectest"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// inBubble runs a test with a clock of its own.
func inBubble(t *testing.T, f func(t *testing.T, w *exectest.World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, exectest.New(t)) })
}

func refused(t *testing.T, want api.Code, err error) {
	t.Helper()
	if err == nil || api.ErrorCode(err) != want {
		t.Errorf("error %v, want one of code %s", err, want)
	}
}

// TestEnds: how each command ends, in its result, in the event and the log, and the note that lets PID 1 forget it.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		argv   string
		change func(w *exectest.World, p *api.ExecParams)
		want   api.Verdict
		code   int
	}{
		{argv: "true", want: api.VerdictOK},
		{argv: "exit 7", want: api.VerdictNonzero, code: 7},
		{argv: "signal 15", want: api.VerdictSignal, code: 143},
		{argv: "signal 31", want: api.VerdictDenied, code: 159},
		{argv: "exit 137", change: func(w *exectest.World, _ *api.ExecParams) {
			w.Cgroups.OnEvent = func(c *exectest.Cgroups) { c.OOM++ }
		}, want: api.VerdictOOM, code: 137},
		{argv: "exit 1", change: func(w *exectest.World, _ *api.ExecParams) {
			w.Cgroups.OnEvent = func(c *exectest.Cgroups) { c.PIDs++ }
		}, want: api.VerdictPIDs, code: 1},
		{argv: "exit 1", change: func(w *exectest.World, _ *api.ExecParams) { w.Box.Full = true },
			want: api.VerdictDisk, code: 1},
		{argv: "signal 25", change: func(_ *exectest.World, p *api.ExecParams) { // SIGXFSZ
			p.Limits = &api.Limits{Rlimits: api.Rlimits{FSize: &api.Rlimit{Soft: 9}}}
		}, want: api.VerdictDisk, code: 153},
		{argv: "hang", change: func(_ *exectest.World, p *api.ExecParams) {
			s := 5.0
			p.TimeoutS = &s
		}, want: api.VerdictTimeoutWall, code: 137},
		{argv: "hang", change: func(w *exectest.World, p *api.ExecParams) {
			w.Cgroups.Step, p.Limits = 100*time.Millisecond, &api.Limits{CPUTimeS: 1}
		}, want: api.VerdictTimeoutCPU, code: 137},
		{argv: "missing", want: api.VerdictNotRun, code: 127},
	} {
		inBubble(t, func(t *testing.T, w *exectest.World) {
			w.Box.Own = true
			req := exectest.Request(strings.Fields(tt.argv)...)
			if tt.change != nil {
				tt.change(w, &req.Params)
			}
			res := w.Run(req)
			if res.Verdict != tt.want || res.ExitCode != tt.code {
				t.Errorf("%s: %s with code %d, want %s with %d", tt.argv, res.Verdict, res.ExitCode, tt.want, tt.code)
			}
			ends := w.Log.Events(api.EventExecExited)
			switch {
			case tt.want == api.VerdictNotRun:
				if len(ends) > 0 || len(w.Log.Notes(api.AuditExecFailed)) != 1 {
					t.Errorf("%s: told %v", tt.argv, ends)
				}
			case len(ends) != 1 || ends[0].Data.(api.ExitedEvent).Verdict != tt.want || !w.Box.Leader().Acked() ||
				len(w.Log.Notes(api.AuditExecEnd)) != 1:
				t.Errorf("%s: told %v", tt.argv, ends)
			}
			limited := tt.want == api.VerdictOOM || tt.want == api.VerdictPIDs || tt.want == api.VerdictDisk
			if limited != (res.Limit != nil) {
				t.Errorf("%s: limit %+v", tt.argv, res.Limit)
			}
		})
	}
}

// TestOutput: what a command has written is kept to the byte, whoever reads it when, and ends it where it is too much.
func TestOutput(t *testing.T) {
	w := exectest.New(t)
	req := exectest.Captured("hang")
	req.Params.Limits = &api.Limits{OutputBytes: 100}
	res, err := w.Table.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	out := w.Launcher.Output(res.Exec, 0)
	out.Write("abcdef")
	read := func(p api.ReadParams) api.Chunk {
		t.Helper()
		p.Exec = res.Exec
		c, err := w.Table.Read(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := read(api.ReadParams{Stream: api.Stdout, Offset: 2, WaitS: 5}); c.Data != "cdef" || c.EOF || c.Next != 6 {
		t.Errorf("%+v", c)
	}
	if c := read(api.ReadParams{Stream: api.Stderr}); c.Data != "" || c.EOF {
		t.Errorf("%+v", c)
	}
	out.Write(strings.Repeat("x", 100))
	end := w.Wait(res.Exec)
	if end.Verdict != api.VerdictOutput || !strings.HasPrefix(end.Stdout, "abcdefx") || end.Truncated {
		t.Errorf("%+v", end)
	}
	if c := read(api.ReadParams{Stream: api.Stdout, Offset: -3}); c.Data != "xxx" || !c.EOF {
		t.Errorf("%+v", c)
	}
	got, err := w.Table.Get(api.ExecRef{Exec: res.Exec})
	if err != nil || got.StdoutBytes != 106 || got.State != api.ExecExited {
		t.Errorf("%+v, %v", got, err)
	}
	quiet := w.Start("true")
	_, err = w.Table.Read(t.Context(), api.ReadParams{Exec: quiet, Stream: api.Stdout})
	refused(t, api.FailedPrecondition, err)
	r, err := w.Table.Find(res.Exec)
	if err != nil || !strings.HasSuffix(r.Tail(10), "xxxxxxxxxx") {
		t.Errorf("%q, %v", r.Tail(10), err)
	}
}

// TestIDs: an id that the caller has chosen is one command's while it is being started, runs, and is kept, and is free
// when it has not run or is forgotten.
func TestIDs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		with := func(argv ...string) exec.Request {
			req := exectest.Request(argv...)
			req.Params.Exec = "ex_abcdefghijkl"
			return req
		}
		again := func(want api.Code) {
			t.Helper()
			_, err := w.Table.Start(t.Context(), with("true"))
			refused(t, want, err)
		}
		if res := w.Run(with("missing")); res.Verdict != api.VerdictNotRun {
			t.Errorf("%+v", res)
		}
		if res := w.Run(with("true")); res.Verdict != api.VerdictOK { // forgotten when it has its result
			t.Errorf("%+v", res)
		}
		var sent func()
		answered := with("true")
		answered.Sent = func(f func()) { sent = f }
		w.Run(answered)
		if left := w.Table.Left(); left["answered"] != 1 || left["execs"] != 0 {
			t.Errorf("%v", left)
		}
		sent()
		w.Box.Held = make(chan struct{})
		started := make(chan error)
		go func() {
			_, err := w.Table.Start(t.Context(), with("slow"))
			started <- err
		}()
		synctest.Wait()
		again(api.AlreadyExists)
		signalled := make(chan error) // waits for the start
		go func() {
			signalled <- w.Table.Signal(t.Context(), api.SignalParams{Exec: "ex_abcdefghijkl", Signal: "USR1"})
		}()
		synctest.Wait()
		close(w.Box.Held)
		if err := errors.Join(<-started, <-signalled); err != nil {
			t.Error(err)
		}
		again(api.AlreadyExists)
		w.Wait("ex_abcdefghijkl")
		for range 64 { // and the oldest is forgotten
			w.Wait(w.Start("true"))
		}
		synctest.Wait()
		if _, err := w.Table.Start(t.Context(), with("true")); err != nil {
			t.Error(err)
		}
		list, err := w.Table.List(t.Context(), api.SandboxParams{Sandbox: "sb_1"})
		if err != nil || len(list.Execs) < 64 {
			t.Errorf("%d are listed, %v", len(list.Execs), err)
		}
	})
}

// TestKill: a kill ends the command, and what it has left behind; a PID 1 that does not obey is not to be trusted.
func TestKill(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		w.Box.Own = true
		id := w.Start("hang")
		res, err := w.Table.Kill(t.Context(), api.ExecRef{Exec: id})
		if err != nil || res.Verdict != api.VerdictKilled || len(res.Killed) != 1 || len(w.Cgroups.Killed) != 1 {
			t.Errorf("%+v, %v, %v", res, w.Cgroups.Killed, err)
		}
		if _, err := w.Table.Kill(t.Context(), api.ExecRef{Exec: id}); err != nil || len(w.Cgroups.Killed) != 2 {
			t.Errorf("what it has left behind: %v, %v", w.Cgroups.Killed, err)
		}
		refused(t, api.FailedPrecondition, w.Table.Signal(t.Context(), api.SignalParams{Exec: id, Signal: "USR1"}))
		_, err = w.Table.Kill(t.Context(), api.ExecRef{Exec: "ex_none"})
		refused(t, api.NotFound, err)
		id = w.Start("immortal")
		start := time.Now()
		res, err = w.Table.Kill(t.Context(), api.ExecRef{Exec: id})
		if took := time.Since(start); err != nil || took != exec.KillTimeout || res.ExitCode != 137 ||
			len(w.Box.Distrusts) != 1 {
			t.Errorf("after %v: %+v, %v, %q", took, res, err, w.Box.Distrusts)
		}
	})
}

// TestCanceled: a command whose caller goes is killed, and nobody can ask for it; who waits ends nothing.
func TestCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var id string
		req := exectest.Request("hang")
		req.Started = func(exec string, _ int) { id = exec; cancel(gone) }
		if _, err := w.Table.Run(ctx, req); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		_, err := w.Table.Get(api.ExecRef{Exec: id})
		refused(t, api.NotFound, err)
		id = w.Start("hang")
		s := 1.0
		_, err = w.Table.Wait(t.Context(), api.WaitParams{Exec: id, WaitS: &s})
		refused(t, api.DeadlineExceeded, err)
		if rec, err := w.Table.Get(api.ExecRef{Exec: id}); err != nil || rec.State != api.ExecRunning {
			t.Errorf("%+v, %v", rec, err)
		}
	})
}

// TestGone: a command that starts while its sandbox is removed is ended, in whichever moment that is, and is in no list
// once all are forgotten; who waits for it gets an answer.
func TestGone(t *testing.T) {
	t.Run("before it is forgotten", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *exectest.World) {
			w.Box.Listed = false
			if res := w.Run(exectest.Request("hang")); res.Verdict != api.VerdictCanceled {
				t.Errorf("%+v", res)
			}
		})
	})
	t.Run("behind that", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *exectest.World) {
			w.Box.Held = make(chan struct{})
			ended := make(chan error)
			go func() {
				_, err := w.Table.Run(t.Context(), exectest.Request("slow"))
				ended <- err
			}()
			synctest.Wait()
			w.Table.Forget(w.Box.Commands())
			close(w.Box.Held)
			refused(t, api.NotFound, <-ended)
			if left := w.Table.Left(); left["execs"]+left["running"] != 0 || w.Box.Calls() != 0 {
				t.Errorf("left %v", left)
			}
		})
	})
	t.Run("while somebody waits", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *exectest.World) {
			id := w.Start("hang")
			done := make(chan api.ExecResult)
			go func() { done <- w.Wait(id) }()
			synctest.Wait()
			w.Box.Die()
			w.Table.Forget(w.Box.Commands())
			if res := <-done; res.Verdict != api.VerdictSandbox || res.ExitCode != 137 {
				t.Errorf("%+v", res)
			}
		})
	})
}

// TestStartFails: whatever the start of a command fails at, its caller hears of it and nothing of it is left.
func TestStartFails(t *testing.T) {
	broken := errors.New("broken")
	for name, breaks := range map[string]func(w *exectest.World){
		"enter":  func(w *exectest.World) { w.Box.Refuses = broken },
		"narrow": func(w *exectest.World) { w.Box.Narrows = broken },
		"hold":   func(w *exectest.World) { w.Launcher.Fails = broken },
		"dead":   func(w *exectest.World) { w.Box.Die() },
	} {
		inBubble(t, func(t *testing.T, w *exectest.World) {
			w.Box.Own = true
			breaks(w)
			req := exectest.Request("true")
			req.Params.Network = &api.NetPolicy{Mode: api.NetNone}
			if _, err := w.Table.Run(t.Context(), req); err == nil || name != "dead" && !errors.Is(err, broken) {
				t.Errorf("%s: %v", name, err)
			}
			if len(w.Cgroups.Made) > 0 || w.Box.Calls() != 0 {
				t.Errorf("%s left %v", name, w.Cgroups.Made)
			}
		})
	}
	w := exectest.New(t)
	req := exectest.Request("true")
	req.Params.Background = true
	_, err := w.Table.Run(t.Context(), req)
	refused(t, api.InvalidArgument, err)
	req.Params.Sandbox = "sb_2"
	_, err = w.Table.Start(t.Context(), req)
	refused(t, api.NotFound, err)
}

// TestStartErrors: what PID 1 says of a command that it did not start is told with what to do about it.
func TestStartErrors(t *testing.T) {
	for reason, want := range map[guestapi.Reason]struct {
		exit int
		code api.Code
	}{
		guestapi.ReasonNotFound: {127, api.NotFound}, guestapi.ReasonNotExecutable: {126, api.FailedPrecondition},
		guestapi.ReasonBadUser: {0, api.InvalidArgument}, guestapi.ReasonBadCwd: {0, api.InvalidArgument},
		guestapi.ReasonTooBig: {0, api.InvalidArgument}, guestapi.ReasonNoProcess: {0, api.ResourceExhausted},
		"other": {0, api.Internal},
	} {
		exit, err := exec.StartError(t.Context(), &guestapi.StartError{Reason: reason, Errno: int(unix.EACCES)})
		var e *api.Error
		if !errors.As(err, &e) || exit != want.exit || e.Code != want.code || e.Hint == "" {
			t.Errorf("%s: %d, %v", reason, exit, err)
		}
	}
	_, err := exec.StartError(t.Context(), exec.ErrTimeout)
	refused(t, api.DeadlineExceeded, err)
}

// TestAsked: what PID 1 is asked for has the environment of image, sandbox and command, the later over the earlier.
func TestAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		w.Box.Own = true
		w.Box.Rec.Workdir, w.Box.Rec.User = "/work", "1000"
		req := exectest.Request("true")
		req.Params.Env = map[string]string{"C": "exec"}
		w.Run(req)
		got := w.Box.Asked[0]
		want := []string{"A=image", "B=sandbox", "C=exec", "HOSTNAME=box", "PATH=" + exec.DefaultPath}
		if !slices.Equal(got.Env, want) || got.Cwd != "/work" || !got.MkCwd || got.User != "1000" || got.Cgroup == "" {
			t.Errorf("%+v", got)
		}
	})
}

// TestGroups: a cgroup that a command has left empty is the next one's, one with limits or that was killed is not, and
// one whose name is taken gets another.
func TestGroups(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		w.Box.Own = true
		if err := w.Table.MakeSpare(w.Box); err != nil {
			t.Fatal(err)
		}
		w.Run(exectest.Request("true"))
		w.Run(exectest.Request("true"))
		if a, b := w.Box.Asked[0].Cgroup, w.Box.Asked[1].Cgroup; a == "" || a != b || len(w.Cgroups.Made) != 1 {
			t.Errorf("%q and %q of %v", a, b, w.Cgroups.Made)
		}
		req := exectest.Request("true")
		req.Params.Exec = "ex_abcdefghijkl"
		req.Params.Limits = &api.Limits{PIDs: 9}
		w.Cgroups.Made[req.Params.Exec] = true
		w.Run(req)
		if got := w.Box.Asked[2].Cgroup; got != "ex_abcdefghijkl.2" {
			t.Errorf("%q", got)
		}
		w.Box.Commands().SetSpare(nil)
		if n := len(w.Box.Commands().Spare()); n != 0 {
			t.Errorf("%d", n)
		}
	})
}

// TestKept: what is kept has a name, no timeout, and does not keep its sandbox from being idle; there are so many.
func TestKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		set := w.Box.Commands()
		p := exectest.Captured("hang").Params
		p.Stdio = &api.Stdio{}
		kept, err := w.Table.Keep(t.Context(), p, "py")
		if err != nil {
			t.Fatal(err)
		}
		testenv.Elapse(time.Hour)
		list, err := w.Table.Kept("sb_1")
		if err != nil || len(list) != 1 || list[0].Name != "py" || list[0].Exec != kept.Exec || w.Box.Calls() != 0 {
			t.Errorf("%+v, %d calls, %v", list, w.Box.Calls(), err)
		}
		plain := w.Start("hang")
		if w.Box.Calls() != 1 {
			t.Errorf("%d calls", w.Box.Calls())
		}
		execs, shells, names := set.Names()
		if !slices.Equal(execs, []string{plain}) || len(shells) > 0 || !slices.Equal(names, []string{"py"}) {
			t.Errorf("%q, %q, %q", execs, shells, names)
		}
		if !set.AddKept(exec.MaxKept - 1) {
			t.Error("too many")
		}
		_, err = w.Table.Keep(t.Context(), p, "more")
		refused(t, api.ResourceExhausted, err)
		set.AddKept(1 - exec.MaxKept)
		p.Argv = []string{"missing"}
		_, err = w.Table.Keep(t.Context(), p, "more")
		refused(t, api.NotFound, err)
		if _, err := w.Table.Kill(t.Context(), api.ExecRef{Exec: kept.Exec}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !set.AddKept(exec.MaxKept) {
			t.Error("one that is over counts")
		}
		set.AddKept(-exec.MaxKept)
	})
}

// TestAskToEnd: each gets its signal, what is ours another than the image's, and who does not end is waited for no
// longer than the grace.
func TestAskToEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		w.Start("immortal")
		stubborn := w.Box.Leader()
		w.Start("hang")
		start := time.Now()
		w.Box.Commands().AskToEnd(t.Context(), 3*time.Second, "SIGINT")
		if took := time.Since(start); took != 3*time.Second || !slices.Contains(stubborn.Signals(), unix.SIGINT) ||
			w.Box.Commands().Len() != 1 {
			t.Errorf("after %v, %v, %d run", took, stubborn.Signals(), w.Box.Commands().Len())
		}
		if got := w.Box.Commands().Background(); got != nil {
			t.Errorf("%+v", got)
		}
	})
}

// TestHit: a limit that is met is told, of the command that is alone, and of others not more often than there is a use.
func TestHit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		w.Box.Rec.Limits = api.Limits{MemoryBytes: 9, PIDs: 8}
		id := w.Start("hang")
		for range 5 {
			w.Table.Hit(w.Box, api.VerdictOOM)
		}
		w.Start("hang")
		w.Table.Hit(w.Box, api.VerdictPIDs)
		w.Table.Hit(w.Box, api.VerdictPIDs)
		testenv.Elapse(2 * time.Second)
		w.Table.Hit(w.Box, api.VerdictPIDs)
		got := w.Log.Events(api.EventLimitHit)
		if len(got) != 3 || got[0].Exec != id || got[1].Exec != "" ||
			got[0].Data.(api.LimitEvent).Detail != "limits.memory_bytes is 9" ||
			got[1].Data.(api.LimitEvent).Detail != "limits.pids is 8" {
			t.Errorf("%+v", got)
		}
	})
}

// TestCause: who ends a command says what its verdict is, and which limit it was.
func TestCause(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		id := w.Start("hang")
		other := w.Start("hang")
		why := &exec.Cause{Verdict: api.VerdictOOM, Text: "too much", Limit: &api.LimitHit{Name: "memory_bytes"}}
		if err := exec.AwaitAll(t.Context(), w.Box.Commands().StopAll(why)); err != nil {
			t.Fatal(err)
		}
		if res := w.Wait(id); res.Verdict != api.VerdictOOM || res.Limit != why.Limit {
			t.Errorf("%+v", res)
		}
		r, err := w.Table.Find(other)
		if err != nil || w.Box.Commands().OnlyEver(r) || r.Alone() || r.Outcome().Verdict != api.VerdictOOM {
			t.Errorf("%v", err)
		}
	})
}

// TestAdopt: the next hutchd goes on with a command that runs, by the notes of the one before, and knows how others
// have ended.
func TestAdopt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *exectest.World) {
		s := 10.0
		req := exectest.Request("hang")
		req.Params.TimeoutS = &s
		runs, err := w.Table.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ended := w.Start("exit", "3")
		w.Wait(ended)
		testenv.Elapse(4 * time.Second)
		next := exectest.New(t)
		held := w.Launcher.All(runs.Exec, ended)
		execs, err := exec.ReadHeld(held)
		if err != nil || execs[0].Ended() || !execs[1].Ended() || execs[0].Guest() == 0 {
			t.Fatalf("%+v, %v", execs, err)
		}
		leader := next.Box.Revive(execs[0].Guest())
		next.Table.Adopt(t.Context(), next.Box, &execs[0], leader)
		next.Table.Adopt(t.Context(), next.Box, &execs[1], nil)
		if res := next.Wait(ended); res.ExitCode != 3 || res.Verdict != api.VerdictNonzero {
			t.Errorf("%+v", res)
		}
		start := time.Now()
		if res := next.Wait(runs.Exec); res.Verdict != api.VerdictTimeoutWall || time.Since(start) != 6*time.Second {
			t.Errorf("after %v: %+v", time.Since(start), res)
		}
		held[0].Meta = []byte("{")
		if _, err := exec.ReadHeld(held); err == nil {
			t.Error("half a note was read")
		}
	})
}

// TestLast: the end of what the last command has written outlives the sandbox's processes, all of it or nothing.
func TestLast(t *testing.T) {
	w := exectest.New(t)
	res, err := w.Table.Start(t.Context(), exectest.Captured("hang"))
	if err != nil {
		t.Fatal(err)
	}
	w.Launcher.Output(res.Exec, 0).Write("text")
	w.Box.Leader().Exit(2 << 8)
	w.Wait(res.Exec)
	dir := filepath.Join(t.TempDir(), "output")
	if err := w.Box.Commands().SaveLast(filepath.Join(dir, "none", "at all")); err == nil {
		t.Error("saved into nothing")
	}
	if err := w.Box.Commands().SaveLast(dir); err != nil {
		t.Fatal(err)
	}
	next := exectest.New(t)
	if err := next.Table.Recall(next.Box, filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	if err := next.Table.Recall(next.Box, dir); err != nil {
		t.Fatal(err)
	}
	if got := next.Wait(res.Exec); got.Stdout != "text" || got.ExitCode != 2 {
		t.Errorf("%+v", got)
	}
	if got, err := next.Table.Kill(t.Context(), api.ExecRef{Exec: res.Exec}); err != nil || got.ExitCode != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "exec.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := next.Table.Recall(next.Box, dir); err == nil || !strings.Contains(err.Error(), "no exit code") {
		t.Errorf("%v", err)
	}
}

// TestStdin: the stdin of a command is open until it is closed, and only of one that was started so; only a terminal
// has a size.
func TestStdin(t *testing.T) {
	w := exectest.New(t)
	res, err := w.Table.Start(t.Context(), exectest.Captured("hang"))
	if err != nil {
		t.Fatal(err)
	}
	ref := api.ExecRef{Exec: res.Exec}
	if err := w.Table.Write(t.Context(), api.WriteParams{Exec: res.Exec, Data: "typed"}); err != nil &&
		api.ErrorCode(err) != api.FailedPrecondition { // nobody has its other end here
		t.Error(err)
	}
	for range 2 {
		if err := w.Table.CloseStdin(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	refused(t, api.FailedPrecondition, w.Table.Write(t.Context(), api.WriteParams{Exec: res.Exec, Data: "more"}))
	refused(t, api.FailedPrecondition, w.Table.Resize(t.Context(), api.ResizeParams{Exec: res.Exec}))
	quiet := w.Start("hang")
	refused(t, api.FailedPrecondition, w.Table.Write(t.Context(), api.WriteParams{Exec: quiet, Data: "x"}))
	if len(w.Log.Notes(api.AuditStdin)) != 2 {
		t.Errorf("%+v", w.Log.Notes(api.AuditStdin))
	}
}
