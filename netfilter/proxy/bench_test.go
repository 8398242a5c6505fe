package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// ways are the two ways to a server on loopback: past the proxy, and through it.
func ways(b *testing.B, entry, name string, port uint16) map[string]netip.AddrPort {
	r := start(b, allow(entry))
	r.hosts.set(name, []string{"127.0.0.1"})
	return map[string]netip.AddrPort{
		"direct": netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
		"proxy":  r.address(name, port),
	}
}

func dialRaw(b *testing.B, at netip.AddrPort) *net.TCPConn {
	b.Helper()
	c, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkThroughput: one stream, in chunks of 1 MiB.
func BenchmarkThroughput(b *testing.B) {
	const chunk = 1 << 20
	serve(b, "127.0.0.1:9000", func(c *net.TCPConn) {
		mode := make([]byte, 1)
		if _, err := io.ReadFull(c, mode); err != nil {
			return
		}
		buf := make([]byte, chunk)
		for {
			var err error
			if mode[0] == 'u' {
				_, err = c.Read(buf)
			} else {
				_, err = c.Write(buf)
			}
			if err != nil {
				return
			}
		}
	})
	both := ways(b, "tcp://a.test:9000", "a.test", 9000)
	for _, direction := range []string{"up", "down"} {
		for way, at := range both {
			b.Run(direction+"/"+way, func(b *testing.B) {
				c := dialRaw(b, at)
				defer c.Close()
				_, _ = c.Write([]byte(direction[:1]))
				buf := make([]byte, chunk)
				b.SetBytes(chunk)
				var before, after unix.Rusage
				_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
				for b.Loop() {
					var err error
					if direction == "up" {
						_, err = c.Write(buf)
					} else {
						_, err = io.ReadFull(c, buf)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
				cpu := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
				b.ReportMetric(cpu/(float64(b.N)*chunk/(1<<30)), "cpu-s/GiB")
			})
		}
	}
}

// BenchmarkConnect: connect, a byte there and back, close.
func BenchmarkConnect(b *testing.B) {
	serve(b, "127.0.0.1:9000", echo)
	for way, at := range ways(b, "tcp://a.test:9000", "a.test", 9000) {
		b.Run(way, func(b *testing.B) {
			one := make([]byte, 1)
			for b.Loop() {
				c := dialRaw(b, at)
				if _, err := c.Write(one); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

// BenchmarkHTTP: requests with a response of 1 KiB on one connection.
func BenchmarkHTTP(b *testing.B) {
	body := make([]byte, 1024)
	response := append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body)), body...)
	serve(b, "127.0.0.1:80", func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if _, err := c.Write(response); err != nil {
				return
			}
		}
	})
	request := []byte("GET /some/path HTTP/1.1\r\nHost: a.test\r\nUser-Agent: curl/8.0\r\nAccept: */*\r\n\r\n")
	for way, at := range ways(b, "a.test", "a.test", 80) {
		b.Run(way, func(b *testing.B) {
			c := dialRaw(b, at)
			defer c.Close()
			buf := make([]byte, len(response))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestIdleMemory: an idle connection costs two goroutines and no buffers. The limit that
// is promised for 10,000 of them, 300 MiB, is 31 KiB each, with the rest of the daemon.
func TestIdleMemory(t *testing.T) {
	const count, most = 1000, 20 << 10
	var served []*net.TCPConn
	l := listener(t, "127.0.0.1:443")
	r := start(t, allow("tcp://a.test:443"))
	r.hosts.set("a.test", []string{"127.0.0.1"})
	at := r.address("a.test", 443)
	before := memory()
	for range count {
		c := dialIdle(t, at)
		defer unix.Close(c)
		s, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		served = append(served, s)
		// Traffic both ways, so that all buffers have been in use.
		one := make([]byte, 1)
		if _, err := unix.Write(c, one); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, one); err != nil {
			t.Fatal(err)
		}
	}
	each := (memory() - before) / count
	t.Logf("%d bytes for each of %d idle connections, with those of the test's own server", each, count)
	if each > most {
		t.Errorf("%d bytes for each idle connection, want at most %d", each, most)
	}
	for _, s := range served {
		s.Close()
	}
}

// dialIdle is a connection that costs this process an fd and nothing else.
func dialIdle(t testing.TB, at netip.AddrPort) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// memory is what the heap and the stacks hold that is in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
