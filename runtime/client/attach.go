package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// defaultWindow is how much output may be on its way or wait for its reader, in
// bytes.
const defaultWindow = 4 << 20

// AttachOptions say what to follow of an exec's output. The zero value is all of
// both streams.
type AttachOptions struct {
	From    api.Offsets  // negative: so many bytes before the end
	Streams []api.Stream // empty means both
	// Window bounds what is held for a reader that is slower than the command, in
	// bytes; 0 means 4 MiB. The command never waits for a reader: what one falls
	// too far behind of is dropped from the spool, and Output.Dropped tells.
	Window int64
}

// Output is a piece of an exec's output.
type Output struct {
	Stream  api.Stream
	Offset  int64  // of Data in its stream
	Dropped int64  // bytes before Offset that are lost
	Data    []byte // until the next call of Next
}

// Attachment follows the output of an exec. Its methods are for one goroutine at a
// time, but for Close. Leaving one open costs the daemon nothing but its place.
//
// It ends with its connection. Offsets then says where another one, on another
// connection, has to go on so that no byte is lost or doubled.
type Attachment struct {
	c      *Client
	id     string
	exec   string
	window int64

	// Of the reader:
	next api.Offsets // of the first bytes that Next has not returned
	held []byte      // Data of the last Output
	owed int64       // credit that was used up and not given back

	mu     sync.Mutex // guards what follows
	queue  []Output
	exited *api.Exited
	closed bool
	wake   chan struct{} // capacity 1: something of the above has changed
}

// pieces are the buffers of Output.Data.
var pieces = sync.Pool{New: func() any { return new([]byte) }}

// ErrDetached is what an Attachment's reader gets after Close.
var ErrDetached = errors.New("detached")

// Attach starts to follow an exec, which may have ended: its output can be read as
// long as the daemon keeps it.
func (c *Client) Attach(ctx context.Context, exec string, o AttachOptions) (*Attachment, error) {
	a := &Attachment{c: c, exec: exec, window: o.Window, wake: make(chan struct{}, 1)}
	if a.window <= 0 {
		a.window = defaultWindow
	}
	// Base64 is as fast for any bytes as text is for the best ones, and exact.
	p := api.AttachParams{Exec: exec, From: o.From, Streams: o.Streams, CreditBytes: a.window, Encoding: api.Base64}
	err := c.Call(ctx, api.MethodExecAttach, p, nil, withReply(func(result json.RawMessage) error {
		var r api.Attached
		if err := json.Unmarshal(result, &r); err != nil {
			return err
		}
		a.id, a.next = r.Attachment, r.From
		c.mu.Lock()
		defer c.mu.Unlock()
		c.attached[a.id] = a
		return nil
	}))
	if err != nil {
		a.mu.Lock()
		a.closed = true // should it have been made all the same
		a.mu.Unlock()
		a.forget()
		return nil, err
	}
	return a, nil
}

// Offsets are those of the first bytes that Next has not returned yet.
func (a *Attachment) Offsets() api.Offsets { return a.next }

// Exec is the id of the exec.
func (a *Attachment) Exec() string { return a.exec }

// Next returns the next piece of output. After the last byte of both streams it
// returns io.EOF, and Result has the exec's result.
func (a *Attachment) Next(ctx context.Context) (Output, error) {
	if err := a.giveBack(ctx); err != nil {
		return Output{}, err
	}
	for {
		lost := isClosed(a.c.read) // before the queue: all that came is in it then
		if o, err := a.take(); err != nil || o.Stream != "" {
			return o, err
		}
		if lost {
			return Output{}, a.c.unreachable(api.MethodExecAttach, a.c.why())
		}
		select {
		case <-a.wake:
		case <-a.c.read:
		case <-ctx.Done():
			return Output{}, context.Cause(ctx)
		}
	}
}

// take returns what is there; no stream means nothing.
func (a *Attachment) take() (Output, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return Output{}, ErrDetached
	case len(a.queue) > 0:
		o := a.queue[0]
		a.queue = a.queue[1:]
		a.held = o.Data
		if end := o.Offset + int64(len(o.Data)); o.Stream == api.Stdout {
			a.next.Stdout = end
		} else {
			a.next.Stderr = end
		}
		return o, nil
	case a.exited != nil:
		return Output{}, io.EOF
	}
	return Output{}, nil
}

// giveBack returns the last piece's buffer, and its credit in large portions.
func (a *Attachment) giveBack(ctx context.Context) error {
	if a.held != nil {
		a.owed += int64(len(a.held))
		buf := a.held[:0]
		pieces.Put(&buf)
		a.held = nil
	}
	a.mu.Lock()
	over := a.exited != nil || a.closed
	a.mu.Unlock()
	if a.owed < a.window/2 || over {
		return nil
	}
	err := a.c.Call(ctx, api.MethodExecCredit, api.CreditParams{Exec: a.exec, Attachment: a.id, Bytes: a.owed}, nil)
	var e *api.Error
	switch {
	case err == nil:
		a.owed = 0
	case errors.As(err, &e): // it has just ended, or the connection: the queue says which
		return nil
	}
	return err
}

// Result is the exec's result, without its output; ok is false before Next has
// returned io.EOF.
func (a *Attachment) Result() (res api.ExecResult, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.exited == nil || len(a.queue) > 0 {
		return api.ExecResult{}, false
	}
	return a.exited.ExecResult, true
}

// All ranges over the output until the exec has ended, or an error.
func (a *Attachment) All(ctx context.Context) iter.Seq2[Output, error] {
	return func(yield func(Output, error) bool) {
		for {
			o, err := a.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// GapError says that output is lost: it was dropped from the spool before it was
// read. What comes after it can be read.
type GapError struct {
	Stream   api.Stream
	From, To int64 // offsets
}

func (e *GapError) Error() string {
	return fmt.Sprintf("%s: the bytes from %d to %d were dropped before they were read", e.Stream, e.From, e.To)
}

// Gap is the error for what is lost before o, or nil.
func (o *Output) Gap() error {
	if o.Dropped == 0 {
		return nil
	}
	return &GapError{o.Stream, o.Offset - o.Dropped, o.Offset}
}

// Copy writes the output to two writers, each of which may be nil, until the exec
// has ended, and returns its result. Behind a gap it goes on, and returns the
// *GapError of the first one in the end.
func (a *Attachment) Copy(ctx context.Context, stdout, stderr io.Writer) (api.ExecResult, error) {
	var gap error
	for o, err := range a.All(ctx) {
		if err != nil {
			return api.ExecResult{}, err
		}
		if gap == nil {
			gap = o.Gap()
		}
		w := stdout
		if o.Stream == api.Stderr {
			w = stderr
		}
		if w == nil {
			continue
		}
		if _, err := w.Write(o.Data); err != nil {
			return api.ExecResult{}, fmt.Errorf("copy %s: %w", o.Stream, err)
		}
	}
	res, _ := a.Result()
	return res, gap
}

// Reader reads what Next returns, one piece behind the other: of an attachment to
// one stream, that stream. At a gap it returns a *GapError once and then goes on.
func (a *Attachment) Reader(ctx context.Context) io.Reader { return &reader{ctx: ctx, a: a} }

type reader struct {
	ctx  context.Context
	a    *Attachment
	rest []byte
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		o, err := r.a.Next(r.ctx)
		if err != nil {
			return 0, err
		}
		r.rest = o.Data
		if gap := o.Gap(); gap != nil {
			return 0, gap
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close detaches; the exec goes on. It returns at once when the exec has ended.
func (a *Attachment) Close() error {
	a.mu.Lock()
	over := a.exited != nil || a.closed
	a.closed = true
	a.queue = nil
	a.mu.Unlock()
	signal(a.wake)
	a.forget()
	if over {
		return nil
	}
	return a.c.release(api.MethodExecDetach, api.DetachParams{Exec: a.exec, Attachment: a.id})
}

func (a *Attachment) forget() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	delete(a.c.attached, a.id)
}

// deliver queues a piece, which the window bounds, on the reading goroutine.
func (a *Attachment) deliver(o Output) {
	a.mu.Lock()
	if !a.closed {
		a.queue = append(a.queue, o)
	}
	a.mu.Unlock()
	signal(a.wake)
}

// finish notes the exec's end.
func (a *Attachment) finish(e *api.Exited) {
	a.mu.Lock()
	a.exited = e
	a.mu.Unlock()
	signal(a.wake)
	a.forget()
}
