package netns

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDialer: servers on either loopback of another namespace are reached, what nobody listens on is refused, a full
// queue is waited for, and the thread's end is no one else's.
func TestDialer(t *testing.T) {
	ns, err := NewPlain()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	n := &Namespace{File: ns.File}
	d, err := NewDialer(ns.File)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dial := func(port int) (*net.TCPConn, error) {
		fd, later, err := d.Dial(uint16(port))
		if err != nil {
			return nil, err
		}
		if later == nil {
			return connected(os.NewFile(uintptr(fd), "connection"), nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return later(ctx)
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		var l net.Listener
		if err := n.inside(func() (err error) { l, err = net.Listen("tcp", at); return err }); err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				c, err := dial(port)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.Close()
			})
		}
		wg.Go(func() {
			for range 64 {
				c, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.Close()
			}
		})
		wg.Wait()
		d.mu.Lock()
		m := d.maker
		d.maker = nil
		d.mu.Unlock()
		close(m.stop) // as if nobody had connected for long
		if c, err := dial(port); err != nil {
			t.Error(err)
		} else {
			_ = c.Close()
		}
		_ = l.Close()
		if c, err := dial(port); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, %v, want %v", at, c, err, unix.ECONNREFUSED)
		}
	}
	// On a port of the kernel's own choice a socket can meet itself.
	for port := 40000; port < 40300; port++ {
		if c, err := dial(port); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("port %d: %v, %v", port, c, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if c, err := dial(80); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v, %v", c, err)
	}
}
