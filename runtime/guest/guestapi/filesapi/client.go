package filesapi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// silence is how long a worker with calls under way may say nothing until it is
// asked whether it is there, and again until it is given up: it was stopped, or
// gets no CPU time. It is also how long it may leave a request unread.
const silence = 5 * time.Second

// cancelWait is how long a cancelled call waits for the worker.
const cancelWait = 2 * time.Second

// Client is hutchd's end of the channel to one worker. Its methods may be called
// from several goroutines. Everything that arrives is hostile.
type Client struct {
	conn  *os.File
	send  chan struct{} // a token: whoever holds it may write
	slots chan struct{} // a token for each call that the worker has not ended
	dead  chan struct{} // closed when the channel is

	// mu guards what follows.
	mu    sync.Mutex
	err   error // why the channel is closed
	next  uint64
	calls map[uint64]*call // until their last packet
	pings int              // that were not answered
	heard time.Time        // when the worker said something, or had nothing to say
	watch *time.Timer      // runs while there are calls
}

// call is one call under way.
type call struct {
	max  int // bytes of payload that may come
	got  int // bytes that came
	data []byte
	gone bool // nobody waits any more
	end  chan *Reply
}

// NewClient takes ownership of conn, hutchd's end of the socketpair, which must
// be non-blocking, and reads from it until Close or until the worker is gone.
func NewClient(conn *os.File) *Client {
	c := &Client{
		conn: conn, send: make(chan struct{}, 1), slots: make(chan struct{}, MaxCalls),
		dead: make(chan struct{}), calls: map[uint64]*call{},
	}
	go c.readLoop() // ends with conn
	return c
}

// Close closes the channel, upon which the worker ends; calls under way fail.
func (c *Client) Close() error {
	c.fail(errors.New("closed by hutchd"))
	return nil
}

// Dead is closed when the channel is.
func (c *Client) Dead() <-chan struct{} { return c.dead }

// Call sends a request with its payload and fds, which stay the caller's, and
// waits for its end. A reply with more than limit bytes of payload breaks the
// protocol. What failed inside is an *Error. When ctx ends, the call is
// cancelled, and the worker undoes what it began.
func (c *Client) Call(ctx context.Context, req Request, payload []byte, limit int, fds ...*os.File) (*Reply, []byte,
	error) {
	select {
	case c.slots <- struct{}{}: // given back by the call's last packet
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	case <-c.dead:
		return nil, nil, c.gone()
	}
	w := &call{max: limit, end: make(chan *Reply, 1)}
	id, err := c.register(w)
	if err != nil {
		return nil, nil, err
	}
	req.ID = id
	if err := c.request(req, payload, fds); err != nil {
		return nil, nil, err
	}
	select {
	case r := <-w.end:
		return result(r, w)
	case <-c.dead:
		select { // the last packet may have come just before
		case r := <-w.end:
			return result(r, w)
		default:
			return nil, nil, c.gone()
		}
	case <-ctx.Done():
	}
	return nil, nil, c.cancel(ctx, id, w)
}

// cancel ends a call early. It waits until the worker has, because the caller will
// close its end of a pipe then: to a worker that did not know yet, that would be
// the end of what it writes.
func (c *Client) cancel(ctx context.Context, id uint64, w *call) error {
	c.mu.Lock()
	w.gone, w.data = true, nil
	c.mu.Unlock()
	if err := c.write(Request{Op: OpCancel, ID: id}, nil, nil); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	late := time.NewTimer(cancelWait)
	defer late.Stop()
	select {
	case <-w.end:
	case <-c.dead:
	case <-late.C: // what it does for so long has no pipe
	}
	return context.Cause(ctx)
}

func result(r *Reply, w *call) (*Reply, []byte, error) {
	if r.Errno != 0 {
		return nil, nil, &Error{Errno: unix.Errno(r.Errno), Path: r.Path, Detail: r.Detail}
	}
	return r, w.data, nil
}

func (c *Client) register(w *call) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.goneLocked()
	}
	c.next++
	if len(c.calls) == 0 {
		c.heard = time.Now()
		c.watch = time.AfterFunc(silence, c.check)
	}
	c.calls[c.next] = w
	return c.next, nil
}

// check is called while there are calls: it asks a silent worker whether it is
// there, and gives up one that did not answer.
func (c *Client) check() {
	c.mu.Lock()
	quiet, busy := time.Since(c.heard), len(c.calls) > 0 && c.err == nil
	if busy {
		c.watch = time.AfterFunc(silence, c.check)
	}
	// A worker that has just answered is not asked at the next check, and twice the time
	// may be over at the one behind it: only who was asked is given up.
	asked := c.pings > 0
	if busy && quiet >= silence {
		c.pings++
	}
	c.mu.Unlock()
	switch {
	case !busy:
	case quiet >= 2*silence && asked:
		c.fail(fmt.Errorf("it has said nothing for %v", quiet.Round(time.Second)))
	case quiet >= silence:
		_ = c.write(Request{Op: OpPing}, nil, nil) // a failure has closed the channel
	}
}

// fail closes the channel for reason err; later reasons are ignored.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.calls = map[uint64]*call{}
	if c.watch != nil {
		c.watch.Stop()
	}
	close(c.dead)
	_ = c.conn.Close() // wakes the reader
}

func (c *Client) gone() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.goneLocked()
}

func (c *Client) goneLocked() error {
	return api.Errorf(api.Unavailable, "the sandbox's files worker is gone: %w", c.err).
		WithHint("call again: another one is started; the sandbox may be out of processes (limits.pids) or memory, or its own processes ended it")
}

// readLoop is the only reader of the channel.
func (c *Client) readLoop() {
	// read(2) has no room for control messages, so fds that the sandbox attaches
	// are closed by the kernel.
	buf := make([]byte, MaxPacket+1)
	for {
		n, err := c.conn.Read(buf)
		if err != nil {
			c.fail(fmt.Errorf("receive: %w", err))
			return
		}
		r, payload, err := parseReply(buf[:n])
		if err == nil {
			err = c.dispatch(r, payload)
		}
		if err != nil {
			c.fail(fmt.Errorf("it broke the protocol: %w", err))
			return
		}
	}
}

// dispatch hands a packet to its call; it never blocks.
func (c *Client) dispatch(r *Reply, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if r.ID == 0 {
		if c.pings--; c.pings < 0 {
			return errors.New("an answer to no ping")
		}
		return nil
	}
	w := c.calls[r.ID]
	if w == nil {
		return fmt.Errorf("a reply to call %d, which is not under way", r.ID)
	}
	// Also of a call that nobody waits for: it must end some time.
	if w.got += len(payload); w.got > w.max || r.More && len(payload) == 0 {
		return fmt.Errorf("a reply of more than %d bytes, or with empty pieces", w.max)
	}
	if !w.gone {
		w.data = append(w.data, payload...)
	}
	if r.More {
		return nil
	}
	delete(c.calls, r.ID)
	if len(c.calls) == 0 {
		c.watch.Stop()
	}
	<-c.slots
	w.end <- r
	return nil
}

// request sends a request and all of its payload.
func (c *Client) request(req Request, payload []byte, fds []*os.File) error {
	for {
		first, rest := Chunk(payload)
		req.More = len(rest) > 0
		if err := c.write(req, first, fds); err != nil || len(rest) == 0 {
			return err
		}
		req, payload, fds = Request{ID: req.ID, Op: OpData}, rest, nil
	}
}

// write sends one packet. After any failure the channel is closed: the worker
// would wait for the rest.
func (c *Client) write(req Request, payload []byte, fds []*os.File) error {
	packet, err := Encode(&req, payload)
	if err == nil {
		err = c.writePacket(packet, fds)
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it has not read its requests for %v", silence)
		}
		c.fail(err)
		return c.gone()
	}
	return nil
}

func (c *Client) writePacket(packet []byte, fds []*os.File) error {
	late := time.NewTimer(silence)
	defer late.Stop()
	select {
	case c.send <- struct{}{}:
		defer func() { <-c.send }()
	case <-c.dead:
		return os.ErrClosed
	case <-late.C:
		return os.ErrDeadlineExceeded
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(silence)); err != nil {
		return err
	}
	if len(fds) == 0 {
		_, err := c.conn.Write(packet)
		return err
	}
	oob, err := rights(fds)
	if err != nil {
		return err
	}
	rc, err := c.conn.SyscallConn()
	if err != nil {
		return err
	}
	return sys.SendFDs(func() error {
		var werr error
		err := rc.Write(func(fd uintptr) bool {
			werr = unix.Sendmsg(int(fd), packet, oob, nil, unix.MSG_NOSIGNAL)
			return werr != unix.EAGAIN && werr != unix.EINTR
		})
		if err != nil {
			return err
		}
		return werr
	})
}

// rights avoids File.Fd, which would switch a description that is shared with the
// caller to blocking.
func rights(fds []*os.File) ([]byte, error) {
	raw := make([]int, 0, len(fds))
	for _, f := range fds {
		rc, err := f.SyscallConn()
		if err == nil {
			err = rc.Control(func(fd uintptr) { raw = append(raw, int(fd)) })
		}
		if err != nil {
			return nil, err
		}
	}
	return unix.UnixRights(raw...), nil
}
