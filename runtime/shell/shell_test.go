package shell_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/exec/exectest"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/shellapi"
	"github.com/hutch-sh/hutch/runtime/shell"
)

// world is shells in a world of commands.
type world struct {
	*exectest.World
	shells  *shell.Shells
	worker  *worker // that was started last
	leaving bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{World: exectest.New(t)}
	w.shells = shell.New(shell.Config{Execs: w.Table, Sandboxes: w.Sandboxes(), Background: w.Background(),
		Leaving: func() bool { return w.leaving }, Log: slog.New(slog.DiscardHandler)})
	w.Box.Worker = func(channel *os.File) error {
		w.worker = &worker{t: t, conn: channel, in: bufio.NewScanner(channel), got: make(chan shellapi.Request, 8)}
		t.Cleanup(func() { _ = channel.Close() })
		w.worker.says(shellapi.Event{Ev: shellapi.EvUp})
		go w.worker.serve()
		return nil
	}
	return w
}

// worker is one that keeps a shell. Its commands are "exit N", "over", "hang", and others, which succeed.
type worker struct {
	t    *testing.T
	conn *os.File
	in   *bufio.Scanner
	got  chan shellapi.Request
	lies bool // it does not give up a command
}

func (w *worker) says(ev shellapi.Event) {
	line, err := json.Marshal(ev)
	if err == nil {
		_, _ = w.conn.Write(append(line, '\n')) // who is gone does not read
	}
}

func (w *worker) serve() {
	for w.in.Scan() {
		var req shellapi.Request
		if json.Unmarshal(w.in.Bytes(), &req) != nil {
			continue
		}
		w.got <- req
		switch {
		case req.Op == shellapi.OpAbort && !w.lies:
			w.says(shellapi.Event{Ev: shellapi.EvAborted, Run: req.Run, Killed: []int{77}})
		case req.Op == shellapi.OpAsk:
			w.says(shellapi.Event{Ev: shellapi.EvNever, Run: req.Run})
		case req.Op != shellapi.OpRun || req.Command == "hang":
		case req.Command == "exit 3":
			w.says(shellapi.Event{Ev: shellapi.EvDone, Run: req.Run, Status: 3})
		case req.Command == "over":
			w.says(shellapi.Event{Ev: shellapi.EvOver, Run: req.Run, Status: 4 << 8})
		default:
			w.says(shellapi.Event{Ev: shellapi.EvDone, Run: req.Run})
		}
	}
}

func (w *world) open(t *testing.T) api.Shell {
	t.Helper()
	sh, err := w.shells.Open(t.Context(), api.ShellParams{Sandbox: "sb_1"})
	if err != nil {
		t.Fatal(err)
	}
	return sh
}

func (w *world) run(t *testing.T, id, command string) api.ShellResult {
	t.Helper()
	res, err := w.shells.Run(t.Context(), api.ShellRunParams{Shell: id, Command: command})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return res
}

func refused(t *testing.T, want api.Code, err error) {
	t.Helper()
	if err == nil || api.ErrorCode(err) != want {
		t.Errorf("error %v, want one of code %s", err, want)
	}
}

// TestRuns: commands run one after the other, each with its own output, and one that is asked for once more is not run
// again.
func TestRuns(t *testing.T) {
	w := newWorld(t)
	sh := w.open(t)
	out := w.Launcher.Output(sh.Exec, 0)
	out.Write("before")
	if res := w.run(t, sh.Shell, "true"); res.Run != 1 || res.Verdict != api.VerdictOK || res.Stdout != "" {
		t.Errorf("%+v", res)
	}
	res := w.run(t, sh.Shell, "exit 3")
	if res.Run != 2 || res.ExitCode != 3 || res.Verdict != api.VerdictNonzero || res.Closed {
		t.Errorf("%+v", res)
	}
	again, err := w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "exit 3", Run: 2})
	if err != nil || again.ExitCode != 3 || len(w.worker.got) != 2 {
		t.Errorf("%+v, %v; %d requests", again, err, len(w.worker.got))
	}
	_, err = w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "other", Run: 2})
	refused(t, api.AlreadyExists, err)
	_, err = w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "true", Run: 9})
	refused(t, api.FailedPrecondition, err)
	list, err := w.shells.List(t.Context(), api.SandboxParams{Sandbox: "sb_1"})
	if err != nil || len(list.Shells) != 1 || list.Shells[0].Runs != 2 || list.Shells[0].Busy || list.Shells[0].Over {
		t.Errorf("%+v, %v", list, err)
	}
	if begun, ended := w.Log.Notes(api.AuditShell), w.Log.Notes(api.AuditShellEnd); len(begun) != 2 || len(ended) != 2 {
		t.Errorf("%d beginnings and %d ends are recorded", len(begun), len(ended))
	}
	if w.Box.Calls() != 0 {
		t.Errorf("%d calls are under way", w.Box.Calls())
	}
}

// TestTimeout: a command that takes too long, or whose caller goes, is given up by the shell, which goes on.
func TestTimeout(t *testing.T) {
	w := newWorld(t)
	sh := w.open(t)
	s := 0.02
	res, err := w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "hang", TimeoutS: &s})
	if err != nil || res.Verdict != api.VerdictTimeoutWall || !res.TimedOut || res.Closed || len(res.Killed) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	began := make(chan error, 1)
	go func() {
		_, err := w.shells.Run(ctx, api.ShellRunParams{Shell: sh.Shell, Command: "hang"})
		began <- err
	}()
	for req := range w.worker.got {
		if req.Run == 2 {
			break
		}
	}
	_, err = w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "true"})
	refused(t, api.FailedPrecondition, err) // one runs
	cancel(gone)
	if err := <-began; !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if res := w.run(t, sh.Shell, "true"); res.Run != 3 {
		t.Errorf("%+v", res)
	}
}

// TestOver: a command may end the shell, which then says how it has ended, and no other runs in it.
func TestOver(t *testing.T) {
	w := newWorld(t)
	sh := w.open(t)
	leader := w.Box.Leader()
	done := make(chan api.ShellResult)
	go func() { done <- w.run(t, sh.Shell, "over") }()
	<-w.worker.got
	leader.Exit(4 << 8)
	if res := <-done; !res.Closed || res.ExitCode != 4 {
		t.Errorf("%+v", res)
	}
	_, err := w.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: "true"})
	refused(t, api.FailedPrecondition, err)
	_, err = w.shells.Run(t.Context(), api.ShellRunParams{Shell: "sh_none", Command: "true"})
	refused(t, api.NotFound, err)
}

// TestClose: a shell that is closed is killed, one whose sandbox is being removed is not found, and one whose exec is
// forgotten is in no list.
func TestClose(t *testing.T) {
	w := newWorld(t)
	sh, other := w.open(t), w.open(t)
	res, err := w.shells.Close(t.Context(), api.ShellRef{Shell: sh.Shell})
	if err != nil || res.Verdict != api.VerdictKilled {
		t.Errorf("%+v, %v", res, err)
	}
	_, err = w.shells.Close(t.Context(), api.ShellRef{Shell: sh.Shell})
	refused(t, api.NotFound, err)
	w.Box.Listed = false
	_, err = w.shells.Close(t.Context(), api.ShellRef{Shell: other.Shell})
	refused(t, api.NotFound, err)
	if w.shells.Left() != 1 {
		t.Errorf("%d shells", w.shells.Left())
	}
	w.Box.Die()
	w.Table.Forget(w.Box.Commands())
	if w.shells.Left() != 0 {
		t.Errorf("%d shells of a sandbox that is gone", w.shells.Left())
	}
}

// TestOpenFails: a shell that does not come up, or of which the next hutchd would not know, is killed, since its caller
// does not get it.
func TestOpenFails(t *testing.T) {
	full := errors.New("no room for a note")
	for name, breaks := range map[string]func(w *world){
		"no shell": func(w *world) {
			w.Box.Worker = func(c *os.File) error { return c.Close() }
		},
		"no note": func(w *world) {
			up := w.Box.Worker
			w.Box.Worker = func(c *os.File) error { w.Launcher.NoNotes = full; return up(c) }
		},
		"not started": func(w *world) {
			w.Box.Worker = func(c *os.File) error { return errors.Join(full, c.Close()) }
		},
	} {
		w := newWorld(t)
		breaks(w)
		_, err := w.shells.Open(t.Context(), api.ShellParams{Sandbox: "sb_1"})
		if err == nil || name != "no shell" && !errors.Is(err, full) {
			t.Errorf("%s: %v", name, err)
		}
		if w.shells.Left() != 0 || w.Box.Commands().Len() != 0 || w.Box.Calls() != 0 {
			t.Errorf("%s: something is left", name)
		}
	}
	w := newWorld(t)
	w.Box.Commands().AddKept(exec.MaxKept)
	_, err := w.shells.Open(t.Context(), api.ShellParams{Sandbox: "sb_1"})
	refused(t, api.ResourceExhausted, err)
	_, err = w.shells.Open(t.Context(), api.ShellParams{Sandbox: "sb_2"})
	refused(t, api.NotFound, err)
}

// channel is one to a worker.
func channel(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "channel"), os.NewFile(uintptr(fds[1]), "channel")
}

// TestAdopt: the next hutchd knows how the last command of a shell has ended, and asks for one that was under way.
func TestAdopt(t *testing.T) {
	for _, last := range []string{"exit 3", "hang"} {
		w := newWorld(t)
		sh := w.open(t)
		if last == "hang" {
			w.leaving = true
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := w.shells.Run(ctx, api.ShellRunParams{Shell: sh.Shell, Command: last}); err == nil {
				t.Error("has ended")
			}
			cancel()
		} else {
			w.run(t, sh.Shell, last)
		}
		next := newWorld(t)
		execs, err := exec.ReadHeld(w.Launcher.All(sh.Exec))
		if err != nil {
			t.Fatal(err)
		}
		r := next.Table.Adopt(t.Context(), next.Box, &execs[0], next.Box.Revive(execs[0].Guest()))
		ours, theirs := channel(t)
		if err := next.Box.Worker(theirs); err != nil {
			t.Fatal(err)
		}
		next.shells.Adopt(r, execs[0].Note(), ours)
		res, err := next.shells.Run(t.Context(), api.ShellRunParams{Shell: sh.Shell, Command: last, Run: 1})
		if last == "hang" {
			refused(t, api.Unavailable, err)
			if res := next.run(t, sh.Shell, "true"); res.Run != 1 {
				t.Errorf("%+v", res)
			}
		} else if err != nil || res.ExitCode != 3 || !strings.HasPrefix(res.Shell, "sh_") {
			t.Errorf("%+v, %v", res, err)
		}
	}
}
