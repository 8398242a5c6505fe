package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// home is an environment of the test's own and where things are in it.
type home struct {
	env                []string
	socket, state, log string
}

func newHome(t *testing.T, more ...string) home {
	t.Helper()
	d, err := os.MkdirTemp("", "hutch") // short: sun_path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(d) })
	h := home{socket: filepath.Join(d, "s", "hutchd.sock"), state: filepath.Join(d, "state")}
	h.log = filepath.Join(h.state, "hutchd.log")
	h.env = append([]string{
		"HUTCH_SOCKET=" + h.socket, "HUTCH_ROOT=" + h.state, "HUTCH_CONFIG=" + filepath.Join(d, "c.yaml"),
		"XDG_RUNTIME_DIR=" + filepath.Join(d, "run"), "HOME=" + d,
	}, more...)
	return h
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func (h home) connect(t *testing.T, more ...string) (*Client, error) {
	return Connect(within(t), ConnectOptions{Binary: self(t), Env: append(h.env, more...)})
}

// started are the pids of the shared daemons that came up.
func (h home) started(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.state, "started"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// end ends the shared daemon and waits until it is gone.
func end(t *testing.T, c *Client) {
	t.Helper()
	defer c.Close()
	exit := watchPeer(c.conn)
	defer exit.close()
	if err := c.Shutdown(within(t), api.ShutdownParams{}); err != nil {
		t.Error(err)
	}
	if err := exit.wait(within(t), c); err != nil {
		t.Error(err)
	}
}

func TestConnectStartsOneDaemon(t *testing.T) {
	h := newHome(t)
	const n = 20
	clients := make([]*Client, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c, err := h.connect(t)
			if err != nil {
				t.Error(err)
				return
			}
			clients[i] = c
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	var info api.Info
	for _, c := range clients {
		got, err := c.Info(within(t))
		if err != nil || (info.PID != 0 && got.PID != info.PID) {
			t.Errorf("pid %d and %d, %v", got.PID, info.PID, err)
		}
		info = got
	}
	if got := h.started(t); len(got) != 1 {
		t.Errorf("daemons started: %v", got)
	}
	if info.Paths.Log != "/" || info.Counts.Execs != 0 {
		t.Errorf("the daemon's working folder is %s, its session is its own: %v", info.Paths.Log,
			info.Counts.Execs == 0)
	}
	if log, err := os.ReadFile(h.log); err != nil || !strings.Contains(string(log), "fake daemon starts") {
		t.Errorf("log %q, %v", log, err)
	}
	for _, c := range clients[1:] {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	// The others' end is not the daemon's.
	if _, err := clients[0].Info(within(t)); err != nil {
		t.Error(err)
	}
	end(t, clients[0])
}

func TestConnectOverDeadSocket(t *testing.T) {
	h := newHome(t)
	if err := os.MkdirAll(filepath.Dir(h.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	// A daemon removes a dead socket itself; the fake one does not, so here the
	// proof is that one was started.
	_, err = h.connect(t)
	if !errors.Is(err, &api.Error{Code: api.Unavailable}) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

func TestConnectOtherBuild(t *testing.T) {
	used := func(t *testing.T, more ...string) {
		h := newHome(t)
		h.startOther(t, append(more, "FAKE_BUILD=old", "FAKE_API=same")...)
		c, err := h.connect(t)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := c.Peer(within(t)); err != nil || who.BuildID != "old" || len(h.started(t)) != 1 {
			t.Errorf("%+v, %v; daemons started: %v", who, err, h.started(t))
		}
		end(t, c)
	}
	// This is a program that imports the package: no build of hutch's.
	t.Run("idle, foreign program: used", func(t *testing.T) { used(t) })
	version.BuildID = "new"
	defer func() { version.BuildID = version.Foreign }()
	t.Run("busy, same API: used", func(t *testing.T) { used(t, "FAKE_DAEMON=busy") })
	t.Run("idle: replaced", func(t *testing.T) {
		h := newHome(t)
		h.startOther(t, "FAKE_BUILD=old")
		c, err := h.connect(t)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.started(t); len(got) != 2 {
			t.Errorf("daemons started: %v", got)
		}
		end(t, c)
	})
	t.Run("busy: refused", func(t *testing.T) {
		h := newHome(t)
		pid := h.startOther(t, "FAKE_BUILD=old", "FAKE_DAEMON=busy")
		_, err := h.connect(t)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.FailedPrecondition || e.Hint == "" ||
			!strings.Contains(err.Error(), "build old with version 0 of the API and 3 sandboxes") ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
		if err := unix.Kill(pid, 0); err != nil {
			t.Errorf("the busy daemon is gone: %v", err)
		}
		c, err := Dial(within(t), h.socket)
		if err != nil {
			t.Fatal(err)
		}
		h.kill(t, c)
	})
}

// startOther starts a shared daemon with this environment and returns its pid.
func (h home) startOther(t *testing.T, more ...string) int {
	t.Helper()
	places, err := resolve(h.env)
	if err != nil {
		t.Fatal(err)
	}
	if err := places.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	d, err := launch{binary: self(t), env: append(h.env, more...), log: h.log}.start(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return d.cmd.Process.Pid
}

// kill ends a daemon that refuses to.
func (h home) kill(t *testing.T, c *Client) {
	t.Helper()
	defer c.Close()
	exit := watchPeer(c.conn)
	defer exit.close()
	if _, err := c.GC(within(t)); !errors.Is(err, &api.Error{Code: api.Unavailable}) {
		t.Errorf("a daemon that dies answers %v", err)
	}
	if err := exit.wait(within(t), c); err != nil {
		t.Error(err)
	}
}

func TestConnectWhenTheDaemonCanNotStart(t *testing.T) {
	tests := []struct {
		fake string
		code api.Code
		want []string
	}{
		{"die", api.Unavailable, []string{"exit status 3", "no user namespaces here"}},
		{"refuse", api.FailedPrecondition, []string{"start: no user namespaces"}},
		{"babble", api.Internal, []string{"yes"}},
	}
	for _, tt := range tests {
		t.Run(tt.fake, func(t *testing.T) {
			h := newHome(t)
			if err := os.MkdirAll(h.state, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(h.log, []byte("words of an earlier daemon\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := h.connect(t, "FAKE_DAEMON="+tt.fake)
			if err == nil || api.ErrorCode(err) != tt.code {
				t.Fatalf("got %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in %q", w, err)
				}
			}
			if strings.Contains(err.Error(), "earlier") {
				t.Errorf("shows what another daemon said: %v", err)
			}
		})
	}
}

func TestStartPrivate(t *testing.T) {
	h := newHome(t)
	c, err := Start(within(t), StartOptions{Binary: self(t), Env: h.env})
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Info(within(t))
	if err != nil || info.PID != c.daemon.cmd.Process.Pid {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := os.Lstat(h.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a private daemon has a socket: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.Kill(info.PID, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("after Close the daemon is still there: %v", err)
	}
}

func TestStartPrivateFailures(t *testing.T) {
	h := newHome(t)
	log := filepath.Join(t.TempDir(), "log")
	_, err := Start(within(t), StartOptions{Binary: self(t), Env: append(h.env, "FAKE_DAEMON=die"), Log: log})
	var e *api.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "no user namespaces here") ||
		!strings.Contains(e.Hint, log) {
		t.Errorf("dies: %v", err)
	}
	_, err = Start(within(t), StartOptions{Binary: "/nonexistent/hutchd", Env: h.env})
	if !errors.Is(err, &api.Error{Code: api.FailedPrecondition}) {
		t.Errorf("no binary: %v", err)
	}
	_, err = Start(within(t), StartOptions{Env: h.env})
	if !errors.Is(err, &api.Error{Code: api.NotFound}) {
		t.Errorf("no sibling: %v", err)
	}
	c, err := Start(within(t), StartOptions{Binary: self(t), Env: append(h.env, "FAKE_DAEMON=fail at the end")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("bad end: %v", err)
	}
}

// TestStartHonoursContext: a daemon that never gets ready is ended.
func TestStartHonoursContext(t *testing.T) {
	h := newHome(t)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, StartOptions{Binary: self(t), Env: append(h.env, "FAKE_DAEMON=hang")}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestLockHonoursContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(within(t), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	unlock()
	again, err := lock(within(t), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock's file is left: %v", err)
	}
}

// TestLockExclusive: the file goes with each holder, and there is one holder at a time.
func TestLockExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var held atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				unlock, err := lock(within(t), path)
				if err != nil {
					t.Error(err)
					return
				}
				if n := held.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				held.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
}

func TestDialErrors(t *testing.T) {
	d := newHome(t)
	if err := os.MkdirAll(filepath.Dir(d.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(filepath.Dir(d.socket), "dead")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	tests := []struct {
		socket string
		code   api.Code
	}{
		{d.socket, api.Unavailable},
		{dead, api.Unavailable},
		{filepath.Dir(d.socket), api.Unavailable}, // a folder
		{"/" + strings.Repeat("x", paths.MaxSocket), api.InvalidArgument},
	}
	for _, tt := range tests {
		_, err := Dial(within(t), tt.socket)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Hint == "" || !strings.Contains(err.Error(), tt.socket) {
			t.Errorf("%s: %v", tt.socket, err)
		}
	}
}
