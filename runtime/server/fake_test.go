package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// engines are the engines of a test. Methods whose hook is nil answer at once.
type engines struct {
	info   func(ctx context.Context, who Actor) (api.Info, error)
	create func(ctx context.Context, p api.CreateParams, fds *jsonrpc.FDs,
		progress func(api.Progress)) (api.Sandbox, error)
	run func(ctx context.Context, p api.ExecParams, fds *jsonrpc.FDs,
		started func(string, int)) (api.ExecResult, error)
	pull   func(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error)
	get    func(ref string) (api.Sandbox, error)
	events func(p api.SubscribeParams) (EventCursor, api.Subscribed, error)
	attach func(p api.AttachParams) (Output, error)
}

// methods are handlers of the hooks, and of all others some that return a result of zeros.
func (e *engines) methods() *Methods {
	m := new(Methods)
	if e.info != nil {
		HandleCall(m, api.CallInfo, func(ctx context.Context, c *Call, _ api.Empty) (api.Info, error) {
			return e.info(ctx, c.Actor)
		})
	}
	if e.create != nil {
		HandleCall(m, api.CallSandboxCreate, func(ctx context.Context, c *Call, p api.CreateParams) (api.Sandbox,
			error) {
			return e.create(ctx, p, c.FDs, c.Progress)
		})
	}
	if e.pull != nil {
		HandleCall(m, api.CallImagePull, func(ctx context.Context, c *Call, p api.PullParams) (api.Image, error) {
			return e.pull(ctx, p, c.Progress)
		})
	}
	if e.get != nil {
		Handle(m, api.CallSandboxGet, func(_ context.Context, p api.SandboxParams) (api.Sandbox, error) {
			return e.get(p.Sandbox)
		})
	}
	HandleCall(m, api.CallExecRun, InTurn(func(ctx context.Context, c *Call, p api.ExecParams) (api.ExecResult, error) {
		if e.run == nil {
			return api.ExecResult{Exec: "ex_1"}, nil
		}
		return e.run(ctx, p, c.FDs, c.Started)
	}))
	HandleCall(m, api.CallSandboxRun, InTurn(func(ctx context.Context, c *Call, p api.RunParams) (api.RunResult,
		error) {
		sb := api.Sandbox{ID: "sb_1"}
		if err := CheckBuild(p.IfBuild); err != nil || e.run == nil {
			return api.RunResult{Sandbox: sb}, err
		}
		res, err := e.run(ctx, p.Exec, c.FDs, func(exec string, pid int) { c.StartedIn(&sb, exec, pid) })
		return api.RunResult{Sandbox: sb, Exec: res}, err
	}))
	Handle(m, api.CallExecSignal, Done(func(_ context.Context, p api.SignalParams) error {
		if p.Exec != "ex_1" {
			return api.Errorf(api.NotFound, "no exec %q", p.Exec)
		}
		return nil
	}))
	Handle(m, api.CallShutdown, Done(func(_ context.Context, p api.ShutdownParams) error {
		if p.Mode == "keep" {
			return api.Errorf(api.FailedPrecondition, "2 sandboxes")
		}
		return nil
	}))
	zeros(m)
	return m
}

// zeros adds handlers of the methods that have none, which decode their params and return zeros.
func zeros(m *Methods) {
	own := new(Methods)
	new(Server).handle(own)
	for _, row := range api.Methods {
		if _, ok := m.table[row.Name]; ok || own.table[row.Name].run != nil {
			continue
		}
		h := handler{params: reflect.TypeOf(row.Params), result: reflect.TypeOf(row.Result), fds: row.FDs}
		fill := filler(h.result)
		h.run = func(_ context.Context, _ *Call, raw json.RawMessage) (any, error) {
			p, r := reflect.New(h.params), reflect.New(h.result)
			if fill != nil {
				fill(r.Elem())
			}
			return r.Interface(), params.Decode(raw, p.Interface())
		}
		m.add(row.Name, h)
	}
}

func newServer(t testing.TB, e *engines) *Server {
	t.Helper()
	cfg := Config{Methods: e.methods(), Attach: e.attach,
		Subscribe: func(_ context.Context, p api.SubscribeParams) (EventCursor, api.Subscribed, error) {
			if e.events != nil {
				return e.events(p)
			}
			return &fakeCursor{}, api.Subscribed{NextSeq: 5}, nil
		}}
	if e.attach == nil {
		cfg.Attach = func(api.AttachParams) (Output, error) { return &fakeOutput{}, nil }
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// peer is a client that does exactly what a test says.
type peer struct {
	t    testing.TB
	conn *net.UnixConn
	r    *jsonrpc.Reader
	done chan struct{} // closed when ServeConn has returned
}

// serve connects a peer to s. The test ends the connection and waits for the
// server's side.
func serve(t testing.TB, s *Server) *peer { return serveAs(t, s, Actor{UID: 7}) }

func serveAs(t testing.TB, s *Server, who Actor) *peer {
	t.Helper()
	return serveIn(context.Background(), t, s, who)
}

func serveIn(ctx context.Context, t testing.TB, s *Server, who Actor) *peer {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
	}
	p := &peer{t: t, conn: conns[0], r: jsonrpc.NewReader(conns[0], 64<<20, jsonrpc.LongLines{}),
		done: make(chan struct{})}
	go func() {
		s.ServeConn(ctx, conns[1], who)
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.conn.Close()
		<-p.done
	})
	return p
}

func (p *peer) send(line string, files ...*os.File) {
	p.t.Helper()
	if _, err := jsonrpc.Send(p.conn, []byte(line+"\n"), files); err != nil {
		p.t.Fatal(err)
	}
}

// message is a line from the server.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *jsonrpc.Error
}

func (p *peer) line() []byte {
	p.t.Helper()
	line, _, err := p.r.ReadLine()
	if err != nil {
		p.t.Fatal(err)
	}
	return line
}

func (p *peer) recv() message {
	p.t.Helper()
	var m message
	line := p.line()
	if err := json.Unmarshal(line, &m); err != nil {
		p.t.Fatalf("%q: %v", line, err)
	}
	return m
}

// recvOK receives the result of the request id.
func (p *peer) recvOK(id string) json.RawMessage {
	p.t.Helper()
	m := p.recv()
	for m.Method == api.NotifyEventsEnd { // comes when it comes
		m = p.recv()
	}
	if m.Error != nil || string(m.ID) != id {
		p.t.Fatalf("got %s %s %v, want the result of %s", m.Method, m.ID, m.Error, id)
	}
	return m.Result
}

// recvErr receives an error and checks what all errors have.
func (p *peer) recvErr(id string, code int) *jsonrpc.Error {
	p.t.Helper()
	m := p.recv()
	if m.Error == nil || m.Error.Code != code || string(m.ID) != id {
		p.t.Fatalf("got %s %s %+v, want error %d of %s", m.ID, m.Result, m.Error, code, id)
	}
	if m.Error.Data.Hint == "" || m.Error.Message == "" {
		p.t.Errorf("error without message or hint: %+v", m.Error)
	}
	return m.Error
}

// alive checks that the connection still answers.
func (p *peer) alive() {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":"alive","method":"system.info"}`)
	p.recvOK(`"alive"`)
}

func (p *peer) eof() {
	p.t.Helper()
	if line, _, err := p.r.ReadLine(); err != io.EOF {
		p.t.Errorf("got %q, %v; want EOF", line, err)
	}
}

func request(id any, method, params string) string {
	raw, err := json.Marshal(id)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, raw, method, params)
}

// runParams are valid params of exec.run with more members.
func runParams(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"sandbox":"x","argv":["true"]` + more + `}`
}

// pipe returns a pipe's ends; the test closes what it does not close itself.
func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	return r, w
}

func sameJSON(t testing.TB, got []byte, want string) {
	t.Helper()
	var a, b bytes.Buffer
	if err := json.Compact(&a, got); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if err := json.Compact(&b, []byte(want)); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Errorf("got  %s\nwant %s", a.String(), b.String())
	}
}
