package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/internal/leak"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestMain is also the hutchd of the tests: they start their own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(fakeDaemon(os.Args[2:]))
	}
	os.Exit(leak.Main(m))
}

// fakeServer answers calls over the same channel as hutchd, with a handler of
// the test's.
type fakeServer struct {
	handle func(r *fakeCall) (any, error)
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  []*jsonrpc.Channel
	ending bool
}

// drain lets the calls under way be answered and then ends every connection.
func (f *fakeServer) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	for _, ch := range f.conns {
		ch.Drain()
	}
}

type fakeCall struct {
	*jsonrpc.Request
	ID string
	ch *jsonrpc.Channel
}

func (r *fakeCall) notify(p api.Progress) {
	p.Request = json.RawMessage(r.ID)
	_, _ = r.ch.Notify(api.NotifyProgress, p)
}

// serve returns when the client is gone.
func (f *fakeServer) serve(conn *net.UnixConn) {
	ch := jsonrpc.NewChannel(context.Background(), conn,
		jsonrpc.ChannelConfig{CancelOnLoss: func(string) bool { return true }})
	f.mu.Lock()
	f.conns = append(f.conns, ch)
	if f.ending {
		ch.Drain()
	}
	f.mu.Unlock()
	_ = ch.Serve(func(r *jsonrpc.Request) (json.RawMessage, *jsonrpc.Error) {
		result, err := f.handle(&fakeCall{r, string(r.ID), ch})
		var e *jsonrpc.Error
		switch {
		case errors.As(err, &e):
			return nil, e
		case err != nil:
			return nil, &jsonrpc.Error{Code: api.ErrorCode(err).Number(), Message: err.Error(),
				Data: api.ErrorData{Code: api.ErrorCode(err), Hint: "h"}}
		}
		return mustJSON(result), nil
	})
	_ = ch.Wait()
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// connected is a client of a server with this handler.
func connected(t testing.TB, handle func(r *fakeCall) (any, error)) *Client {
	t.Helper()
	ours, theirs, err := connectedPair()
	if err != nil {
		t.Fatal(err)
	}
	conn := fileConn(t, theirs)
	f := &fakeServer{handle: handle}
	f.wg.Go(func() { f.serve(conn) })
	c := New(ours)
	t.Cleanup(func() {
		_ = c.Close()
		f.wg.Wait()
	})
	return c
}

func fileConn(t testing.TB, f *os.File) *net.UnixConn {
	t.Helper()
	nc, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return nc.(*net.UnixConn)
}

// within is a context that ends a test that hangs.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// fakeDaemon is `hutchd serve` as far as a client sees it. Its environment says
// how it should fail.
func fakeDaemon(args []string) int {
	fds := make(map[string]*os.File)
	for i := 0; i+1 < len(args); i += 2 {
		n, err := strconv.Atoi(args[i+1])
		if err != nil {
			return 2
		}
		unix.CloseOnExec(n)
		fds[args[i]] = os.NewFile(uintptr(n), args[i])
	}
	ready := fds["--ready-fd"]
	fmt.Fprintln(os.Stderr, "the fake daemon starts")
	switch os.Getenv("FAKE_DAEMON") {
	case "die":
		fmt.Fprintln(os.Stderr, "no user namespaces here")
		return 3
	case "refuse":
		fmt.Fprintln(ready, `{"error":{"code":"failed_precondition","op":"start","msg":"no user namespaces","hint":"sysctl"}}`)
		return 1
	case "babble":
		fmt.Fprintln(ready, `yes`)
		return 1
	case "hang":
		_, _ = io.Copy(io.Discard, ready) // the write end: fails at once
		killed := make(chan os.Signal, 1)
		ossignal.Notify(killed, syscall.SIGUSR1) // a runtime without C takes select {} for a deadlock
		<-killed
	}
	if lease := fds["--private-fd"]; lease != nil {
		return fakePrivate(ready, lease)
	}
	return fakeShared(ready, os.Getenv("HUTCH_SOCKET"))
}

func fakePrivate(ready, lease *os.File) int {
	nc, err := net.FileConn(lease)
	if err != nil {
		return 2
	}
	_ = lease.Close()
	sayReady(ready)
	(&fakeServer{handle: daemonHandler(nil)}).serve(nc.(*net.UnixConn))
	if os.Getenv("FAKE_DAEMON") == "fail at the end" {
		return 4
	}
	return 0
}

func fakeShared(ready *os.File, socket string) int {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	// One line for each daemon that got so far, for the test to count.
	count, err := os.OpenFile(filepath.Join(os.Getenv("HUTCH_ROOT"), "started"),
		os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 2
	}
	fmt.Fprintln(count, os.Getpid())
	_ = count.Close()
	sayReady(ready)
	f := &fakeServer{}
	f.handle = daemonHandler(func() {
		_ = l.Close()
		f.drain()
	})
	for {
		nc, err := l.Accept()
		if err != nil {
			break
		}
		f.wg.Go(func() { f.serve(nc.(*net.UnixConn)) })
	}
	f.wg.Wait()
	return 0
}

func sayReady(ready *os.File) {
	fmt.Fprintf(ready, `{"ready":true,"pid":%d}`+"\n", os.Getpid())
	_ = ready.Close()
}

// daemonHandler answers what Connect asks; stop ends a shared daemon.
func daemonHandler(stop func()) func(*fakeCall) (any, error) {
	return func(r *fakeCall) (any, error) {
		switch r.Method {
		case api.MethodInfo:
			build := version.BuildID
			if b := os.Getenv("FAKE_BUILD"); b != "" {
				build = b
			}
			cwd, _ := os.Getwd()
			sid, _ := unix.Getsid(0)
			sandboxes := 0
			if os.Getenv("FAKE_DAEMON") == "busy" {
				sandboxes = 3
			}
			version := 0
			if os.Getenv("FAKE_API") == "same" {
				version = api.Version
			}
			return api.Info{BuildID: build, APIVersion: version, PID: os.Getpid(),
				Paths:  api.Paths{State: os.Getenv("HUTCH_ROOT"), Log: cwd},
				Counts: api.Counts{Sandboxes: sandboxes, Execs: sid - os.Getpid()}}, nil
		case api.MethodShutdown:
			stop()
			return api.Empty{}, nil
		case api.MethodGC: // a request to die without ceremony
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil, api.Errorf(api.Unimplemented, "%s", r.Method)
	}
}
