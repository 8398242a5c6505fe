package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// inbound serves a port whose server is at an address here, and returns where.
func inbound(t *testing.T, server string, later bool) (*Inbound, string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return inboundAt(t, l, server, later), l.Addr().String()
}

func inboundAt(t *testing.T, l net.Listener, server string, later bool) *Inbound {
	t.Helper()
	connect := func(context.Context) (*net.TCPConn, error) {
		c, err := net.Dial("tcp4", server)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	in, err := NewInbound(fileOf(t, l), "", func() (int, Later, error) {
		if later {
			return -1, connect, nil
		}
		c, err := connect(t.Context())
		if err != nil {
			return -1, nil, err
		}
		defer c.Close()
		return dupOf(t, c), nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

// fileOf takes a listener over.
func fileOf(t *testing.T, l net.Listener) *os.File {
	t.Helper()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// dupOf is a duplicate of a connection, of no poller's. It is called on the loop's thread.
func dupOf(t *testing.T, c *net.TCPConn) (fd int) {
	rc, err := c.SyscallConn()
	if err == nil {
		err = rc.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 3) })
	}
	if err != nil {
		t.Error(err)
	}
	return fd
}

// TestInbound: bytes pass both ways to the end of each, and connections end with their port.
func TestInbound(t *testing.T) {
	echo, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	for _, later := range []bool{false, true} {
		in, at := inbound(t, echo.Addr().String(), later)
		c, err := net.Dial("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sent := bytes.Repeat([]byte("x"), 1<<20)
		go func() {
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		open, err := net.Dial("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		if _, err := open.Write([]byte("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(open, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if _, accepted := in.Counts(); accepted != 2 {
			t.Errorf("%d accepted", accepted)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if n, err := open.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d bytes of a closed port", n)
		}
		if now, _ := in.Counts(); now != 0 {
			t.Errorf("%d left open", now)
		}
	}
}

// TestInboundRefused: where nobody listens inside, who connects sees a reset, and the port goes on.
func TestInboundRefused(t *testing.T) {
	_, at := inbound(t, "127.0.0.1:1", false)
	for range 3 {
		c, err := net.Dial("tcp4", at)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%v, want %v", err, unix.ECONNRESET)
		}
	}
}

// TestInboundHalf: a client that has said all it has to say gets all of an answer that is more than the loop carries,
// from a server that has ended by then; also by a Unix socket.
func TestInboundHalf(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answer := bytes.Repeat([]byte("y"), 100<<10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if b, err := io.ReadAll(c); err == nil && string(b) == "ask" {
					_, _ = c.Write(answer)
				}
			}()
		}
	}()
	for _, network := range []string{"tcp4", "unix"} {
		at, err := net.Listen(network,
			map[string]string{"tcp4": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network])
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := at.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		where := at.Addr()
		in := inboundAt(t, at, l.Addr().String(), false)
		for range 100 {
			c, err := net.Dial(network, where.String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte("ask")); err != nil {
				t.Fatal(err)
			}
			if err := c.(duplex).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, answer) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			_ = c.Close()
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestInboundRoom: more connections than a port holds wait until others end, and are served then.
func TestInboundRoom(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Write([]byte("x"))
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	in, at := inbound(t, l.Addr().String(), false)
	const more = 8
	served := func(c net.Conn) {
		t.Helper()
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var conns []net.Conn
	for i := range maxInbound + more {
		c, err := net.Dial("tcp4", at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if conns = append(conns, c); i < maxInbound {
			served(c)
		}
	}
	if open, accepted := in.Counts(); open != maxInbound || accepted != maxInbound {
		t.Errorf("%d are open, %d were accepted", open, accepted)
	}
	for _, c := range conns[:more] {
		_ = c.Close()
	}
	for _, c := range conns[maxInbound:] {
		served(c)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if open, accepted := in.Counts(); open != 0 || accepted != maxInbound+more {
		t.Errorf("%d are open, %d were accepted", open, accepted)
	}
}

func FuzzTokenHead(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /?token=T HTTP/1.1\r\n\r\nrest", "\r\n\r\n",
		"GET //evil.test/?token=T HTTP/1.1\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var head []byte
		var err error
		cost.Input(t, s, func(s string) { head, err = readHead(strings.NewReader(s).Read) })
		if err == nil && (!strings.HasPrefix(s, string(head)) || len(head) > 2*maxTokenHead ||
			!bytes.Contains(head, []byte("\r\n\r\n"))) {
			t.Fatalf("%q of %q", head, s)
		}
		u, err := url.ParseRequestURI(s)
		if err != nil {
			return
		}
		next := withoutToken(u)
		if strings.HasPrefix(next, "//") || !strings.HasPrefix(next, "/") || strings.ContainsAny(next, "\r\n\\") {
			t.Fatalf("%q leads to %q", s, next)
		}
		in := &Inbound{token: "T"}
		if _, ok := in.hasToken(&http.Request{URL: u, Header: http.Header{}}); ok && u.Query().Get(tokenQuery) != "T" {
			t.Fatalf("%q has a token", s)
		}
	})
}

// TestInboundGone: what a client has said before it closed reaches a server that takes its time, and then the end, not
// a failure; also by a Unix socket, where nothing passes the other way any more as soon as the client is gone.
func TestInboundGone(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, network := range []string{"tcp4", "unix"} {
		at, err := net.Listen(network,
			map[string]string{"tcp4": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network])
		if err != nil {
			t.Fatal(err)
		}
		where := at.Addr()
		if u, ok := at.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false)
		}
		in := inboundAt(t, at, l.Addr().String(), false)
		// pass has a client say something and go away, and returns the server's end.
		pass := func() net.Conn {
			c, err := net.Dial(network, where.String())
			if err != nil {
				t.Fatal(err)
			}
			s, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			_ = s.SetDeadline(time.Now().Add(20 * time.Second))
			_, err = io.WriteString(s, "hello")
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 5)) // of TCP, what was not read would be a failure
			}
			if err == nil {
				_, err = io.WriteString(c, "good bye")
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
			return s
		}
		heard := func(s net.Conn) {
			if said, err := io.ReadAll(s); err != nil || string(said) != "good bye" {
				t.Errorf("%s: the server heard %q, %v", network, said, err)
			}
		}
		for range 20 {
			slow := pass()
			for range 3 { // by then the loop has done all that it was going to
				quick := pass()
				heard(quick)
				_ = quick.Close()
			}
			heard(slow)
			_ = slow.Close()
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestInboundCloseAtEnd: a port that is closed while its connections end has none when Close returns.
func TestInboundCloseAtEnd(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, "x")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}()
		}
	}()
	for range 100 {
		in, at := inbound(t, l.Addr().String(), false)
		var all []net.Conn
		for range 8 {
			c, err := net.Dial("tcp4", at)
			if err != nil {
				t.Fatal(err)
			}
			if all = append(all, c); err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range all {
			_ = c.Close()
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if open, _ := in.Counts(); open != 0 {
			t.Fatalf("%d are open when the port is closed", open)
		}
	}
}
