package network_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// flood fills every queue that a sandbox can reach: connections in each state of the
// proxy, questions, datagrams, names that do not exist. Then it says so and stays.
const flood = `
import errno, os, random, resource, socket, sys
raw, web, count = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, failed = [], 0
def connect(name, port, first=b""):
    global failed
    s = socket.socket()
    s.settimeout(20)
    try:
        s.connect((name, port))
        if first: s.send(first)
        held.append(s)
    except OSError: failed += 1
raws, webs = socket.gethostbyname("raw.test"), socket.gethostbyname("web.test")
for i in range(count):
    connect(raws, raw)                             # carried
    connect(webs, web)                             # nothing is said
    connect(webs, web, b"\x16\x03\x01\x02\x00\x01")  # a ClientHello that does not end
    connect(webs, web, b"GET / HTTP/1.1\r\nHost: ")  # a request that does not end
    connect(webs, raw)                             # refused
    connect("198.18.%d.%d" % (random.randrange(256), random.randrange(16, 255)), web)  # nobody's
syns = []
for i in range(10 * count):                        # more at once than are accepted
    s = socket.socket()
    s.setblocking(False)
    try: s.connect_ex((webs if i % 2 else "198.18.99.99", web)); syns.append(s)
    except OSError: break
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
d.connect(("198.18.0.1", 53))
d.setblocking(False)
for i in range(20 * count):
    q = os.urandom(2) + bytes.fromhex("01000001000000000000")
    name = b"n%d" % i if i % 2 else b"raw"
    try: d.send(q + bytes([len(name)]) + name + b"\4test\0" + bytes.fromhex("00010001"))
    except OSError: pass
    try: d.send(os.urandom(random.randrange(1, 600)))
    except OSError: pass
tcp = []
for i in range(100):
    try: tcp.append(socket.create_connection(("198.18.0.1", 53), 5))
    except OSError: pass
print(len(held), failed)
print("ready", flush=True)
sys.stdin.read()
`

// TestNetworkFlood: a sandbox that opens all that it can harms no other, and leaves
// nothing when it is removed in the middle of it.
func TestNetworkFlood(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"raw.test", "web.test"})
	raw, _ := hold(t)
	web := webServer(t, "hello")
	policy := []string{fmt.Sprintf("tcp://raw.test:%d", raw), fmt.Sprintf("web.test:%d", web)}
	fetch := fmt.Sprintf("curl -sS -m 15 http://web.test:%d", web)
	victim := w.allowing(t, policy...)
	w.fetches(t, victim, fetch, "hello")
	d := w.Daemon(t)
	fds := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.Hutchd))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := fds()
	for range 2 {
		sb := w.allowing(t, policy...)
		c := w.Launch(t, "exec", "-i", sb, "--", "python3", "-c", flood, fmt.Sprint(raw), fmt.Sprint(web), "50")
		c.Await(t, "ready")
		w.fetches(t, victim, fetch, "hello")
		if during := fds(); during < before+100 {
			t.Errorf("%d fds under way, %d before: the flood is none", during, before)
		}
		w.OK(t, "rm", "-f", sb)
		_ = world.Await(t, c.Cmd)
	}
	// A few namespaces that are made ahead may be more or fewer.
	if after := fds(); after > before+50 {
		t.Errorf("%d fds are open, %d before", after, before)
	}
	w.fetches(t, victim, fetch, "hello")
	n, err := w.c.Network(t.Context(), victim)
	if err != nil || len(n.Denials) > 0 {
		t.Errorf("%+v, %v", n.Denials, err)
	}
	if _, err := w.c.UpdateNetwork(t.Context(),
		api.NetUpdateParams{Sandbox: victim, Network: &api.NetPolicy{Mode: api.NetNone}}); err != nil {
		t.Fatal(err)
	}
	w.denied(t, victim, fetch, "Could not resolve", byName("web.test", "mode none"))
	w.OK(t, "rm", "-f", victim)
}

// TestNetworkFailsClosed: while there is no hutchd, and when hutchd cannot serve, nothing
// leads out.
func TestNetworkFailsClosed(t *testing.T) {
	testenv.Axes(t, testenv.User)
	world.NeedsPython(t)
	w := newNetWorld(t, []string{"web.test"})
	web := webServer(t, "hello")
	sb := w.allowing(t, fmt.Sprintf("web.test:%d", web))
	// The command asks for names and connects all the time, over the end of hutchd, until
	// it gets an answer after it has been told; all that it ever gets is the server's.
	c := w.Launch(t, "exec", "-i", sb, "--", "python3", "-u", "-c", `
import socket, sys, threading
def fetch(name, port):
    try:
        s = socket.create_connection((name, port), 2)
        s.settimeout(2)
        s.send(b"GET / HTTP/1.0\r\nHost: web.test:%d\r\n\r\n" % port)
        return s.recv(1000).split(b"\r\n")[0].decode()
    except OSError as e: return ""
told = []
threading.Thread(target=lambda: told.append(sys.stdin.readline()), daemon=True).start()
port = int(sys.argv[1])
print("ready", fetch("web.test", port))
while True:
    if fetch("evil.test", port) or fetch("10.0.0.1", port): print("open")
    if fetch("web.test", port) and told: break
print("served")
`, fmt.Sprint(web))
	c.Await(t, "ready HTTP/1.0 200 OK")
	world.Kill(t, w.Daemon(t).Hutchd)
	w.c = w.Connect(t)
	if _, err := w.c.Info(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stdin.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "served")
	_ = world.Await(t, c.Cmd)
	w.OK(t, "rm", "-f", sb)
}
