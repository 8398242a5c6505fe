package exec_test

import (
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
)

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
