// Package client talks to hutchd over its JSON-RPC socket.
//
// There are four ways to a Client: Connect is what the hutch command does (the
// user's shared daemon, started when none runs), Dial only connects, Start runs
// a private daemon that ends with the Client, and New takes a connection.
//
// Errors that hutchd sent are *api.Error: errors.As gives code, hint and the
// field at fault, and errors.Is(err, &api.Error{Code: api.NotFound}) compares
// codes.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/terse"
	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	// maxReply bounds a line from the daemon in bytes: two streams of at most 16
	// MiB each, of which JSON makes up to six times as much (\u0001).
	maxReply = 256 << 20
	// cancelWait is how long a cancelled call waits for its answer, which says
	// that the daemon has cleaned up.
	cancelWait = 10 * time.Second
)

// Client is a connection to hutchd. It is safe for concurrent use; calls do not
// wait for each other.
type Client struct {
	conn   *net.UnixConn
	daemon *daemon // Start's; nil otherwise

	// send is held (a token in it) while a request is written: requests must not
	// mix, and a caller may give up waiting for it.
	send chan struct{}

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call // nil once the connection is lost
	lost  error            // why
	peer  *Peer            // who answers; nil before anybody has
	// attached are the attachments that have not ended, by id.
	attached map[string]*Attachment
	events   map[string]*Events

	read chan struct{} // closed when the reading goroutine has ended
}

// New returns a client on a connected Unix stream socket, which it takes over.
func New(conn *net.UnixConn) *Client {
	c := &Client{
		conn: conn, send: make(chan struct{}, 1),
		calls: make(map[uint64]*call), attached: make(map[string]*Attachment), events: make(map[string]*Events),
		read: make(chan struct{}),
	}
	go c.readLoop()
	return c
}

// Close closes the connection; calls under way fail, and the daemon cancels
// those that run something. The private daemon of Start ends: Close returns when
// it has removed its sandboxes.
func (c *Client) Close() error {
	c.fail(errClosed)
	<-c.read
	if c.daemon != nil {
		return c.daemon.wait()
	}
	return nil
}

var errClosed = errors.New("the client is closed")

// Done is closed when the connection is gone, for callers that hold a Client
// for long.
func (c *Client) Done() <-chan struct{} { return c.read }

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct {
	files    []*os.File
	progress func(api.Progress)
	replied  func(result json.RawMessage) error
	sent     func()
}

// WithFDs lets files ride on the request, whose params must say how many there
// are ("fds") and refer to them by index. They stay the caller's.
func WithFDs(files ...*os.File) CallOption {
	return func(o *callOptions) { o.files = files }
}

// WithProgress calls fn for news about the call, on the goroutine of Call, before
// Call returns. The params must ask for it ("progress": true).
func WithProgress(fn func(api.Progress)) CallOption {
	return func(o *callOptions) { o.progress = fn }
}

// WithSent calls fn on the goroutine of Call when the request has been written, while the daemon is already at work on
// it.
func WithSent(fn func()) CallOption {
	return func(o *callOptions) { o.sent = fn }
}

// withReply calls fn with a result on the goroutine that reads, before any line that
// follows the reply is looked at. An error of fn's ends the connection.
func withReply(fn func(result json.RawMessage) error) CallOption {
	return func(o *callOptions) { o.replied = fn }
}

// Call calls method and decodes its answer into result, a pointer or nil. params
// are a struct or a map; nil means none.
//
// When ctx ends first, the daemon is told to cancel the call, and Call waits for
// its answer for a while, so that normally nothing is left when it returns ctx's
// error.
func (c *Client) Call(ctx context.Context, method string, params, result any, opts ...CallOption) error {
	var o callOptions
	for _, opt := range opts {
		opt(&o)
	}
	if params == nil {
		params = api.Empty{}
	}
	raw, err := terse.Marshal(params)
	if err != nil {
		return api.Errorf(api.InvalidArgument, "encode params: %w", err).WithOp(method)
	}
	id, w, err := c.register(o.replied)
	if err != nil {
		return c.unreachable(method, unsent{err})
	}
	defer c.forget(id)
	line := requestLine(&id, method, raw)
	if len(line) > jsonrpc.MaxLine {
		return api.Errorf(api.InvalidArgument, "the request has %d bytes, at most %d are allowed", len(line),
			jsonrpc.MaxLine).
			WithOp(method).WithHint("Pass large inputs as an fd, or in pieces.")
	}
	if sent, err := c.write(ctx, line, o.files); err != nil {
		err = c.lastWords(err)
		if !sent {
			err = unsent{err}
		}
		return c.unreachable(method, err)
	}
	if o.sent != nil {
		o.sent()
	}
	reply, err := c.await(ctx, id, w, o.progress)
	if err != nil {
		return c.unreachable(method, err)
	}
	if reply.Error != nil {
		return fromWire(reply.Error)
	}
	if result == nil {
		return nil
	}
	if err := terse.Unmarshal(reply.Result, result); err != nil {
		return api.Errorf(api.Internal, "decode the answer: %w", err).WithOp(method).
			WithHint("The daemon may be of another build: compare `hutch version` and system.info.")
	}
	return nil
}

// await returns the call's reply and hands out its news meanwhile.
func (c *Client) await(ctx context.Context, id uint64, w *call, progress func(api.Progress)) (*reply, error) {
	done := ctx.Done()
	var bound <-chan time.Time
	for {
		select {
		case <-w.news:
			w.deliver(progress)
		case r := <-w.reply:
			w.deliver(progress)
			return canceledReply(ctx, r)
		case <-c.read:
			select { // the reply may have come just before
			case r := <-w.reply:
				w.deliver(progress)
				return canceledReply(ctx, r)
			default:
			}
			return nil, c.why()
		case <-done:
			done = nil
			timer := time.NewTimer(cancelWait)
			defer timer.Stop()
			bound = timer.C
			if err := c.cancel(id); err != nil {
				return nil, err
			}
		case <-bound:
			return nil, fmt.Errorf("%w (and the daemon did not confirm within %v that it stopped)", context.Cause(ctx),
				cancelWait)
		}
	}
}

// canceledReply prefers the caller's own reason to the daemon's word for it.
func canceledReply(ctx context.Context, r *reply) (*reply, error) {
	if ctx.Err() != nil && r.Error != nil && r.Error.Data.Code == api.Canceled {
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// cancel asks the daemon to cancel a call. It has its own time limit because the
// caller's has passed.
func (c *Client) cancel(id uint64) error {
	ctx, stop := context.WithTimeout(context.Background(), cancelWait)
	defer stop()
	params := json.RawMessage(`{"id":` + strconv.FormatUint(id, 10) + `}`)
	_, err := c.write(ctx, requestLine(nil, api.NotifyCancel, params), nil)
	return err
}

// requestLine is the line of a request, or of a notification without an id.
func requestLine(id *uint64, method string, params json.RawMessage) []byte {
	line := make([]byte, 0, len(params)+len(method)+64)
	line = append(line, `{"jsonrpc":"2.0",`...)
	if id != nil {
		line = append(line, `"id":`...)
		line = strconv.AppendUint(line, *id, 10)
		line = append(line, ',')
	}
	line = append(line, `"method":`...)
	name, err := json.Marshal(method)
	if err != nil {
		panic(err) // strings always encode
	}
	line = append(line, name...)
	line = append(line, `,"params":`...)
	line = append(line, params...)
	return append(line, "}\n"...)
}

// write sends one line; ctx bounds the time that a daemon which does not read
// may take. When it fails, sent says whether a part of the line has left.
func (c *Client) write(ctx context.Context, line []byte, files []*os.File) (sent bool, err error) {
	select {
	case c.send <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-c.read:
		return false, c.why()
	}
	defer func() { <-c.send }()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	sent, err = jsonrpc.Send(c.conn, line, files)
	if !stop() {
		<-interrupted
		_ = c.conn.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		return true, nil
	}
	if sent {
		c.fail(err) // half a line is out: nothing sensible can follow
	}
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		return sent, context.Cause(ctx)
	}
	return sent, err
}

// lastWords prefers what the daemon said before it closed the connection to the
// fact that it has.
func (c *Client) lastWords(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		<-c.read // the end of the connection is there to be read
		return c.why()
	}
	return err
}

// ErrLost is what a call fails with, beside unavailable, when its connection is lost and
// nothing is known of what became of it: hutchd may have been killed and replaced. A new
// Connect finds its successor, which has the same sandboxes and execs.
var ErrLost = errors.New("the connection to the daemon is lost")

// lost keeps the text of what broke the connection.
type lost struct{ error }

func (l lost) Unwrap() error { return l.error }

func (l lost) Is(target error) bool { return target == ErrLost }

// unsent is why nothing of a call has left this process.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// unreachable makes errors of the connection as clear as those of the daemon,
// and leaves the caller's own cancellation as it is.
func (c *Client) unreachable(method string, err error) error {
	var e *api.Error
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) {
		return err
	}
	return api.Errorf(api.Unavailable, "%w", lost{err}).WithOp(method).
		WithHint("The daemon ended or closed the connection; its log says why (`hutch doctor` shows where).")
}
