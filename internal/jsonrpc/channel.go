package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// MaxInFlight bounds the calls under way on one connection. A server behind a
// Channel must be able to run as many at once.
const MaxInFlight = 256

// Why a call's context was cancelled (context.Cause).
var (
	ErrCanceled       = errors.New("canceled by the client")
	ErrConnectionLost = errors.New("the client's connection was lost")
	errReplied        = errors.New("the call has been answered")
)

// Request is what a Channel knows about a call under way beyond its JSON.
type Request struct {
	// Ctx ends when the client cancels the call, and for calls that Config's
	// CancelOnLoss names when the connection is lost.
	Ctx context.Context
	// FDs came with the call; the Channel closes what is left of them after the
	// reply.
	FDs *FDs

	method string
	cancel context.CancelCauseFunc
	then   []func() // by AfterReply

	mu   sync.Mutex
	over bool     // answered, or the connection is lost
	sent []func() // by AfterSent
}

// AfterReply calls fn, which must not block, when the reply has been queued: what
// fn queues comes after it. It is not called when the connection is lost first.
// It belongs to the call's handler.
func (r *Request) AfterReply(fn func()) { r.then = append(r.then, fn) }

// AfterSent calls fn when the reply has been written to the socket, where it outlives this
// process, or when the connection is lost. Replies wait for fn: it must be brief.
func (r *Request) AfterSent(fn func()) {
	r.mu.Lock()
	over := r.over
	if !over {
		r.sent = append(r.sent, fn)
	}
	r.mu.Unlock()
	if over {
		fn()
	}
}

// finish is what AfterSent was given.
func (r *Request) finish() []func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.sent
}

// ChannelConfig says how a Channel treats calls.
type ChannelConfig struct {
	// CancelOnLoss reports whether a call of method ends with its connection.
	CancelOnLoss func(method string) bool
	// LongLines is shared by channels.
	LongLines LongLines
}

// Channel is a connection as github.com/creachadair/jrpc2 wants it (its
// channel.Channel). It adds what that library does not have:
//
//   - fds, kept by request id until the handler asks for them (Request);
//   - cancellation: the notification rpc.cancel is acted on here, because jrpc2
//     holds back everything that follows a notification until it is handled;
//   - half-close: Recv says io.EOF only when every call has been answered, or
//     when the client is gone for good, because jrpc2 cancels all calls then;
//   - a Send that never blocks: jrpc2 calls it holding the server's lock;
//   - protocol errors with a hint, and calls refused before they cost anything.
//
// Recv and Send are jrpc2's; the other methods may be called by anybody.
type Channel struct {
	cfg  ChannelConfig
	base context.Context
	conn *net.UnixConn
	r    *Reader
	w    *Writer

	turn chan struct{} // holds a token while somebody feeds

	mu       sync.Mutex          // before the Writer's
	calls    map[string]*Request // by id as written on the wire
	fed      int                 // KeepOpen's that are not released
	draining bool                // take no further calls
	waiting  bool                // Recv waits for idleLocked
}

// NewChannel takes ownership of conn. The contexts of calls derive from ctx.
func NewChannel(ctx context.Context, conn *net.UnixConn, cfg ChannelConfig) *Channel {
	return &Channel{
		cfg: cfg, base: ctx, conn: conn,
		r: NewReader(conn, MaxLine, cfg.LongLines), w: NewWriter(conn),
		turn: make(chan struct{}, 1), calls: make(map[string]*Request),
	}
}

// free is an id unless a call with it is under way, whose answer would be taken for this one.
func (c *Channel) free(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != nil {
		return ""
	}
	return id
}

// SetMaxLine changes how long a request may be, which is MaxLine at first.
func (c *Channel) SetMaxLine(n int) { c.r.SetMax(n) }

// Recv returns the next line with calls to dispatch.
func (c *Channel) Recv() ([]byte, error) {
	for {
		line, files, err := c.r.ReadLine()
		switch {
		case err == nil, errors.Is(err, ErrTooManyFDs), errors.Is(err, ErrLostFDs):
			if out := c.admit(line, files, err); out != nil {
				return out, nil
			}
		case errors.Is(err, ErrLineTooLong):
			c.refuse(c.free(headID(line)),
				protocolError(CodeInvalidRequest, "Send large inputs as an fd, or in pieces.",
					"the request line is longer than %d bytes", c.r.max.Load()))
		case errors.Is(err, ErrBusy):
			c.refuse(c.free(headID(line)), &Error{
				Code: api.ResourceExhausted.Number(), Message: "too many clients send long requests at once",
				Data: api.ErrorData{Code: api.ResourceExhausted,
					Hint: "Try again, or send large inputs as an fd, or in pieces."},
			})
		case errors.Is(err, io.EOF), c.isDraining() && errors.Is(err, os.ErrDeadlineExceeded):
			return nil, c.awaitReplies()
		default:
			c.lose()
			return nil, err
		}
	}
}

// admit answers what can be answered here and returns the line to dispatch, nil
// when nothing is left of it. It owns files; fdErr is why there are none.
func (c *Channel) admit(line []byte, files []*os.File, fdErr error) []byte {
	msgs, batch, perr := parse(line)
	switch {
	case perr != nil:
		closeFiles(files)
		c.refuse("", perr)
		return nil
	case batch:
		return c.admitBatch(msgs, files, fdErr)
	}
	m := msgs[0]
	if m.err == nil {
		m.err = refusedFDs(fdErr)
	}
	if m.err == nil && m.id != "" {
		m.err = c.register(m, files)
	} else {
		closeFiles(files)
	}
	switch {
	case m.err != nil:
		c.refuse(m.id, m.err)
		return nil
	case m.id == "":
		c.notified(m)
		return nil
	}
	return line
}

// refusedFDs is the answer to a call whose fds cannot be had.
func refusedFDs(err error) *Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLostFDs):
		return &Error{
			Code: api.ResourceExhausted.Number(), Message: err.Error(),
			Data: api.ErrorData{Code: api.ResourceExhausted, Field: "fds",
				Hint: "Raise the daemon's limit of open files (ulimit -n), or run less at once."},
		}
	}
	e := protocolError(CodeInvalidRequest, "Send fewer fds.", "%v", err)
	e.Data.Field = "fds"
	return e
}

// admitBatch is strict where leniency would be ambiguous: ids must be unique
// and fds cannot be told apart.
func (c *Channel) admitBatch(msgs []message, files []*os.File, fdErr error) []byte {
	if len(files) > 0 || fdErr != nil {
		closeFiles(files)
		c.refuse("", protocolError(CodeInvalidRequest, "Send a request with fds on a line of its own.",
			"fds came with a batch"))
		return nil
	}
	if err := c.checkBatch(msgs); err != nil {
		c.refuse("", err)
		return nil
	}
	var keep []json.RawMessage
	for _, m := range msgs {
		switch {
		case m.err != nil && m.id == "":
			m.raw = json.RawMessage("{}") // surely invalid, whatever it was
		case m.err != nil: // jrpc2 says so in the batch's reply
		case m.id == "":
			c.notified(m)
			continue
		default:
			_ = c.register(m, nil) // checkBatch made sure
		}
		keep = append(keep, m.raw)
	}
	if len(keep) == 0 {
		return nil
	}
	return marshal(keep)
}

func (c *Channel) checkBatch(msgs []message) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := make(map[string]bool)
	for _, m := range msgs {
		if m.id == "" {
			continue
		}
		if seen[m.id] || c.calls[m.id] != nil {
			return protocolError(CodeInvalidRequest, hintIDs, "id %s is already in use; nothing of the batch was done",
				clip([]byte(m.id)))
		}
		seen[m.id] = true
	}
	if len(c.calls)+len(seen) > MaxInFlight {
		return tooManyCalls()
	}
	return nil
}

// register makes the call findable by id. It owns files.
func (c *Channel) register(m message, files []*os.File) *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[m.id] != nil {
		closeFiles(files)
		return protocolError(CodeInvalidRequest, hintIDs, "id %s is already in use", clip([]byte(m.id)))
	}
	if len(c.calls) >= MaxInFlight {
		closeFiles(files)
		return tooManyCalls()
	}
	ctx, cancel := context.WithCancelCause(c.base)
	c.calls[m.id] = &Request{Ctx: ctx, FDs: NewFDs(files), method: m.method, cancel: cancel}
	return nil
}

func tooManyCalls() *Error {
	return &Error{
		Code:    api.ResourceExhausted.Number(),
		Message: "too many calls are under way on this connection",
		Data:    api.ErrorData{Code: api.ResourceExhausted, Hint: "Wait for replies, or use another connection."},
	}
}

// notified acts on a notification. Those that are not ours are ignored: a call
// sent as a notification is not run, because nobody could learn how it went.
func (c *Channel) notified(m message) {
	if m.method != api.NotifyCancel {
		return
	}
	var p struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(m.params, &p) != nil {
		return
	}
	if r := c.Request(string(p.ID)); r != nil {
		r.cancel(ErrCanceled)
	}
}

// Request returns what is known about the call with this id, as written on the
// wire; nil when it has been answered.
func (c *Channel) Request(id string) *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

// refuse answers a request that is not dispatched.
func (c *Channel) refuse(id string, e *Error) {
	_ = c.w.Write(errorReply(id, e)) // a failed writer ends Recv, too
}

// Send queues a reply and forgets the calls it answers.
func (c *Channel) Send(line []byte) error {
	ids, line := replyIDs(line)
	c.mu.Lock()
	defer c.mu.Unlock()
	var then, sent []func()
	// Before the client can see the reply, because then the id is free again.
	for _, id := range ids {
		if r := c.calls[id]; r != nil {
			delete(c.calls, id)
			then, sent = append(then, r.then...), append(sent, r.finish()...)
			r.end()
		}
	}
	err := c.w.Write(line)
	if err == nil {
		for _, fn := range then {
			fn()
		}
	}
	c.w.afterwards(sent)
	if c.waiting && c.idleLocked() {
		c.wakeLocked()
	}
	return err
}

// end releases what the call holds.
func (r *Request) end() {
	r.FDs.Close()
	r.cancel(errReplied)
}

// Notify queues a notification and reports whether it will be sent: while much
// waits already it is dropped.
func (c *Channel) Notify(method string, params any) (bool, error) {
	line, err := notification(method, params)
	if err != nil {
		return false, err
	}
	return c.w.TryWrite(line), nil
}

// Tell is Notify for what a client waits for: it is dropped only with the connection.
func (c *Channel) Tell(method string, params any) error {
	line, err := notification(method, params)
	if err != nil {
		return err
	}
	return c.w.Write(line)
}

// Drain makes Recv take no further calls and return io.EOF when those under way
// have been answered.
func (c *Channel) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.wakeLocked()
}

func (c *Channel) isDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// Abort cancels every call and closes the connection at once.
func (c *Channel) Abort(why error) {
	c.mu.Lock()
	for _, r := range c.calls {
		r.cancel(why)
	}
	c.mu.Unlock()
	c.w.Abort(why)
}

// Close lets queued replies leave and then closes the connection. It does not
// wait: jrpc2 calls it holding its lock.
func (c *Channel) Close() error {
	c.w.Close()
	return nil
}

// Wait waits until the connection is closed, after Close, and releases what
// calls that were never dispatched hold. It returns why the connection was given
// up, if it was.
func (c *Channel) Wait() error {
	<-c.w.Done()
	c.r.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, r := range c.calls {
		delete(c.calls, id)
		c.w.afterwards(r.finish())
		r.end()
	}
	return c.w.Err()
}

// awaitReplies blocks after the last request until the calls under way have been
// answered, or until nobody is there to read the answers.
func (c *Channel) awaitReplies() error {
	rc, err := c.conn.SyscallConn()
	if err != nil {
		c.lose()
		return err
	}
	for {
		c.mu.Lock()
		if c.idleLocked() {
			c.mu.Unlock()
			return io.EOF
		}
		c.waiting = true
		_ = c.conn.SetReadDeadline(time.Time{})
		c.mu.Unlock()
		gone := false
		err := rc.Read(func(fd uintptr) bool {
			gone = hungUp(int(fd))
			return gone
		})
		if gone || (err != nil && !errors.Is(err, os.ErrDeadlineExceeded)) {
			c.lose()
			return io.EOF
		}
	}
}

// wakeLocked ends a read that waits.
func (c *Channel) wakeLocked() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }

// lose cancels the calls that make no sense without their client.
func (c *Channel) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.calls {
		if c.cfg.CancelOnLoss != nil && c.cfg.CancelOnLoss(r.method) {
			r.cancel(ErrConnectionLost)
		}
	}
}

// hungUp tells a client that is gone from one that only finished writing: both
// read as end of file, but poll(2) says POLLHUP only when both directions are
// shut (af_unix.c, unix_poll).
func hungUp(fd int) bool {
	now, err := sys.Ready(fd, 0)
	return err != nil || now&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}
