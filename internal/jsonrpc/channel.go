package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// MaxInFlight bounds the calls under way on one connection.
const MaxInFlight = 256

// Why a call's context was cancelled (context.Cause).
var (
	ErrCanceled       = errors.New("canceled by the client")
	ErrConnectionLost = errors.New("the client's connection was lost")
	errReplied        = errors.New("the call has been answered")
)

// Request is a call under way.
type Request struct {
	ID     json.RawMessage // as written on the wire
	Method string
	Params json.RawMessage // valid JSON: an object or, for the handler to refuse, a list or null; nil when absent
	// Ctx ends when the client cancels the call, and for calls that Config's
	// CancelOnLoss names when the connection is lost.
	Ctx context.Context
	// FDs came with the call; the Channel closes what is left of them after the
	// reply.
	FDs *FDs

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

// A Handler answers a call, with a result in JSON or an error. It is called from many goroutines at once.
type Handler func(r *Request) (json.RawMessage, *Error)

// ChannelConfig says how a Channel treats calls.
type ChannelConfig struct {
	// CancelOnLoss reports whether a call of method ends with its connection.
	CancelOnLoss func(method string) bool
	// LongLines is shared by channels.
	LongLines LongLines
}

// Channel is the server's end of a connection. It reads calls with their fds, runs each in a goroutine of its own, and
// sends the replies, none of which holds up another. It acts on the notification rpc.cancel, and answers what is no
// request, or too much, before that costs anything. A client that has finished writing still gets every reply.
type Channel struct {
	cfg  ChannelConfig
	base context.Context
	conn *net.UnixConn
	r    *Reader
	w    *Writer

	turn chan struct{} // holds a token while somebody feeds

	handle  Handler
	running sync.WaitGroup // handlers

	mu       sync.Mutex          // before the Writer's
	calls    map[string]*Request // by id as written on the wire
	fed      int                 // KeepOpen's that are not released
	draining bool                // take no further calls
	waiting  bool                // read waits for idleLocked
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

// Serve answers calls by h until the client is gone or, after Drain, those under way are answered. It returns when
// every handler has ended, with the error of reading, if there was one. It is called once; the connection may be open
// for a moment longer, until queued replies have left: see Wait.
func (c *Channel) Serve(h Handler) error {
	c.handle = h
	err := c.read()
	c.w.Close()
	c.running.Wait()
	return err
}

// read starts the calls that come.
func (c *Channel) read() error {
	for {
		line, files, err := c.r.ReadLine()
		switch {
		case err == nil, errors.Is(err, ErrTooManyFDs), errors.Is(err, ErrLostFDs):
			c.admit(line, files, err)
		case errors.Is(err, ErrLineTooLong):
			c.refuse(c.free(HeadID(line)),
				protocolError(CodeInvalidRequest, "Send large inputs as an fd, or in pieces.",
					"the request line is longer than %d bytes", c.r.max.Load()))
		case errors.Is(err, ErrBusy):
			c.refuse(c.free(HeadID(line)), &Error{
				Code: api.ResourceExhausted.Number(), Message: "too many clients send long requests at once",
				Data: api.ErrorData{Code: api.ResourceExhausted,
					Hint: "Try again, or send large inputs as an fd, or in pieces."},
			})
		case errors.Is(err, io.EOF), c.isDraining() && errors.Is(err, os.ErrDeadlineExceeded):
			return c.awaitReplies()
		default:
			c.lose()
			return err
		}
	}
}

// admit starts what a line asks for, or answers it. It owns files; fdErr is why there are none.
func (c *Channel) admit(line []byte, files []*os.File, fdErr error) {
	msgs, batch, perr := parse(line)
	switch {
	case perr != nil:
		closeFiles(files)
		c.refuse("", perr)
		return
	case batch:
		c.admitBatch(msgs, files, fdErr)
		return
	}
	m := msgs[0]
	if m.err == nil {
		m.err = refusedFDs(fdErr)
	}
	switch {
	case m.err != nil:
		closeFiles(files)
		c.refuse(m.id, m.err)
	case m.id == "":
		closeFiles(files)
		c.notified(m)
	default:
		r, err := c.register(m, files)
		if err != nil {
			c.refuse(m.id, err)
			return
		}
		c.running.Go(func() { c.reply(c.run(r), r) })
	}
}

// run is the reply to a call, when its handler has ended.
func (c *Channel) run(r *Request) []byte {
	result, err := c.handle(r)
	if err != nil {
		return errorReply(string(r.ID), err)
	}
	return resultReply(string(r.ID), result)
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
func (c *Channel) admitBatch(msgs []message, files []*os.File, fdErr error) {
	if len(files) > 0 || fdErr != nil {
		closeFiles(files)
		c.refuse("", protocolError(CodeInvalidRequest, "Send a request with fds on a line of its own.",
			"fds came with a batch"))
		return
	}
	if err := c.checkBatch(msgs); err != nil {
		c.refuse("", err)
		return
	}
	var replies [][]byte // in the order of what they answer
	var calls []*Request
	var under sync.WaitGroup
	for _, m := range msgs {
		switch {
		case m.err != nil:
			replies = append(replies, errorReply(m.id, m.err))
		case m.id == "":
			c.notified(m)
		default:
			r, _ := c.register(m, nil) // checkBatch made sure
			calls, replies = append(calls, r), append(replies, nil)
		}
	}
	if len(replies) == 0 {
		return
	}
	next := 0
	for i := range replies {
		if replies[i] == nil {
			r := calls[next]
			next++
			under.Go(func() { replies[i] = c.run(r) })
		}
	}
	c.running.Go(func() {
		under.Wait()
		c.reply(slices.Concat([]byte("["), bytes.Join(replies, []byte(",")), []byte("]")), calls...)
	})
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
func (c *Channel) register(m message, files []*os.File) (*Request, *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[m.id] != nil {
		closeFiles(files)
		return nil, protocolError(CodeInvalidRequest, hintIDs, "id %s is already in use", clip([]byte(m.id)))
	}
	if len(c.calls) >= MaxInFlight {
		closeFiles(files)
		return nil, tooManyCalls()
	}
	ctx, cancel := context.WithCancelCause(c.base)
	r := &Request{
		ID: json.RawMessage(m.id), Method: m.method, Params: bytes.Clone(m.params), // the line is the Reader's
		Ctx: ctx, FDs: NewFDs(files), cancel: cancel,
	}
	c.calls[m.id] = r
	return r, nil
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
	c.mu.Lock()
	r := c.calls[string(p.ID)]
	c.mu.Unlock()
	if r != nil {
		r.cancel(ErrCanceled)
	}
}

// refuse answers a request that is not dispatched.
func (c *Channel) refuse(id string, e *Error) {
	_ = c.w.Write(errorReply(id, e)) // a failed writer ends read, too
}

// reply queues the line that answers calls, which it forgets.
func (c *Channel) reply(line []byte, calls ...*Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var then, sent []func()
	// Before the client can see the reply, because then the ids are free again.
	for _, r := range calls {
		delete(c.calls, string(r.ID))
		then, sent = append(then, r.then...), append(sent, r.finish()...)
		r.end()
	}
	if c.w.Write(line) == nil {
		for _, fn := range then {
			fn()
		}
	}
	c.w.afterwards(sent)
	if c.waiting && c.idleLocked() {
		c.wakeLocked()
	}
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

// Drain makes Serve take no further calls and end when those under way have been answered.
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

// Wait waits until the connection is closed, after Serve. It returns why the connection was given up, if it was.
func (c *Channel) Wait() error {
	<-c.w.Done()
	c.r.Close()
	return c.w.Err()
}

// Close closes a channel that is not served.
func (c *Channel) Close() {
	c.w.Close()
	_ = c.Wait()
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
			return nil
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
			return nil
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
		if c.cfg.CancelOnLoss != nil && c.cfg.CancelOnLoss(r.Method) {
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
