package network_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// What the daemon may take with so many idle connections, in MiB: hutchd, hutch-launch and the monitor, each with all
// of its resident set. Memory is no matter of time, so it is asserted wherever this runs, emulated machines included.
// Where a process may not have the file descriptors, fewer connections may take less in proportion.
const (
	idleConnections = 10000
	idleLeast       = 4000
	idleBoxes       = 4 // of which each has its share of them
	idleDaemon      = 300
)

// idlers holds as many connections as it is told: every other one to a raw port, the rest
// HTTP that is kept open. All of them carry something at first, and again when it is told so.
const idlers = `
import resource, socket, sys
raw, web, count = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
request = b"GET / HTTP/1.1\r\nHost: idle.test:%d\r\n\r\n" % web
address = socket.gethostbyname("idle.test")
def use(s, is_raw):
    s.sendall(b"echo" if is_raw else request)
    got = s.recv(1000)
    return got == b"echo" if is_raw else got.startswith(b"HTTP/1.1 200 ")
def each(held): return sum(use(s, i % 2) for i, s in enumerate(held))
held = []
for i in range(count):
    held.append(socket.create_connection((address, raw if i % 2 else web)))
    if not use(held[-1], i % 2): sys.exit("connection %d carries nothing" % i)
print("idle", flush=True)
sys.stdin.readline()
print("alive", each(held), flush=True)
`

// echo is a server that says what it is told, and its port.
func echo(t testing.TB) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				// Not spliced: that holds a pipe for each connection. The client says what went wrong.
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return portOf(t, l.Addr())
}

// idleCount is how many connections this machine lets hutchd hold: it has two file descriptors for each, and some for
// itself.
func idleCount(t testing.TB) int {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := (int(min(limit.Max, 1<<20)) - 2048) / 2
	c := probe.Check{Name: "nofile", Status: probe.Yes,
		Detail: fmt.Sprintf("a hard limit of %d file descriptors: %d connections", limit.Max, n)}
	if n < idleLeast {
		c.Status = probe.No
	}
	testenv.Require(t, c)
	return min(n, idleConnections) / idleBoxes * idleBoxes
}

// TestNetworkIdle: 10,000 connections through the policy (or as many as fit into the limit of file descriptors), on
// which nothing happens, take little of the daemon's memory, and carry bytes as before when something does.
func TestNetworkIdle(t *testing.T) {
	testenv.Suite(t, "many")
	world.NeedsPython(t)
	count := idleCount(t)
	w := newNetWorld(t, []string{"idle.test"})
	raw, web := echo(t), webServer(t, "hello")
	d := w.Daemon(t)
	// daemon is its memory in units of 1000 KiB.
	daemon := func() (sum int) {
		for _, pid := range []int{d.Monitor, d.Launch, d.Hutchd} {
			sum += world.Memory(t, pid, "VmRSS")
		}
		return sum
	}
	// open counts hutchd's file descriptors.
	open := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.Hutchd))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	var boxes []string
	for range idleBoxes {
		boxes = append(boxes, w.allowing(t, fmt.Sprintf("tcp://idle.test:%d", raw), fmt.Sprintf("idle.test:%d", web)))
	}
	before, fds := daemon(), open()
	var clients []*world.Client
	for _, sb := range boxes { // at once
		clients = append(clients, w.Launch(t, "exec", "-i", "--timeout", "30m", sb, "--", "python3", "-c", idlers,
			fmt.Sprint(raw), fmt.Sprint(web), fmt.Sprint(count/idleBoxes)))
	}
	for _, c := range clients {
		c.Await(t, "idle")
	}
	held, fds := daemon(), open()-fds
	t.Logf("%d idle connections of %d sandboxes: the daemon takes %d MB, %d before (hutchd %d, hutch-launch %d, monitor %d), and hutchd %d more fds",
		count, idleBoxes, held, before, world.Memory(t, d.Hutchd, "VmRSS"), world.Memory(t, d.Launch, "VmRSS"),
		world.Memory(t, d.Monitor, "VmRSS"), fds)
	if most := idleDaemon * 1024 / 1000 * count / idleConnections; held > most {
		t.Errorf("the daemon takes %d MB, more than %d", held, most)
	}
	// A few namespaces that are made ahead may be fewer.
	if fds < 2*count-100 {
		t.Errorf("hutchd has %d more fds: not all connections are its", fds)
	}
	for _, c := range clients {
		if _, err := io.WriteString(c.Stdin, "go on\n"); err != nil {
			t.Fatal(err)
		}
		c.Await(t, fmt.Sprintf("alive %d", count/idleBoxes))
		if code := c.End(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	for _, sb := range boxes {
		if n, err := w.c.Network(t.Context(), sb); err != nil || len(n.Denials) > 0 {
			t.Errorf("%+v, %v", n.Denials, err)
		}
		w.OK(t, "rm", "-f", sb)
	}
}
