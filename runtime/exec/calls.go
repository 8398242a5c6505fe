package exec

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/excerpt"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
)

// keepOutput keeps what the exec has written readable until done is called, which must be soon after its end.
func (r *Exec) keepOutput() (done func(), err error) {
	done, ok := r.io.KeepOutput()
	if !ok {
		return nil, errNoExec(r.id)
	}
	return done, nil
}

// Wait waits for the end of an exec; it never kills.
func (t *Table) Wait(ctx context.Context, p api.WaitParams) (api.ExecResult, error) {
	r, err := t.Find(p.Exec)
	if err != nil {
		return api.ExecResult{}, err
	}
	done, err := r.keepOutput()
	if err != nil {
		return api.ExecResult{}, err
	}
	defer done()
	if p.WaitS != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, seconds(*p.WaitS), errStillRuns)
		defer cancel()
	}
	select {
	case <-r.done:
		return r.result(p.OutputBytes, p.Encoding)
	default:
	}
	select {
	case <-r.done:
		return r.result(p.OutputBytes, p.Encoding)
	case <-ctx.Done():
		return api.ExecResult{}, context.Cause(ctx)
	}
}

var errStillRuns = api.Errorf(api.DeadlineExceeded, "the exec still runs").WithHint("wait again; exec.kill ends it")

// Read reads output of an exec, also after its end.
func (t *Table) Read(ctx context.Context, p api.ReadParams) (api.Chunk, error) {
	if err := p.Validate(); err != nil {
		return api.Chunk{}, err
	}
	r, err := t.Find(p.Exec)
	if err != nil {
		return api.Chunk{}, err
	}
	if len(r.io.Streams) == 0 {
		return api.Chunk{}, nothingKept(p.Exec)
	}
	done, err := r.keepOutput()
	if err != nil {
		return api.Chunk{}, err
	}
	defer done()
	st := r.io.Streams[0]
	if p.Stream == api.Stderr {
		st = r.io.Streams[1]
	}
	off := p.Offset
	if off < 0 {
		off = max(0, st.Len()+off)
	}
	if p.WaitS > 0 {
		waiting, cancel := context.WithTimeout(ctx, seconds(p.WaitS))
		st.AwaitByte(waiting, off, r.done)
		cancel()
	}
	limit := p.Limit
	if limit == 0 {
		limit = api.DefaultReadBytes
	}
	return r.chunk(st, off, limit, p.Encoding)
}

// chunk reads and encodes one piece of a stream.
func (r *Exec) chunk(st *stdio.Stream, off, limit int64, want api.Encoding) (api.Chunk, error) {
	ended := isClosed(r.done) // before the read: what was written before the end is then seen
	data, start, err := st.Read(off, limit)
	if err != nil {
		return api.Chunk{}, err
	}
	total, next := st.Len(), start+int64(len(data))
	text, enc, cut := excerpt.Encode(data, want, ended && next == total)
	next -= int64(cut)
	return api.Chunk{Offset: start, Next: next, Data: text, Encoding: enc, EOF: ended && next >= total}, nil
}

// Kill kills an exec and everything it started, and returns its result. Of an
// exec that has ended it kills what that left behind.
func (t *Table) Kill(ctx context.Context, p api.ExecRef) (api.ExecResult, error) {
	r, err := t.Find(p.Exec)
	if err != nil {
		return api.ExecResult{}, err
	}
	ended := isClosed(r.done)
	t.audit(ctx, r.s, r.id, api.AuditKill, api.AuditSent{}, 0)
	if !ended {
		r.stop(ErrKilled)
		return t.Wait(ctx, api.WaitParams{Exec: p.Exec})
	}
	left, err := t.endLeft(r)
	if err != nil {
		return api.ExecResult{}, err
	}
	res, err := t.Wait(ctx, api.WaitParams{Exec: p.Exec})
	res.Killed = merge(r.PID(), res.Killed, left)
	return res, err
}

// List lists the execs of a sandbox that run or ended lately, oldest first.
func (t *Table) List(_ context.Context, p api.SandboxParams) (api.Execs, error) {
	s, err := t.cfg.Sandboxes.Find(p.Sandbox)
	if err != nil {
		return api.Execs{}, err
	}
	all := s.Commands().known()
	list := make([]api.Exec, 0, len(all))
	for _, r := range all {
		list = append(list, r.record())
	}
	return api.Execs{Execs: list}, nil
}

// Get is the record of one exec.
func (t *Table) Get(p api.ExecRef) (api.Exec, error) {
	r, err := t.Find(p.Exec)
	if err != nil {
		return api.Exec{}, err
	}
	return r.record(), nil
}

func (r *Exec) record() api.Exec {
	rec := api.Exec{
		Exec: r.id, Sandbox: r.s.ID(), State: api.ExecRunning, Argv: r.params.Argv, Command: r.params.Command,
		Background: r.params.Background, Kept: r.isKept(), TTY: r.params.Pty != nil, PID: r.PID(),
		Started: r.start.UTC().Truncate(time.Millisecond),
	}
	if len(r.io.Streams) == 2 {
		rec.StdoutBytes, rec.StderrBytes = r.io.Streams[0].Len(), r.io.Streams[1].Len()
	}
	if isClosed(r.done) {
		o := r.Outcome()
		rec.State, rec.ExitCode, rec.Verdict, rec.DurationMS = api.ExecExited, &o.ExitCode, o.Verdict, o.DurationMS
	}
	return rec
}

// Signal sends a signal to an exec's leader.
func (t *Table) Signal(ctx context.Context, p api.SignalParams) error {
	r, err := t.liveSoon(ctx, p.Exec)
	if err != nil {
		return err
	}
	sig, err := ParseSignal(p.Signal)
	if err != nil {
		return err
	}
	err = r.leader.Signal(sig)
	sent := api.AuditSent{Signal: unix.SignalName(sig)}
	if sent.Signal == "" {
		sent.Signal = strconv.Itoa(int(sig)) // a real-time one
	}
	if err != nil {
		sent.Error = err.Error()
	}
	t.audit(ctx, r.s, r.id, api.AuditSignal, sent, 0)
	return err
}

// Resize sets the size of an exec's terminal.
func (t *Table) Resize(_ context.Context, p api.ResizeParams) error {
	r, err := t.live(p.Exec)
	if err != nil {
		return err
	}
	ok, err := r.io.Resize(p.Pty)
	if !ok {
		return api.Errorf(api.FailedPrecondition, "exec %s has no terminal", p.Exec).WithHint("start it with pty")
	}
	return err
}

// Write writes to an exec's stdin. It blocks while the command does not read.
func (t *Table) Write(ctx context.Context, p api.WriteParams) error {
	r, err := t.live(p.Exec)
	if err != nil {
		return err
	}
	data, err := excerpt.Decode("data", p.Data, p.Encoding)
	if err != nil {
		return err
	}
	if !r.io.Open() {
		return api.Errorf(api.FailedPrecondition, "the stdin of exec %s is not open", p.Exec).
			WithHint("start it with exec.start, without background, stdin and stdio")
	}
	t.audit(ctx, r.s, r.id, api.AuditStdin, audit.Whole(data, t.cfg.Audit.Full()), len(data))
	return r.write(ctx, data)
}

// keyTimeout bounds how long a terminal whose command does not read may take a key.
const keyTimeout = 10 * time.Second

// CloseStdin closes an exec's stdin.
func (t *Table) CloseStdin(ctx context.Context, p api.ExecRef) error {
	r, err := t.live(p.Exec)
	if err != nil {
		return err
	}
	switch {
	case !r.io.Open():
	case r.io.IsTerminal():
		// A terminal has no end of file; this is the key for it (termios(3), VEOF). It comes
		// behind what is being written.
		ctx, cancel := context.WithTimeoutCause(ctx, keyTimeout, api.Errorf(api.FailedPrecondition,
			"the terminal of exec %s takes no input", p.Exec).
			WithHint("its command does not read; exec.signal or exec.kill reaches it"))
		defer cancel()
		return r.write(ctx, []byte{4})
	default:
		r.io.CloseInput() // ends a write, too; twice is no error for the caller
		err = t.cfg.Launcher.Loosen(r.s.ID(), r.id)
	}
	return err
}

// write writes to r's stdin when nobody else does.
func (r *Exec) write(ctx context.Context, data []byte) error {
	err := r.io.Write(ctx, data)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EIO) || errors.Is(err, os.ErrClosed) {
		return api.Errorf(api.FailedPrecondition, "exec %s reads its stdin no more", r.id).
			WithHint("it was closed, or the command has ended")
	}
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
