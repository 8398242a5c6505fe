package guestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// sendTimeout bounds a request that PID 1 does not read. Its queue holds some
	// hundred requests, so it is reached only when the sandbox is frozen, starved
	// or hostile.
	sendTimeout = 5 * time.Second

	// maxIgnored bounds the events about execs that this client did not start. A
	// hutchd that took over a running sandbox meets a few (at most two for each
	// of its predecessor's execs); a sandbox that goes on sending them only wants
	// to keep hutchd busy.
	maxIgnored = 16 << 10

	// maxAsks bounds the questions that wait for an answer: as many commands as PID 1 has, and a few.
	maxAsks = 8 << 10
)

// Why a channel is closed, as Err wraps it; else its other end was.
var (
	ErrClosed   = errors.New("closed by hutchd")
	ErrProtocol = errors.New("hutch-init broke the protocol")
)

// Client is hutchd's end of the channel to one sandbox's PID 1. Its methods may
// be called from several goroutines. Everything that arrives is hostile: see
// the package comment.
type Client struct {
	conn Conn
	send chan struct{} // a token: whoever holds it may write
	dead chan struct{} // closed when the channel is

	// mu guards what follows.
	mu      sync.Mutex
	err     error // why the channel is closed
	nextID  uint64
	execs   map[uint64]*Exec      // from before "exec" is sent until its last event
	asks    map[uint64]chan Event // who waits for an answer, by its number
	taken   uint64                // the last answer to OpMade
	listed  chan struct{}         // non-nil while Resume waits for the list of id listID
	listID  uint64
	adopted map[uint64]bool // execs of a hutchd before whose end was not on record
	acks    []uint64        // ends on record that PID 1 need not remember
	ignored int
	readers sync.WaitGroup

	refused func(Refused) // see OnRefused
	listens func()        // see OnListen

	emulates atomic.Bool // what setup has said
	drops    atomic.Bool // the same
	// What may be told about refused calls now, a token each.
	tokens float64
	filled time.Time
}

// NewClient takes ownership of conn, hutchd's end of the socketpair, and starts
// to read from it until Close or until the sandbox is gone.
func NewClient(conn *os.File) (*Client, error) {
	own, err := NewSocket(conn)
	if err != nil {
		return nil, err
	}
	return newClient(own, nil), nil
}

// NewClientOver is NewClient for a Conn.
func NewClientOver(conn Conn) *Client { return newClient(conn, nil) }

// newClient makes a client that knows the given execs of a hutchd before.
func newClient(conn Conn, known []*Exec) *Client {
	c := &Client{
		conn: conn,
		send: make(chan struct{}, 1),
		dead: make(chan struct{}),
		// Ids are never reused, not even by the next hutchd on this channel: they
		// count up from a time in nanoseconds, which no client outruns.
		nextID: uint64(time.Now().UnixNano()),
		execs:  map[uint64]*Exec{}, asks: map[uint64]chan Event{}, adopted: map[uint64]bool{},
	}
	for _, e := range known {
		e.c, c.execs[e.ID], c.adopted[e.ID] = c, e, true
	}
	c.readers.Add(1)
	go c.readLoop()
	return c
}

// OnRefused has f called with each system call that the sandbox is refused, from the
// goroutine that reads the channel: f must not wait. What came before is lost.
func (c *Client) OnRefused(f func(Refused)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = f
}

// OnListen has f called when somebody in the sandbox is about to listen, as OnRefused does.
func (c *Client) OnListen(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listens = f
}

// tell passes on what PID 1 says of system calls, and bounds how much work a hostile one makes; c.mu is held.
func (c *Client) tell(ev *Event) error {
	const slack = 2 // the clocks of both ends need not agree on where a second begins
	now := time.Now()
	if c.filled.IsZero() {
		c.tokens, c.filled = slack*RefusedBurst, now
	}
	c.tokens = min(slack*RefusedBurst, c.tokens+slack*RefusedRate*now.Sub(c.filled).Seconds())
	c.filled = now
	if c.tokens < 1 { // some are what piled up while there was no hutchd
		c.ignored++
		if c.ignored > maxIgnored {
			return errors.New("system calls are reported faster than hutch-init does")
		}
		return nil
	}
	c.tokens--
	refused, listens := c.refused, c.listens
	c.mu.Unlock()
	defer c.mu.Lock()
	switch {
	case ev.Ev == EvListen && listens != nil:
		listens()
	case ev.Ev == EvRefused && refused != nil:
		refused(*ev.Refused)
	}
	return nil
}

// NewID returns an id for an exec on this channel.
func (c *Client) NewID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextID++
	return c.nextID
}

// Close closes this end and waits for the reader; every waiting call fails. The
// sandbox goes on as long as hutch-launch holds its copy of the channel.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	c.readers.Wait()
	return nil
}

// Dead is closed when the channel is: PID 1 is gone, has broken the protocol,
// or Close was called. Err then says which.
func (c *Client) Dead() <-chan struct{} { return c.dead }

// Err is why the channel is closed; nil while it is open.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail closes the channel for reason err; later reasons are ignored.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	c.execs = map[uint64]*Exec{}
	close(c.dead)
	_ = c.conn.Close() // wakes the reader
}

// gone is the error of calls on a channel that is closed.
func (c *Client) gone(op string) error {
	return api.Errorf(api.Unavailable, "the sandbox's init is gone: %w", c.Err()).WithOp(op).
		WithHint("the sandbox has ended or was taken over; remove it and create another")
}

// Setup sends the exec seccomp filter, a file with an array of struct sock_filter, and waits until PID 1 is ready. It
// must be the first call, and is not repeated by a hutchd that takes a sandbox over. cgroups, which may be nil, is the
// mount that Request.Cgroup names folders of. Both files stay the caller's. landlock is the ABI of the Landlock domain
// that commands are to be in, 0 for none; guard, which may be nil, what they are not to make.
func (c *Client) Setup(ctx context.Context, filter, cgroups *os.File, hostname string, landlock int,
	guard *Guard) error {
	const op = "set up sandbox"
	fds := []*os.File{filter}
	if cgroups != nil {
		fds = append(fds, cgroups)
	}
	ev, err := c.ask(ctx, op, &Request{Op: OpSetup, Hostname: hostname, Cgroups: cgroups != nil, Landlock: landlock,
		Guard: guard}, fds...)
	c.emulates.Store(ev.IDs)
	c.drops.Store(ev.CapDrop)
	if err == nil && ev.Version != Version {
		err = api.Errorf(api.FailedPrecondition, "hutch-init speaks protocol %d, hutchd %d", ev.Version, Version).
			WithOp(op).WithHint("install hutchd and hutch-init of the same build")
	}
	return err
}

// Guard says what commands are not to make, in place of what Setup said. It must come before the first command.
func (c *Client) Guard(ctx context.Context, g *Guard) error {
	_, err := c.ask(ctx, "guard folders", &Request{Op: OpGuard, Exec: c.NewID(), Guard: g})
	return err
}

// DropsCaps reports whether PID 1 knows Request.CapDrop. That of an earlier build, which hutch-launch has until it
// ends, does not.
func (c *Client) DropsCaps() bool { return c.drops.Load() }

// EmulatesIDs reports whether PID 1 answers for ids that the sandbox does not have, as it was asked to (ArgIDs).
func (c *Client) EmulatesIDs() bool { return c.emulates.Load() }

// Stop stops every process of the sandbox but PID 1, by SIGSTOP. When it returns they have
// the signal, and none that one of them was forking has escaped it (kernel/fork.c,
// copy_process). GoOn undoes it.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.ask(ctx, "stop processes", &Request{Op: OpStop, Exec: c.NewID()})
	return err
}

// GoOn lets every process of the sandbox go on, by SIGCONT.
func (c *Client) GoOn(ctx context.Context) error {
	_, err := c.ask(ctx, "let processes go on", &Request{Op: OpGoOn, Exec: c.NewID()})
	return err
}

// Hold keeps PID 1 from moving folders until Release, and waits until none is being moved; at most for wait, after
// which it returns the folder that is. That of an earlier build does not know of it, and goes on.
func (c *Client) Hold(ctx context.Context, wait time.Duration) (moving string, err error) {
	ev, err := c.askNew(ctx, "hold moves of folders",
		&Request{Op: OpHold, Exec: c.NewID(), WaitMS: max(0, wait.Milliseconds())})
	return ev.Moving, err
}

// Release ends Hold.
func (c *Client) Release(ctx context.Context) error {
	_, err := c.askNew(ctx, "release moves of folders", &Request{Op: OpRelease, Exec: c.NewID()})
	return err
}

// Made returns the folders that have become repositories since it was called last, by this hutchd or another one, and
// whether there are more. What was returned once more may have been there before. PID 1 of an earlier build tells of
// them by itself (FileRepository).
func (c *Client) Made(ctx context.Context) (paths []string, more bool, err error) {
	req := &Request{Op: OpMade, Exec: c.NewID()}
	c.mu.Lock()
	if c.taken != 0 {
		req.Acks = []uint64{c.taken}
	}
	c.mu.Unlock()
	ev, err := c.askNew(ctx, "ask for new repositories", req)
	if err == nil {
		c.mu.Lock()
		c.taken = max(c.taken, req.Exec)
		c.mu.Unlock()
	}
	return ev.Made, ev.More, err
}

// unknownOp is the end of what PID 1 says of a request that it does not know.
const unknownOp = "unknown operation"

// askNew is ask for a request that PID 1 of an earlier build does not know, which is no error.
func (c *Client) askNew(ctx context.Context, op string, req *Request) (Event, error) {
	ev, err := c.ask(ctx, op, req)
	if err != nil && ev.Ev == EvFailed && strings.HasSuffix(ev.Message, unknownOp) {
		return Event{}, nil
	}
	return ev, err
}

// ask sends a request about the sandbox as a whole and waits for its answer, which has the request's number; that of
// setup has none.
func (c *Client) ask(ctx context.Context, op string, req *Request, fds ...*os.File) (Event, error) {
	ready := make(chan Event, 1)
	c.mu.Lock()
	if len(c.asks) >= maxAsks || c.asks[req.Exec] != nil {
		c.mu.Unlock()
		return Event{}, api.Errorf(api.FailedPrecondition, "%d requests to hutch-init are under way", maxAsks).
			WithOp(op).WithHint("try again")
	}
	c.asks[req.Exec] = ready
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.asks, req.Exec)
		c.mu.Unlock()
	}()
	if err := c.write(op, req, fds...); err != nil {
		return Event{}, err
	}
	ev, err := c.await(ctx, op, ready)
	if err == nil && ev.Ev == EvFailed {
		err = api.Errorf(api.Internal, "hutch-init refused: %s", ev.Message).WithOp(op)
	}
	return ev, err
}

// await waits for the answer to a request. One that came just before the end of
// the channel counts.
func (c *Client) await(ctx context.Context, op string, answer <-chan Event) (Event, error) {
	select {
	case ev := <-answer:
		return ev, nil
	case <-ctx.Done():
		return Event{}, fmt.Errorf("%s: %w", op, context.Cause(ctx))
	case <-c.dead:
	}
	select {
	case ev := <-answer:
		return ev, nil
	default:
		return Event{}, c.gone(op)
	}
}

// readLoop is the only reader of the channel.
func (c *Client) readLoop() {
	defer c.readers.Done()
	for {
		ev, err := c.receive()
		if err == nil {
			err = c.dispatch(ev)
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrProtocol, err)
			}
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// dispatch hands ev to whom it concerns; it never blocks.
func (c *Client) dispatch(ev *Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ev.Ev == EvRefused || ev.Ev == EvListen {
		return c.tell(ev)
	}
	if ready := c.asks[ev.Exec]; ready != nil && (ev.Ev == EvReady || ev.Ev == EvFailed) {
		select {
		case ready <- *ev:
			return nil
		default: // a second answer
		}
	}
	// A hutchd that was killed while it took over has left the rest of its own list.
	if ev.Ev == EvListed && c.listed != nil && ev.Exec == c.listID {
		c.settleListed()
		return nil
	}
	e := c.execs[ev.Exec]
	if ev.Ev == EvListed {
		e = nil // it is about no exec
	}
	if e == nil && !c.adopted[ev.Exec] && (ev.Ev == EvExited || ev.Ev == EvFailed) {
		c.acks = append(c.acks, ev.Exec) // of a hutchd before, and on record
	}
	if e == nil || !e.accept(ev) {
		c.ignored++
		if c.ignored > maxIgnored {
			return fmt.Errorf("%d events about execs that do not run", c.ignored)
		}
		return nil
	}
	if ev.Ev != EvStarted && ev.Ev != EvPending {
		delete(c.execs, ev.Exec)
	}
	return nil
}

// write sends req with fds, which stay the caller's.
func (c *Client) write(op string, req *Request, fds ...*os.File) error {
	data, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("%s: encode request: %w", op, err)
	}
	if len(data) > MaxPacket {
		large, err := largeRequest(data)
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		defer large.Close()
		data = []byte(`{"op":"` + OpLarge + `"}`)
		fds = append([]*os.File{large}, fds...)
	}
	expired := time.NewTimer(sendTimeout)
	defer expired.Stop()
	deadline := time.Now().Add(sendTimeout)
	select {
	case c.send <- struct{}{}:
		defer func() { <-c.send }()
	case <-c.dead:
		return c.gone(op)
	case <-expired.C:
		return notReading(op)
	}
	err = sys.SendFDs(func() error { return c.conn.Send(deadline, data, fds) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return notReading(op)
	case c.Err() != nil || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET):
		c.fail(fmt.Errorf("send: %w", err))
		return c.gone(op)
	case errors.Is(err, unix.ETOOMANYREFS):
		return api.Errorf(api.ResourceExhausted, "send to hutch-init: %w", err).WithOp(op).
			WithHint("processes of this user have too many files under way between them; try again")
	}
	return fmt.Errorf("%s: send to hutch-init: %w", op, err)
}

func notReading(op string) error {
	return api.Errorf(api.Unavailable, "the sandbox's init has not read its requests for %s", sendTimeout).
		WithOp(op).WithHint("the sandbox may be paused or out of CPU time; try again, or kill it")
}

// largeRequest puts a request into a sealed memfd.
func largeRequest(data []byte) (*os.File, error) {
	if len(data) > MaxLarge {
		return nil, &StartError{Reason: ReasonTooBig, Errno: int(unix.E2BIG),
			Message: fmt.Sprintf("arguments and environment make a request of %d bytes, at most %d fit", len(data),
				MaxLarge)}
	}
	f, err := sys.SealedMemfd("hutch-request", bytes.NewReader(data), sys.MemfdData)
	if err != nil {
		return nil, err
	}
	return f, nil
}
