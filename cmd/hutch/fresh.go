package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// freshBox is the sandbox that a command has for itself: one call makes it, runs the command and removes it.
type freshBox struct {
	params api.RunParams      // but for the command and the folders
	idBase uint32             // the daemon's, see api.Info
	since  time.Time          // when the call was made
	pull   func(api.Progress) // shows a download; may be nil
	pulled func()             // takes it off the screen
	shown  gate               // opened then; none without pull

	signalled atomic.Bool // a call may have been sent beside that of the command
	known     atomic.Bool // it is known that the command runs, or has run

	id      string                      // of the sandbox, once the command runs
	sandbox func() (api.Sandbox, error) // its record, once the command has ended
}

// begin is session.begin for a sandbox that there is not yet.
func (f *freshBox) begin(ctx context.Context, s *session, p api.ExecParams, files *client.Stdio,
	started func(api.Progress)) (api.ExecResult, error) {
	f.params.Exec = p
	news := func(n api.Progress) {
		switch {
		case n.Kind == api.ProgressReady:
			f.pulled()
			f.shown.open()
		case f.pull != nil:
			f.pull(n)
		}
		started(n)
	}
	run, err := f.call(ctx, s, files, news)
	// The daemon is another one, or was just ending, and so may be the next one.
	for range notRunTries {
		if f.params.IfBuild == "" || f.signalled.Load() || ctx.Err() != nil || !client.NotRun(err) {
			break
		}
		c, cerr := connect(ctx, false)
		if cerr != nil {
			return api.ExecResult{}, cerr
		}
		who, cerr := c.Peer(ctx)
		if cerr != nil {
			return api.ExecResult{}, errors.Join(cerr, c.Close())
		}
		f.params.IfBuild = who.BuildID
		s.swap(c)
		f.params.IfState = "" // that has been asked
		run, err = f.callAgain(ctx, s, files, news)
	}
	if err == nil && f.id == "" { // it was over before there was any news
		var b client.Brief
		if b, err = run.Brief(); err == nil {
			f.started(&api.Progress{Sandbox: b.ID, Note: b.Note, Unenforced: b.Unenforced})
		}
	}
	f.sandbox = run.Sandbox
	return run.Exec, err
}

// notRunTries bounds how often a call that no daemon has looked at is made again.
const notRunTries = 4

// call makes the call. It opens the folders each time: the daemon mounts what it gets.
func (f *freshBox) call(ctx context.Context, s *session, files *client.Stdio, news func(api.Progress)) (run client.Run,
	err error) {
	if f.params.Sandbox == nil {
		return f.callWith(ctx, s, f.params, nil, files, news)
	}
	err = hostfs.Lend(f.idBase, *f.params.Sandbox, func(opened api.Spec, folders []*os.File) (err error) {
		params := f.params
		params.Sandbox = &opened
		run, err = f.callWith(ctx, s, params, folders, files, news)
		return err
	})
	return run, err
}

func (f *freshBox) callWith(ctx context.Context, s *session, params api.RunParams, folders []*os.File,
	files *client.Stdio, news func(api.Progress)) (client.Run, error) {
	// The daemon makes the sandbox while signals are not caught yet, but starts no command: who sends the command's
	// caller a signal, because of what the command says, wants the command to have it.
	gate, err := newGate()
	if err != nil {
		return client.Run{}, err
	}
	defer gate.Close()
	last := len(folders)
	params.Gate = &last
	given := append(folders, gate.file)
	if f.pull != nil {
		// What the command writes would be taken off the screen together with the download.
		if f.shown, err = newGate(); err != nil {
			return client.Run{}, err
		}
		defer f.shown.Close()
		next := len(given)
		params.ProgressGate = &next
		given = append(given, f.shown.file)
	}
	f.since = time.Now()
	return s.conn().RunNew(ctx, params, given, files, news, client.WithSent(func() {
		s.signals.Listen()
		gate.open()
	}))
}

// gate is what a command waits behind, see api.RunParams.
type gate struct{ file *os.File }

func newGate() (gate, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return gate{}, fmt.Errorf("eventfd: %w", err)
	}
	return gate{os.NewFile(uintptr(fd), "gate")}, nil
}

func (g gate) open() {
	one := [8]byte{1, 1} // any number but none
	_, _ = g.file.Write(one[:])
}

func (g gate) Close() { _ = g.file.Close() }

// callAgain is call for a daemon whose build is known.
func (f *freshBox) callAgain(ctx context.Context, s *session, files *client.Stdio, news func(api.Progress)) (client.Run,
	error) {
	who, err := s.conn().Peer(ctx)
	if err != nil {
		return client.Run{}, err
	}
	f.idBase = who.IDBase
	return f.call(ctx, s, files, news)
}

// started takes the news that the command runs.
func (f *freshBox) started(p *api.Progress) {
	f.id = p.Sandbox
	f.known.Store(true)
	f.pulled()
	warnUnenforced(os.Stderr, p.Note, p.Unenforced)
}

// resume goes on with the hutchd that c is connected to, when the one before was killed: the command runs, or has
// ended, and the sandbox is still there.
func (f *freshBox) resume(ctx context.Context, s *session, p api.ExecParams, files *client.Stdio,
	started func(api.Progress)) (api.ExecResult, error) {
	c := s.conn()
	rec, err := c.GetExec(ctx, p.Exec)
	if notFound(err) {
		who, err := c.Peer(ctx)
		if err != nil {
			return api.ExecResult{}, err
		}
		// Whoever has kept the sandboxes has done so all the time, and has none with this command: it never ran. Only a
		// result with much output could have been given up before it was read.
		if who.Launched.Before(f.since) && (files != nil || time.Since(f.since) < api.RunReplyPatience) {
			f.idBase = who.IDBase
			return f.begin(ctx, s, p, files, started)
		}
		return api.ExecResult{},
			api.Errorf(api.Unavailable,
				"the daemon has ended, and its sandboxes with it: what became of the command is not known").
				WithOp("run").
				WithHint("its log says why (`hutch doctor` shows where)")
	}
	if err != nil {
		return api.ExecResult{}, err
	}
	f.id = rec.Sandbox
	sb, err := c.Claim(ctx, rec.Sandbox)
	if err != nil {
		return api.ExecResult{}, err
	}
	res, err := c.ExecWait(ctx, api.WaitParams{Exec: p.Exec, Encoding: p.Encoding, OutputBytes: p.OutputBytes})
	if err != nil {
		return api.ExecResult{}, err
	}
	f.sandbox = func() (api.Sandbox, error) { return sb, nil }
	if _, err = c.Remove(ctx, rec.Sandbox); notFound(err) {
		err = nil
	}
	return res, err
}

// inOneCall reports whether nothing has to be done between the creation of the sandbox and the command, or behind it.
func (r *runner) inOneCall(spec *api.Spec) bool {
	o := r.flags
	lookedAt := spec.Workspace != nil && spec.Workspace.Mode == api.ModeOverlay && !o.json // at what has changed in it
	folders := len(spec.Mounts) + 1
	gates := 1
	if cli.IsTerminal(os.Stderr) { // see call
		gates++
	}
	return !o.debug && !o.tty && !o.keep && spec.Scope == nil && !spec.Network.Ask && len(o.publish) == 0 &&
		!lookedAt && folders+gates+3 <= jsonrpc.MaxFDs
}

// fresh makes, runs and removes in one call. Who answers is not asked before, where nothing depends on it.
func (r *runner) fresh(ctx context.Context, spec api.Spec, command []string) (err error) {
	done := r.phase("connect")
	base, known := client.LikelyIDBase()
	// to the daemon's ids, by who opens them
	mapped := os.Getuid() == 0 && (spec.Workspace != nil || len(spec.Mounts) > 0)
	eager := known && !r.flags.private && !mapped
	f := &freshBox{params: api.RunParams{Entrypoint: r.flags.entrypoint}}
	if !r.flags.private { // whose end is that of this command
		f.params.IfBuild = client.IfBuild()
	}
	if eager {
		f.params.IfState = client.IfState()
		r.client, err = client.Connect(ctx, client.ConnectOptions{Eager: true})
	} else if r.client, err = connect(ctx, r.flags.private); err == nil {
		r.peer, err = r.client.Peer(ctx)
		base = r.peer.IDBase
		if f.params.IfBuild != "" {
			f.params.IfBuild = r.peer.BuildID
		}
	}
	done()
	if r.client != nil {
		defer func() { tell(r.client.Close()) }()
	}
	if err != nil {
		return err
	}
	f.idBase = base
	if r.flags.pool != "" {
		f.params.Acquire = r.flags.acquireParams(&spec, "")
	} else {
		f.params.Sandbox = &spec
	}
	var pulled func()
	f.pull, pulled = pullProgress(spec.Template != "")
	f.pulled = sync.OnceFunc(pulled)
	defer f.pulled()
	done = r.phase("run")
	s := &session{
		client: r.client, signals: r.signals, owner: base, interactive: r.flags.interactive, private: r.flags.private,
		owned: true, fresh: f,
	}
	defer func() { r.client = s.conn() }()
	p := api.ExecParams{Argv: command, TimeoutS: r.flags.timeout}
	if !r.flags.json {
		res, err := s.run(ctx, p)
		if err != nil {
			return err
		}
		r.result = res
		tellDenials(os.Stderr, res, f.id)
		return cli.Outcome(res)
	}
	res, err := s.capture(ctx, p)
	done()
	if err != nil {
		return err
	}
	sb, err := f.sandbox()
	if err != nil {
		return err
	}
	return r.printJSON(&sb, res)
}
