package netns

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPlain(t *testing.T) {
	ns, err := NewPlain()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	n := &Namespace{File: ns.File}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(ns.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(got, "net:[") || got == own {
		t.Errorf("namespace %q, own %q: want a different one", got, own)
	}
	checkErrno(t, n, "tcp", "198.18.0.2:80", unix.ENETUNREACH)
	checkErrno(t, n, "tcp", "[2001:db8::1]:80", unix.ENETUNREACH)
	checkErrno(t, n, "tcp", "127.0.0.1:80", unix.ECONNREFUSED) // lo is up
}

// TestPlainAsked: who asks the resolver of a namespace without a network is heard, also by whoever adopts it, and
// servers inside still get port 53 of every other address.
func TestPlainAsked(t *testing.T) {
	ns, err := NewPlain()
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(ns.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	hears := func(p *Plain) {
		t.Helper()
		n := &Namespace{File: p.File}
		var client net.Conn
		if err := n.inside(func() (err error) {
			client, err = net.Dial("udp4", net.JoinHostPort(Refuser.String(), "53"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		c, err := p.Wait()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 100)
		size, from, err := c.ReadFrom(buf)
		if err != nil || string(buf[:size]) != "question" {
			t.Fatalf("heard %q, %v", buf[:size], err)
		}
		if _, err := c.WriteTo([]byte("answer"), from); err != nil {
			t.Fatal(err)
		}
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		if size, err = client.Read(buf); err != nil || string(buf[:size]) != "answer" {
			t.Errorf("answered %q, %v", buf[:size], err)
		}
		for _, tt := range []struct {
			at     string
			shares bool // SO_REUSEADDR
			want   error
		}{
			{"127.0.0.1", false, nil}, {"127.0.0.1", true, nil}, {"[::1]", false, nil},
			{Refuser.String(), true, unix.EADDRINUSE}, {"0.0.0.0", true, unix.EADDRINUSE},
			{"0.0.0.0", false, unix.EADDRINUSE},
			{"[::]", true, unix.EADDRINUSE}, {"[::]", false, unix.EADDRINUSE},
		} {
			lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				var err error
				_ = c.Control(func(fd uintptr) {
					if tt.shares {
						err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
					}
				})
				return err
			}}
			var server net.PacketConn
			err := n.inside(func() (err error) {
				server, err = lc.ListenPacket(t.Context(), "udp", tt.at+
					":53")
				return err
			})
			if !errors.Is(err, tt.want) {
				t.Errorf("%+v: %v", tt, err)
			}
			if err == nil {
				_ = server.Close()
			}
		}
	}
	hears(ns)
	if err := ns.Close(); err != nil {
		t.Fatal(err)
	}
	adopted, err := AdoptPlain(again)
	if err != nil {
		t.Fatal(err)
	}
	hears(adopted)
	if err := adopted.Close(); err != nil {
		t.Error(err)
	}
}

// TestPlainClose: who waits for a question that never comes is told about the end.
func TestPlainClose(t *testing.T) {
	ns, err := NewPlain()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { _, err := ns.Wait(); ended <- err }()
	if err := ns.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the wait ended with %v", err)
	}
}

func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		ns, err := NewPlain()
		if err != nil {
			b.Fatal(err)
		}
		ns.Close()
	}
}
