package main

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// shownAgain is how much of what a terminal has shown before is shown to whoever comes
// back to it, in bytes: a screen or so.
const shownAgain = 4 << 10

// errDetached ends the wait for a command that goes on without its caller.
var errDetached = errors.New("detached")

// detachKeys is the value of --detach-keys: what is none is refused before anything is run.
type detachKeys string

func (k *detachKeys) String() string { return string(*k) }
func (k *detachKeys) Type() string   { return "string" }

func (k *detachKeys) Set(v string) error {
	_, err := cli.ParseDetachKeys(v, nil)
	*k = detachKeys(v)
	return err
}

func addDetachKeys(fs *pflag.FlagSet, keys *string) {
	*keys = cli.DefaultDetachKeys
	fs.Var((*detachKeys)(keys), "detach-keys", "with -t, the `KEYS` that leave the command running; \"\" for none")
}

// leaver returns what to do when the keys are pressed: leave, which says errDetached,
// where the command can live on.
func (s *session) leaver(leave context.CancelCauseFunc) func() {
	if !s.owned && !s.private {
		return func() { leave(errDetached) }
	}
	why := "the sandbox ends with hutch run; --keep keeps it"
	if s.private {
		why = "the daemon is this command's own"
	}
	return func() { fmt.Fprintf(os.Stderr, "\r\nhutch: not detached: %s\r\n", why) }
}

// interrupting has a second Ctrl-C do what SIGTERM does: the command gets that, and is killed when it stays.
func (s *session) interrupting(keys *cli.DetachKeys) *cli.DetachKeys {
	if !s.twice {
		return keys
	}
	return keys.OnTwice(func() { _ = unix.Kill(os.Getpid(), unix.SIGTERM) })
}

// detached tells how to come back. hutch has done what it was asked to.
func detached(comeBack string) error {
	fmt.Fprintf(os.Stderr, "\nhutch: detached; %s comes back\n", comeBack)
	return &cli.Exit{Code: 0}
}

// begin starts a command and waits for its end. One with a terminal that can be left is
// no child of the call: the end of ctx leaves it running.
func (s *session) begin(ctx context.Context, p api.ExecParams, files *client.Stdio,
	started func(api.Progress)) (api.ExecResult, error) {
	if s.fresh != nil {
		return s.fresh.begin(ctx, s, p, files, started)
	}
	if !p.Detachable {
		return s.conn().ExecRun(ctx, p, files, started)
	}
	r, err := s.conn().ExecStart(ctx, p, files)
	if err != nil {
		return api.ExecResult{}, cli.StartFailure(err)
	}
	started(api.Progress{Kind: api.ProgressStarted, Exec: r.Exec, PID: r.PID})
	return s.conn().ExecWait(ctx, api.WaitParams{Exec: r.Exec, OutputBytes: 1})
}

// kill ends a command whose call was interrupted.
func (s *session) kill(ctx context.Context, exec string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_, err := s.conn().ExecKill(ctx, exec)
	if !notFound(err) {
		tell(err)
	}
}

// runAttach comes back to a command's terminal.
func (o *execFlags) runAttach(ctx context.Context, exec string) error {
	ctx, signals := cli.CatchSignals(ctx)
	defer signals.Stop()
	err := withDaemon(ctx, func(c *client.Client) error {
		rec, err := c.GetExec(ctx, exec)
		if err != nil {
			return err
		}
		if !rec.TTY {
			return api.Errorf(api.FailedPrecondition, "exec %s has no terminal", exec).WithOp("exec").
				WithHint("hutch logs -f %s shows what it writes", exec)
		}
		s := &session{client: c, signals: signals, tty: true, detachKeys: o.detachKeys}
		res, err := s.attach(ctx, exec)
		if err != nil {
			return err
		}
		return cli.Outcome(res)
	})
	return interrupted(ctx, err)
}

// attach connects the caller's terminal with that of an exec.
func (s *session) attach(ctx context.Context, exec string) (_ *api.ExecResult, err error) {
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	keys, err := cli.ParseDetachKeys(s.detachKeys, s.leaver(leave))
	if err != nil {
		return nil, cli.Usage("hutch exec", err)
	}
	keys = s.interrupting(keys)
	stdio, err := cli.OpenStdio(cli.StdioOptions{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, TTY: true, Detach: keys, Owner: uint32(os.Geteuid()),
	})
	if err != nil {
		return nil, err
	}
	defer stdio.Close()
	a, err := s.client.Attach(ctx, exec, client.AttachOptions{
		From: api.Offsets{Stdout: -shownAgain}, Streams: []api.Stream{api.Stdout}, Window: 64 << 10,
	})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	s.signals.Listen()
	restore, err := cli.RawTerminal(os.Stdin)
	if err != nil {
		return nil, err
	}
	defer restore()
	target := s.target(ctx, exec)
	s.signals.Started(target)
	target.Resize() // a program that draws does so again
	if stdio.Stdin != nil {
		go s.typeInto(ctx, exec, stdio.Stdin)
	}
	res, err := a.Copy(ctx, stdio.Stdout, nil)
	var gap *client.GapError
	switch {
	case errors.Is(err, errDetached):
		restore()
		return nil, detached(cmp.Or(s.comeBack, "hutch exec --attach "+exec))
	case err != nil && !errors.As(err, &gap): // a terminal can do with a gap
		return nil, err
	}
	return &res, stdio.Finish(ctx)
}

// typeInto passes on what is typed until there is no more, or the command has ended.
func (s *session) typeInto(ctx context.Context, exec string, keys io.Reader) {
	buf := make([]byte, 4<<10)
	for {
		n, err := keys.Read(buf)
		if err != nil {
			return
		}
		data := base64.StdEncoding.EncodeToString(buf[:n])
		if s.client.ExecWrite(ctx, api.WriteParams{Exec: exec, Data: data, Encoding: api.Base64}) != nil {
			return
		}
	}
}
