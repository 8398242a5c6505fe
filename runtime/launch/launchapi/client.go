package launchapi

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Client is hutchd's side of the channel. Its methods may be called from any
// goroutine. Errors are *api.Error with hutch-launch's code, or Unavailable when
// hutch-launch is gone.
type Client struct {
	conn   *packet.Conn
	exited func(Exited)
	done   chan struct{} // closed when the reader has ended
	events sync.WaitGroup

	mu      sync.Mutex
	seq     uint64
	waiters map[uint64]chan<- answer // nil when the channel is broken
	queue   []Exited                 // not delivered yet
	held    *Held                    // of Adopt, while it waits
	heldErr error
	wake    chan struct{} // of deliver; capacity 1
}

// answer is a reply to one request, with its fds.
type answer struct {
	reply Reply
	files []*os.File
	err   error // the channel broke
}

// Created is a sandbox whose PID 1 waits for setup. All files are the caller's.
type Created struct {
	PID int // in hutchd's pid namespace
	// Guest is hutchd's end of the guest channel; hutch-launch holds the same.
	Guest *os.File
	// Filter is the sealed seccomp program for commands, its offset 0.
	Filter *os.File
	// Pidfd of PID 1.
	Pidfd *os.File
	// Ptmx of the sandbox's devpts, nil without Create.PtsDir. It is an O_PATH fd:
	// opening /proc/self/fd/N makes a new pty each time.
	Ptmx *os.File
	// Phases are how long the steps took, in milliseconds.
	Phases map[string]float64
}

// Close closes all files of c.
func (c *Created) Close() error {
	err := errors.Join(c.Guest.Close(), c.Filter.Close(), c.Pidfd.Close())
	if c.Ptmx != nil {
		err = errors.Join(err, c.Ptmx.Close())
	}
	return err
}

// NewClient takes ownership of ch, the channel that hutchd was started with.
//
// exited, which may be nil, is called once for each sandbox whose PID 1 has
// ended, in that order, from one goroutine of the client's own: it may block and
// call the client. It can come before Create has returned to its caller, so the
// caller must know the id before it calls Create.
func NewClient(ch *os.File, exited func(Exited)) (*Client, error) {
	conn, err := packet.New(ch)
	if err != nil {
		return nil, err
	}
	c := &Client{
		conn: conn, exited: exited, done: make(chan struct{}),
		waiters: map[uint64]chan<- answer{}, wake: make(chan struct{}, 1),
	}
	go c.read()
	c.events.Go(c.deliver)
	return c, nil
}

// Done is closed when hutch-launch is gone or the client was closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the client and waits for its goroutines, so it must not be called
// by the exited callback. Calls under way fail with Unavailable. It does not end
// hutch-launch, which watches hutchd itself.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	c.events.Wait()
	return err
}

// Create makes a sandbox. netns is its network namespace and stays the caller's.
// When ctx ends first, Create destroys what there is of the sandbox and then
// returns Canceled or DeadlineExceeded: whatever it returns but success, nothing
// of the sandbox is left but the folders, which are the caller's.
func (c *Client) Create(ctx context.Context, id string, params Create, netns *os.File) (*Created, error) {
	if netns == nil {
		return nil, api.Errorf(api.InvalidArgument, "create sandbox %s: no network namespace", id)
	}
	wait, seq, err := c.send(Request{Op: OpCreate, ID: id, Create: &params}, netns)
	if err != nil {
		return nil, err
	}
	select {
	case a := <-wait:
		r, err := created(id, a)
		if err != nil && a.reply.Create != nil {
			// There is a sandbox that nobody could reach.
			err = errors.Join(err, c.Destroy(context.WithoutCancel(ctx), id))
		}
		return r, err
	case <-ctx.Done():
	}
	// hutch-launch cannot stop a create half way; a destroy that is sent now is
	// done right after it. The answer may have crossed with ctx.
	derr := c.Destroy(context.WithoutCancel(ctx), id)
	c.abandon(seq, wait)
	err = canceled(ctx, "create sandbox "+id)
	if derr != nil {
		err = errors.Join(err, derr)
	}
	return nil, err
}

func created(id string, a answer) (*Created, error) {
	if err := a.failure(); err != nil {
		packet.CloseAll(a.files)
		return nil, err
	}
	if a.reply.Create == nil || len(a.files) < 3 || len(a.files) > 4 {
		packet.CloseAll(a.files)
		return nil, api.Errorf(api.Internal, "create sandbox %s: hutch-launch answered without result or with %d fds",
			id, len(a.files))
	}
	r := &Created{
		PID: a.reply.Create.PID, Phases: a.reply.Create.Phases,
		Guest: a.files[0], Filter: a.files[1], Pidfd: a.files[2],
	}
	if len(a.files) == 4 {
		r.Ptmx = a.files[3]
	}
	return r, nil
}

// Take makes a sandbox that was claimed ahead one that outlives this hutchd.
func (c *Client) Take(id string) error { return c.note(Request{Op: OpTake, ID: id}) }

// Claim gives a generic sandbox, made by Create, its root, once. When it fails, or ctx
// ends first, the sandbox is destroyed, as after a failed Create.
func (c *Client) Claim(ctx context.Context, id string, params Claim) error {
	a, err := c.call(ctx, Request{Op: OpClaim, ID: id, Claim: &params})
	packet.CloseAll(a.files)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, c.Destroy(context.WithoutCancel(ctx), id))
	}
	return err
}

// Kill ends every process of a sandbox and returns when they are gone. A
// sandbox that has ended already is no error.
func (c *Client) Kill(ctx context.Context, id string) error { return c.simple(ctx, OpKill, id) }

// Destroy kills a sandbox and removes its mounts and libcontainer's state. It
// waits for a create of the same id that is under way. When ctx ends first, the
// destroy goes on. A sandbox that is not there is no error.
func (c *Client) Destroy(ctx context.Context, id string) error { return c.simple(ctx, OpDestroy, id) }

// call sends a request and waits for its answer.
func (c *Client) call(ctx context.Context, req Request, files ...*os.File) (answer, error) {
	wait, seq, err := c.send(req, files...)
	if err != nil {
		return answer{}, err
	}
	select {
	case a := <-wait:
		if err := a.failure(); err != nil {
			packet.CloseAll(a.files)
			return answer{}, err
		}
		return a, nil
	case <-ctx.Done():
		c.abandon(seq, wait)
		return answer{}, canceled(ctx, req.Op+" sandbox "+req.ID)
	}
}

func (c *Client) simple(ctx context.Context, op, id string) error {
	a, err := c.call(ctx, Request{Op: op, ID: id})
	packet.CloseAll(a.files)
	return err
}

// note sends a request that has no answer. Once it has returned, the death of hutchd
// cannot undo it.
func (c *Client) note(req Request, files ...*os.File) error {
	if err := c.conn.Send(req, files...); err != nil {
		return c.sendError(&req, err)
	}
	return nil
}

// send sends a request and returns where its answer will come.
func (c *Client) send(req Request, files ...*os.File) (<-chan answer, uint64, error) {
	wait := make(chan answer, 1)
	c.mu.Lock()
	if c.waiters == nil {
		c.mu.Unlock()
		return nil, 0, gone(errors.New("its channel is closed"))
	}
	c.seq++
	req.Seq = c.seq
	c.waiters[req.Seq] = wait
	c.mu.Unlock()
	if err := c.conn.Send(req, files...); err != nil {
		c.take(req.Seq)
		return nil, 0, c.sendError(&req, err)
	}
	return wait, req.Seq, nil
}

func (c *Client) sendError(req *Request, err error) error {
	// The reader may not have come to the end of the channel yet.
	if c.broken() || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
		return gone(err)
	}
	if errors.Is(err, unix.ETOOMANYREFS) {
		return api.Errorf(api.ResourceExhausted, "%s sandbox %s: %w", req.Op, req.ID, err).
			WithHint("processes of this user have too many files under way between them; try again")
	}
	return api.Errorf(api.Internal, "%s sandbox %s: %w", req.Op, req.ID, err)
}

// broken reports whether the reader has seen the end of the channel.
func (c *Client) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiters == nil
}

// take removes and returns the waiter of seq, nil when there is none.
func (c *Client) take(seq uint64) chan<- answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiters[seq]
	delete(c.waiters, seq)
	return w
}

// abandon gives up waiting for seq. An answer that has come, or is being
// delivered, is closed.
func (c *Client) abandon(seq uint64, wait <-chan answer) {
	if c.take(seq) == nil {
		packet.CloseAll((<-wait).files)
	}
}

// read hands replies to their waiters until the channel ends.
func (c *Client) read() {
	var err error
	for {
		var r Reply
		var files []*os.File
		files, err = c.conn.Recv(&r)
		lost := errors.Is(err, packet.ErrFDsLost)
		if err != nil && !lost {
			break
		}
		if r.Exited != nil {
			packet.CloseAll(files)
			c.enqueue(*r.Exited)
			continue
		}
		if r.Adopted != nil {
			c.adopted(*r.Adopted, files, lost)
			continue
		}
		w := c.take(r.Seq)
		if w == nil { // abandoned
			packet.CloseAll(files)
			continue
		}
		a := answer{reply: r, files: files}
		if lost {
			a.reply.Error = FromError(api.Errorf(api.ResourceExhausted, "%w", err).
				WithHint("close some connections, or raise the daemon's limit of open files (ulimit -n)"))
		}
		w <- a
	}
	_ = c.conn.Close()
	c.mu.Lock()
	left := c.waiters
	c.waiters = nil
	c.mu.Unlock()
	for _, w := range left {
		w <- answer{err: err}
	}
	close(c.done)
}

// enqueue never blocks, so that a callback that waits for an answer of the same
// channel gets it.
func (c *Client) enqueue(e Exited) {
	c.mu.Lock()
	c.queue = append(c.queue, e)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// deliver calls the callback for queued events until the channel ends and the
// queue is empty.
func (c *Client) deliver() {
	for open := true; open; {
		select {
		case <-c.wake:
		case <-c.done:
			open = false
		}
		c.mu.Lock()
		events := c.queue
		c.queue = nil
		c.mu.Unlock()
		if c.exited == nil {
			continue
		}
		for _, e := range events {
			c.exited(e)
		}
	}
}

// failure is why a request failed, nil when it did not.
func (a answer) failure() error {
	switch {
	case a.err != nil:
		return gone(a.err)
	case a.reply.Error != nil:
		return a.reply.Error.API()
	}
	return nil
}

func gone(err error) error {
	return api.Errorf(api.Unavailable, "hutch-launch is gone: %w", err).
		WithHint("its sandboxes have ended with it; the daemon restarts when it is next used")
}

func canceled(ctx context.Context, op string) error {
	code := api.Canceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = api.DeadlineExceeded
	}
	return api.Errorf(code, "%w", context.Cause(ctx)).WithOp(op)
}
