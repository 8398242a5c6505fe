package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inbound serves a port whose server is at an address here, and returns where.
func inbound(t *testing.T, server string, later bool) (*Inbound, string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connect := func(context.Context) (*net.TCPConn, error) {
		c, err := net.Dial("tcp4", server)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	in := NewInbound(l, "", func() (*net.TCPConn, Later, error) {
		if later {
			return nil, connect, nil
		}
		c, err := connect(t.Context())
		return c, nil, err
	})
	t.Cleanup(func() { _ = in.Close() })
	return in, l.Addr().String()
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

func FuzzTokenHead(f *testing.F) {
	for _, s := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET /?token=T HTTP/1.1\r\n\r\nrest", "\r\n\r\n", "GET //evil.test/?token=T HTTP/1.1\r\n\r\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		head, err := readHead(strings.NewReader(s).Read)
		if err == nil && (!strings.HasPrefix(s, string(head)) || len(head) > 2*maxTokenHead || !bytes.Contains(head, []byte("\r\n\r\n"))) {
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
