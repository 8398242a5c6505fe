package exec_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/exec/exectest"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

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
