// Command embed is an agent host in one file: it starts a daemon of its own, makes a
// sandbox in it, and does there what agents do.
//
//	go run ./docs/examples/embed      HUTCHD=/path/to/hutchd where it is not found
//
// Nothing of it needs cleaning up: the daemon and everything in it ends with this
// program, however that ends, kill -9 included.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		var e *api.Error // what hutchd says: a code for programs, a hint for people
		if errors.As(err, &e) && e.Hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", e.Hint)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	c, err := client.Start(ctx, client.StartOptions{Binary: os.Getenv("HUTCHD")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	box, err := c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
	if err != nil {
		return err
	}
	a := &agent{c: c, box: box.ID, out: out}
	for _, step := range []func(context.Context) error{a.capture, a.stream, a.files, a.cancel, a.timeout, a.shell} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// agent is what the steps share.
type agent struct {
	c   *client.Client
	box string
	out io.Writer
}

// capture runs a command and has its output in the result. A command that fails is no
// error.
func (a *agent) capture(ctx context.Context) error {
	r, err := a.c.ExecRun(ctx, api.ExecParams{Sandbox: a.box, Command: "echo hello | rev; exit 3"}, nil, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "ran: %q, exit code %d, verdict %s\n", r.Stdout, r.ExitCode, r.Verdict)
	return nil
}

// stream shows what a command writes while it runs, and answers it.
func (a *agent) stream(ctx context.Context) error {
	exec, err := a.c.ExecStart(ctx,
		api.ExecParams{Sandbox: a.box, Command: `echo name?; read name; echo "hello $name"`}, nil)
	if err != nil {
		return err
	}
	at, err := a.c.Attach(ctx, exec.Exec, client.AttachOptions{})
	if err != nil {
		return err
	}
	defer at.Close()
	for piece, err := range at.All(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "streamed: %q\n", piece.Data)
		if bytes.Contains(piece.Data, []byte("name?")) {
			if err := a.c.ExecWrite(ctx, api.WriteParams{Exec: exec.Exec, Data: "agent\n"}); err != nil {
				return err
			}
		}
	}
	r, _ := at.Result()
	fmt.Fprintf(a.out, "streamed: exit code %d\n", r.ExitCode)
	return nil
}

// files writes a file and reads it again. Larger ones go through a pipe, the second
// argument.
func (a *agent) files(ctx context.Context) error {
	file := api.FileParams{Sandbox: a.box, Path: "/tmp/demo/note.txt"}
	if _, err := a.c.WriteFile(ctx, api.FileWriteParams{FileParams: file, Data: "written from outside\n",
		Parents: true}, nil); err != nil {
		return err
	}
	chunk, err := a.c.ReadFile(ctx, api.FileReadParams{FileParams: file}, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "read: %q\n", chunk.Data)
	return nil
}

var errEnough = errors.New("the user has seen enough")

// cancel ends a command by its context: nothing of it is left when ExecRun returns.
func (a *agent) cancel(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := func(api.Progress) { cancel(errEnough) }
	_, err := a.c.ExecRun(ctx, api.ExecParams{Sandbox: a.box, Command: "sleep 1000 & sleep 1000"}, nil, started)
	if !errors.Is(err, errEnough) {
		return fmt.Errorf("a cancelled command ended with %w", err)
	}
	fmt.Fprintln(a.out, "cancelled:", err)
	return nil
}

// timeout has a command ended by the daemon, which is a result with a verdict.
func (a *agent) timeout(ctx context.Context) error {
	limit := 2.0 // seconds
	r, err := a.c.ExecRun(ctx, api.ExecParams{Sandbox: a.box, Command: "echo started; sleep 1000", TimeoutS: &limit},
		nil, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.out, "timed out: %v, verdict %s, after %q\n", r.TimedOut, r.Verdict, r.Stdout)
	return nil
}

// shell runs commands that build on each other.
func (a *agent) shell(ctx context.Context) error {
	sh, err := a.c.OpenShell(ctx, api.ShellParams{Sandbox: a.box})
	if err != nil {
		return err
	}
	for _, command := range []string{"cd /tmp/demo; x=42", "pwd; echo $x"} {
		r, err := a.c.RunShell(ctx, api.ShellRunParams{Shell: sh.Shell, Command: command})
		if err != nil {
			return err
		}
		fmt.Fprintf(a.out, "shell: %q\n", r.Stdout)
	}
	_, err = a.c.CloseShell(ctx, sh.Shell)
	return err
}
