package world

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// Reconnect returns a connection to the hutchd that follows one that was killed: the monitor may have given the first
// one or two to that one, as it died.
func (w *World) Reconnect(t testing.TB) *hutch.Client {
	t.Helper()
	for {
		c := w.Connect(t)
		_, err := c.Info(t.Context())
		if err == nil {
			return c
		}
		if !errors.Is(err, hutch.ErrLost) {
			t.Fatal(err)
		}
	}
}

// Connect is a client of the world's daemon.
func (w *World) Connect(t testing.TB) *hutch.Client {
	t.Helper()
	if !w.Answers() {
		w.OK(t, "rpc", "system.info")
	}
	c, err := hutch.Dial(t.Context(), w.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Box creates a sandbox of the host image through c, and returns its id.
func Box(t testing.TB, c *hutch.Client) string {
	t.Helper()
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID
}

// StartIn starts a shell command in a sandbox, and returns its exec.
func StartIn(t testing.TB, c *hutch.Client, sandbox, command string) string {
	t.Helper()
	r, err := c.ExecStart(t.Context(), api.ExecParams{Sandbox: sandbox, Command: command}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Exec
}

// Busy is a command whose process tree tries to get away: a daemonized child in
// a session of its own, and one that ignores every signal it can.
const Busy = `
(setsid sh -c '(trap "" TERM INT HUP; echo away >/dev/null; exec sleep infinity) & exit 0')
trap "" HUP
echo ready
exec sleep infinity`

// Client is a running `hutch run`.
type Client struct {
	Errs bytes.Buffer // standard error, once it has ended
	*exec.Cmd
	out   *bufio.Reader
	Stdin io.WriteCloser
}

// Start starts hutch and returns when the command inside has said "ready".
func (w *World) Start(t testing.TB, args ...string) *Client {
	t.Helper()
	return w.StartProgram(t, filepath.Join(w.Bin, "hutch"), args...)
}

// StartProgram is Start for another program, which runs hutch.
func (w *World) StartProgram(t testing.TB, name string, args ...string) *Client {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = w.Vars, w.Dir
	c := Spawn(t, cmd)
	c.Await(t, "ready")
	return c
}

// Launch starts hutch without waiting for anything.
func (w *World) Launch(t testing.TB, args ...string) *Client {
	t.Helper()
	return Spawn(t, w.Command(args...))
}

// Spawn starts a command whose input and output the test has.
func Spawn(t testing.TB, cmd *exec.Cmd) *Client {
	t.Helper()
	c := &Client{Cmd: cmd}
	cmd.Stderr = &c.Errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin = stdin
	c.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Await reads lines up to one that says so.
func (c *Client) Await(t testing.TB, want string) {
	t.Helper()
	c.awaitLine(t, want, func(line string) bool { return strings.TrimSpace(line) == want })
}

// AwaitPart reads lines up to one with want in it.
func (c *Client) AwaitPart(t testing.TB, want string) {
	t.Helper()
	c.awaitLine(t, want, func(line string) bool { return strings.Contains(line, want) })
}

// awaitLine gives up, but late: there are commands with minutes of work before a line.
func (c *Client) awaitLine(t testing.TB, want string, found func(line string) bool) {
	t.Helper()
	late := time.AfterFunc(5*Patience, func() { _ = c.Process.Kill() })
	defer late.Stop()
	last := ""
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			ended := late.Stop()
			_ = c.Wait()
			if !ended {
				testenv.Late(t, "%s says no %q, but %q: %s", strings.Join(c.Args, " "), want, last, &c.Errs)
			}
			t.Fatalf("%s: output ended before %q, with %q: %v: %s", strings.Join(c.Args, " "), want, last, err, &c.Errs)
		}
		if found(line) {
			return
		}
		last = line
	}
}

// End waits for hutch's end; the rest of its output is dropped.
func (c *Client) End(t testing.TB) int {
	t.Helper()
	late := time.AfterFunc(Patience, func() { _ = c.Process.Kill() })
	_, _ = io.Copy(io.Discard, c.out)
	if !late.Stop() {
		testenv.Late(t, "%s does not end", strings.Join(c.Args, " "))
	}
	return Await(t, c.Cmd)
}

// Signal sends a signal to hutch.
func (c *Client) Signal(t testing.TB, sig os.Signal) {
	t.Helper()
	if err := c.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Rounds is fewer of them with -short.
func Rounds(n int) int {
	if testing.Short() {
		return max(n/10, 2)
	}
	return n
}

// RunTime is about what a run takes: what comes at a random moment within it meets every part of one.
const RunTime = 80 * time.Millisecond

// NextOf returns the next event that is of kind.
func NextOf(t testing.TB, events *hutch.Events, kind api.EventKind) api.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for e, err := range events.All(ctx) {
		if err != nil {
			Fatal(t, err)
		}
		if e.Kind == kind {
			return e
		}
	}
	t.Fatalf("no %s", kind)
	return api.Event{}
}
