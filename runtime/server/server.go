// Package server is hutchd's JSON-RPC side: it turns the lines of a connection
// into calls of the engines, and errors into answers that say what to do. It
// does not listen: connections come with an Actor, and where the configuration says so they show a token.
//
// DESIGN.md tells who may talk, and how lines and fds are framed.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// ErrShutdown is the cancellation cause of calls that Shutdown did not wait for.
var ErrShutdown = errors.New("the daemon is ending")

// Config is what a Server is made of. All fields are required but Tokens and Logger.
type Config struct {
	// Methods are the handlers of all methods of api.Methods but those that are about connections: system.authenticate,
	// exec.attach, exec.credit, exec.detach, events.* and rpc.discover. The server takes it over.
	Methods *Methods
	// Attach starts to follow an exec's output.
	Attach func(p api.AttachParams) (Output, error)
	// Subscribe starts to read the log of what happened, and knows what happened before the call. The result's id is
	// the server's to set.
	Subscribe func(ctx context.Context, p api.SubscribeParams) (EventCursor, api.Subscribed, error)
	Tokens    Tokens       // of clients; none serves every one
	Logger    *slog.Logger // for panics of handlers; nil discards
}

// longLines is how many connections may hold a request of up to jsonrpc.MaxLine that has not arrived in full: 64 MiB.
const longLines = 16

// Server dispatches calls. It is safe for concurrent use.
type Server struct {
	cfg   Config
	table map[string]handler

	turns  *turns
	tokens atomic.Pointer[Tokens]

	long     jsonrpc.LongLines
	showTime time.Duration // but for tests showTime

	mu      sync.Mutex // guards what follows
	conns   map[*jsonrpc.Channel]*identity
	unknown []*stranger // of conns, that have to show a token; the oldest first
	ending  bool
	wg      sync.WaitGroup // one for each of conns
}

// New returns a server for the methods of api.Methods. It fails, with their names, when a method has no handler or two,
// a handler no method, or their types differ.
func New(cfg Config) (*Server, error) {
	if cfg.Methods == nil || cfg.Attach == nil || cfg.Subscribe == nil {
		return nil, errors.New("server: Config needs Methods, Attach and Subscribe")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, conns: make(map[*jsonrpc.Channel]*identity), turns: newTurns(),
		long: jsonrpc.NewLongLines(longLines), showTime: showTime}
	s.tokens.Store(&cfg.Tokens)
	s.handle(cfg.Methods)
	if err := cfg.Methods.check(api.Methods); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s.table = cfg.Methods.table
	return s, nil
}

// handle adds the methods that are about connections.
func (s *Server) handle(m *Methods) {
	HandleCall(m, api.CallAuthenticate, authenticate)
	HandleCall(m, api.CallExecAttach, attach)
	HandleCall(m, api.CallExecCredit, done((*subscriptions).credit))
	HandleCall(m, api.CallExecDetach, done((*subscriptions).detach))
	HandleCall(m, api.CallEvents, subscribe)
	HandleCall(m, api.CallEventsCredit, done((*subscriptions).creditEvents))
	HandleCall(m, api.CallEventsEnd, done((*subscriptions).unsubscribe))
	m.add(api.MethodDiscover, discover)
}

// done makes a handler of a method of a connection's subscriptions.
func done[P any](f func(*subscriptions, P) error) func(context.Context, *Call, P) (api.Empty, error) {
	return func(_ context.Context, c *Call, p P) (api.Empty, error) { return api.Empty{}, f(c.dispatcher.subs, p) }
}

// ServeConn serves conn, which it takes over, until the client is gone and every
// call has ended. Calls are cancelled when ctx is. When the connection is lost,
// those are cancelled that only make sense with their client (api.Call.EndsWithCaller), and all of them when it was a
// private daemon's lease.
func (s *Server) ServeConn(ctx context.Context, conn *net.UnixConn, who Actor) {
	ch := jsonrpc.NewChannel(ctx, conn,
		jsonrpc.ChannelConfig{LongLines: s.long, CancelOnLoss: func(method string) bool {
			return who.Private || s.table[method].ends
		}})
	id := &identity{exempt: who.Private}
	if !s.enter(ch, id) {
		ch.Close()
		return
	}
	defer s.leave(ch)
	known := s.await(ch, id, who.UID)
	defer known()
	stop := context.AfterFunc(ctx, ch.Drain)
	defer stop()
	subs := newSubscriptions(ch)
	d := &dispatcher{s: s, ch: ch, who: who, subs: subs, line: &line{}, id: id, known: known}
	err := ch.Serve(d.handle)
	subs.close()
	if cerr := ch.Wait(); cerr != nil {
		err = cerr
	}
	if err != nil {
		s.cfg.Logger.Debug("connection ended", "uid", who.UID, "pid", who.PID, "err", err)
	}
}

func (s *Server) enter(ch *jsonrpc.Channel, id *identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.conns[ch] = id
	s.wg.Add(1)
	return true
}

func (s *Server) leave(ch *jsonrpc.Channel) {
	s.mu.Lock()
	delete(s.conns, ch)
	s.mu.Unlock()
	s.wg.Done()
}

// EndIdle refuses new connections from now on if there is none, else it reports false.
// Nobody is then told about an end that came between two of its calls: a client whose
// connection is refused finds the next daemon.
func (s *Server) EndIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = s.ending || len(s.conns) == 0
	return s.ending
}

// Shutdown refuses new connections and calls and waits until the calls under way
// are answered and every connection is closed. When ctx ends first the rest is
// cancelled with ErrShutdown, and Shutdown returns ctx's error without waiting
// for it. A handler must not call it: it would wait for itself.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.ending = true
	for ch := range s.conns {
		ch.Drain()
	}
	s.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ch := range s.conns {
		ch.Abort(ErrShutdown)
	}
	return fmt.Errorf("shut down with %d connections open: %w", len(s.conns), context.Cause(ctx))
}

// dispatcher runs the calls of one connection.
type dispatcher struct {
	s    *Server
	ch   *jsonrpc.Channel
	who  Actor
	subs *subscriptions
	line *line

	id    *identity
	known func()       // to be called when it has shown one
	wrong atomic.Int32 // tokens that it has shown and are none
}

// handle is the connection's jsonrpc.Handler.
func (d *dispatcher) handle(r *jsonrpc.Request) (json.RawMessage, *jsonrpc.Error) {
	result, err := d.call(r)
	if err != nil {
		return nil, rpcError(err, context.Cause(r.Ctx))
	}
	return result, nil
}

// call runs one method. The result is encoded already, so that a failure to
// encode is an error like any other.
func (d *dispatcher) call(req *jsonrpc.Request) (raw json.RawMessage, err error) {
	method := req.Method
	defer req.FDs.Close()
	defer func() {
		if p := recover(); p != nil {
			d.s.cfg.Logger.Error("handler panicked", "op", method, "err", p, "stack", string(debug.Stack()))
			err = api.Errorf(api.Internal, "panic: %v", p).WithOp(method)
		}
	}()
	h, ok := d.s.table[method]
	if !ok {
		return nil, &jsonrpc.Error{
			Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("unknown method %q", method),
			Data: api.ErrorData{Hint: "rpc.discover lists the methods of this build."},
		}
	}
	if err := d.admit(method); err != nil {
		return nil, err
	}
	call := &Call{
		Actor: d.who, ID: req.ID, FDs: req.FDs, Progress: func(api.Progress) {},
		AfterSent: req.AfterSent, dispatcher: d, afterReply: req.AfterReply,
	}
	if err := d.extras(call, method, h.fds, req.Params); err != nil {
		return nil, err
	}
	result, err := h.run(d.id.context(req.Ctx), call, req.Params)
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(result); err != nil {
		return nil, api.Errorf(api.Internal, "encode the result: %w", err).WithOp(method)
	}
	return raw, nil
}

// extras deals with what params of any method may hold beside the method's own:
// how many fds came along, and whether the client wants to hear of progress.
func (d *dispatcher) extras(call *Call, method string, fds bool, raw json.RawMessage) error {
	var p struct {
		FDs      int
		Progress bool
	}
	members, _ := jsonrpc.Members(raw)
	_ = json.Unmarshal(members["fds"], &p.FDs) // decoding proper reports what is wrong
	_ = json.Unmarshal(members["progress"], &p.Progress)
	switch came := call.FDs.Len(); {
	case came > 0 && !fds:
		return params.Invalid("fds", "Send fds only with methods that take them.",
			"%d fds came with %s, which takes none", came, method)
	case fds && came != p.FDs:
		return params.Invalid("fds",
			`Send the fds on the sendmsg of the request itself, one request per sendmsg, and their number as "fds".`,
			"%d fds are announced and %d came", p.FDs, came)
	}
	if p.Progress {
		call.Progress = func(news api.Progress) {
			news.Request = call.ID
			switch news.Kind {
			case api.ProgressReady, api.ProgressStarted, api.ProgressOutput:
				_ = d.ch.Tell(api.NotifyProgress, news) // fails when the client is lost
			default:
				_, _ = d.ch.Notify(api.NotifyProgress, news) // news may be dropped
			}
		}
	}
	return nil
}
