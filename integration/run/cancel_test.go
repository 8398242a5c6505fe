package run_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestCancelContext: a context's end is the end of a command that the call runs, with all
// that it started, and not of one that the call waits for.
func TestCancelContext(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	for _, timed := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		if timed {
			ctx, cancel = context.WithTimeout(t.Context(), testenv.Patience(500*time.Millisecond))
		}
		var exec string
		_, err := c.ExecRun(ctx, api.ExecParams{Sandbox: sb, Command: "(setsid sleep 1000 &); sleep 1000"}, nil,
			func(p api.Progress) {
				if exec = p.Exec; !timed {
					cancel()
				}
			})
		cancel()
		if want := map[bool]error{false: context.Canceled,
			true: context.DeadlineExceeded}[timed]; !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if _, err := c.GetExec(t.Context(), exec); api.ErrorCode(err) != api.NotFound {
			t.Errorf("the exec: %v", err)
		}
		if got := w.OK(t, "exec", sb, "--", "sh", "-c", "grep -l '^sleep$' /proc/[0-9]*/comm | wc -l"); got != "0\n" {
			t.Errorf("%s processes are left", got)
		}
	}
	exec := world.StartIn(t, c, sb, "read x; echo $x")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.ExecWait(ctx, api.WaitParams{Exec: exec}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	at, err := c.Attach(t.Context(), exec, hutch.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next: %v", err)
	}
	if err := at.Close(); err != nil {
		t.Error(err)
	}
	if err := c.ExecWrite(t.Context(), api.WriteParams{Exec: exec, Data: "on\n"}); err != nil {
		t.Error(err)
	}
	if r, err := c.ExecWait(t.Context(), api.WaitParams{Exec: exec}); err != nil || r.Stdout != "on\n" ||
		r.Verdict != api.VerdictOK {
		t.Errorf("it did not go on: %+v %v", r, err)
	}
	w.OK(t, "rm", "-f", sb)
}
