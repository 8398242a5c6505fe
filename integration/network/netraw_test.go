package network_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// closedPort is one of loopback that nothing listens on.
func closedPort(t testing.TB) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return portOf(t, l.Addr())
}

// silent is a port where connections wait in the dark, because its queue is full, until
// answer is called: then they are greeted.
func silent(t testing.TB) (port uint16, answer func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	filler, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { _ = filler.Close(); _ = l.Close(); wg.Wait() })
	return portOf(t, l.Addr()), func() {
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer c.Close()
					_, _ = io.WriteString(c, "hello\n")
					_, _ = io.Copy(io.Discard, c)
				})
			}
		})
	}
}

// dialling counts the sockets of this host that are connecting to a port of loopback.
func dialling(t testing.TB, port uint16) int {
	t.Helper()
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const synSent = "02"
	n := 0
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == fmt.Sprintf("0100007F:%04X", port) && f[3] == synSent {
			n++
		}
	}
	return n
}

func awaitDialling(t testing.TB, port uint16, want func(int) bool, what string) {
	t.Helper()
	n := 0
	defer func() {
		if t.Failed() {
			t.Logf("%d connections that are being made", n)
		}
	}()
	testenv.Poll(t, 30*time.Second, what, func() bool {
		n = dialling(t, port)
		return want(n)
	})
}

// networkWall is what the record says of how the policy is enforced.
func (w *netWorld) networkWall(t testing.TB, sandbox string) string {
	t.Helper()
	rec, err := w.c.GetSandbox(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rec.Isolation.Walls, func(w api.Wall) bool { return w.Name == "network" })
	if i < 0 {
		t.Fatalf("walls %+v", rec.Isolation.Walls)
	}
	return rec.Isolation.Walls[i].Detail
}

// forbidden is how connect(2) fails where the policy refuses a port that need not show a name.
func (w *netWorld) forbidden(t *testing.T, sandbox string) string {
	t.Helper()
	if strings.Contains(w.networkWall(t, sandbox), "tproxy-hold") {
		return "EHOSTUNREACH"
	}
	return "ECONNRESET"
}

// TestNetworkRaw: connect(2) to a raw port fails as the server's side does, where the
// kernel can hold connections; where it cannot, or shall not, they are reset.
func TestNetworkRaw(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	for what, c := range map[string]struct{ env, refused, unreachable, noNetwork, forbidden, wall string }{
		"held": {"", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EHOSTUNREACH", "by tproxy-hold"},
		"tproxy": {"HUTCH_NETWORK_WAY=tproxy", "ECONNRESET", "ECONNRESET", "ECONNRESET", "ECONNRESET",
			"by tproxy (asked for)"},
		"redirect": {"HUTCH_NETWORK_WAY=redirect", "ECONNRESET", "ECONNRESET", "ECONNRESET", "ECONNRESET", "redirect"},
		"per-port": {"HUTCH_NETWORK_WAY=per-port", "ECONNRESET", "ECONNRESET", "ECONNRESET", "ECONNRESET", "per-port"},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "held" {
				testenv.Require(t, probe.NFTablesQueue(t.Context()))
			}
			w := newNetWorld(t, []string{"raw.test", "other.test"}, c.env)
			w.set("broadcast.test", netip.MustParseAddr("255.255.255.255")) // TCP has no way there, and sends nothing
			alive, dead := webServer(t, "hello"), closedPort(t)
			tcp := func(name string, port uint16) string { return fmt.Sprintf("tcp://%s:%d", name, port) }
			sb := w.box(t, api.NetPolicy{Mode: api.NetAllow, AllowCIDRs: []string{"127.0.0.0/8", "255.255.255.255"},
				Allow: []string{
					tcp("raw.test", alive), tcp("raw.test", dead), tcp("unknown.test", dead),
					tcp("broadcast.test", dead),
					tcp("other.test", 1),
				}})
			if wall := w.networkWall(t, sb); !strings.Contains(wall, c.wall) {
				t.Errorf("wall %q, want %q", wall, c.wall)
			}
			w.fetches(t, sb, connecting("raw.test", alive), "200 OK")
			w.denied(t, sb, connecting("raw.test", dead), c.refused, nil)
			w.denied(t, sb, connecting("unknown.test", dead), c.unreachable, nil)
			w.denied(t, sb, connecting("broadcast.test", dead), c.noNetwork, nil)
			w.fetches(t, sb, connecting("raw.test", alive), "200 OK")
			if what == "per-port" {
				w.denied(t, sb, connecting("raw.test", 1), closed(c.forbidden), byName("raw.test", "mode allow"))
			} else {
				w.denied(t, sb, connecting("other.test", alive), closed(c.forbidden),
					byName("other.test", "mode allow"))
			}
			w.OK(t, "rm", "-f", sb)
		})
	}
}

// TestNetworkRawGivesUp: of a program that does not wait until its server answers nothing
// is left, also where it is many: those are refused at once, and others have room.
func TestNetworkRawGivesUp(t *testing.T) {
	testenv.Suite(t, "slow")
	world.NeedsPython(t)
	world.Needs(t, "curl")
	testenv.Require(t, probe.NFTablesQueue(t.Context()))
	w := newNetWorld(t, []string{"raw.test", "web.test"})
	port, _ := silent(t)
	web := webServer(t, "hello")
	policy := []string{fmt.Sprintf("tcp://raw.test:%d", port), fmt.Sprintf("web.test:%d", web)}
	victim, sb := w.allowing(t, policy...), w.allowing(t, policy...)
	fetch := fmt.Sprintf("curl -sS -m 15 http://web.test:%d", web)
	c := w.Launch(t, "exec", "-i", sb, "--", "python3", "-u", "-c", `
import errno, resource, select, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
to = (socket.gethostbyname("raw.test"), int(sys.argv[1]))
poll, waits, ends = select.poll(), {}, {}
def look(ms):
    for fd, _ in poll.poll(ms):
        poll.unregister(fd)
        e = waits.pop(fd).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        ends[errno.errorcode.get(e, "connected")] = ends.get(errno.errorcode.get(e, "connected"), 0) + 1
for i in range(int(sys.argv[2])):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(to)
    waits[s.fileno()] = s
    poll.register(s, select.POLLOUT)
    look(0)
while not ends: look(-1)
print("ends", *ends)
sys.stdin.readline()
while waits: waits.popitem()[1].close()
print("gone")
sys.stdin.readline()
`, fmt.Sprint(port), "1500")
	c.Await(t, "ends ECONNREFUSED")
	if n := dialling(t, port); n < 100 || n > 1100 {
		t.Errorf("%d connections are being made, want some, and no more than are held", n)
	}
	w.fetches(t, victim, fetch, "hello")
	// Beside refusals that are nobody's in particular: some connections are still being tried.
	if res := w.in(t, sb, fetch); !strings.Contains(res.Stdout, "hello") {
		t.Errorf("%+v", res)
	}
	n, err := w.c.Network(t.Context(), sb)
	if err != nil || !slices.ContainsFunc(n.Denials, byName("raw.test", "connection limit")) {
		t.Errorf("%+v, %v", n.Denials, err)
	}
	if _, err := io.WriteString(c.Stdin, "go on\n"); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "gone")
	awaitDialling(t, port, func(n int) bool { return n == 0 }, "connections for a program that has given up")
	w.denied(t, sb, connecting("raw.test", closedPort(t)), closed("EHOSTUNREACH"), byName("raw.test", "mode allow"))
	w.OK(t, "rm", "-f", sb, victim)
	_ = world.Await(t, c.Cmd)
}

// TestNetworkRawDeath: what waits for its server while hutchd is killed is connected by the
// next one, and in between nothing is.
func TestNetworkRawDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	world.NeedsPython(t)
	testenv.Require(t, probe.NFTablesQueue(t.Context()))
	w := newNetWorld(t, []string{"raw.test", "other.test"})
	port, answer := silent(t)
	dead := closedPort(t)
	sb := w.allowing(t, fmt.Sprintf("tcp://raw.test:%d", port), fmt.Sprintf("tcp://raw.test:%d", dead))
	c := w.Launch(t, "exec", sb, "--", "python3", "-u", "-c", `
import socket, sys
to = (socket.gethostbyname("raw.test"), int(sys.argv[1]))
print("ready")
s = socket.create_connection(to)
print("connected", s.recv(100).decode())
`, fmt.Sprint(port))
	c.Await(t, "ready")
	awaitDialling(t, port, func(n int) bool { return n == 1 }, "a connection that is being made")
	world.Kill(t, w.Daemon(t).Hutchd)
	answer()
	w.c = w.Connect(t)
	c.Await(t, "connected hello")
	_ = world.Await(t, c.Cmd)
	w.denied(t, sb, connecting("raw.test", dead), "ECONNREFUSED", nil)
	w.denied(t, sb, connecting("other.test", port), "gaierror", byName("other.test", "mode allow"))
	// A raw port that comes after that.
	later := closedPort(t)
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: sb,
			Add: &api.NetLists{Allow: []string{fmt.Sprintf("tcp://raw.test:%d", later)}}}); err != nil {
		t.Fatal(err)
	}
	w.denied(t, sb, connecting("raw.test", later), "ECONNREFUSED", nil)
	w.OK(t, "rm", "-f", sb)
}
