package exec_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/exec/exectest"
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
