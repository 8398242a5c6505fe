package network_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNetworkNone: without a network a lookup and a connection fail at once, each is told with the flag that would have
// allowed it, in the result, at the terminal and by why, also by the next hutchd, and nothing of it leaves. With the
// flag it works.
func TestNetworkNone(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.EBPF)
	t.Parallel()
	world.NeedsPython(t)
	world.Needs(t, "curl")
	for name, vars := range map[string][]string{"as it is": nil, "without eBPF": {"HUTCH_EBPF=off"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNetWorld(t, []string{"web.test"}, vars...)
			rec, err := w.c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			sb := rec.ID
			literal := func(d api.Denial) bool { // where to, the kernel alone knows
				where := "192.0.2.7:443"
				if vars != nil || !hasEBPF() {
					where = "an address"
				}
				return d.Kind == api.KindNet && d.Target == where && d.Rule == "mode none" && d.Count == 1 &&
					strings.HasPrefix(d.HowToAllow, "--allow-cidr ")
			}
			asked := func(d api.Denial) bool {
				return byName("web.test", "mode none")(d) && d.HowToAllow == "--allow web.test"
			}
			check := func() {
				t.Helper()
				w.denied(t, sb, connecting("web.test", 443), "gaierror [Errno -2] Name or service not known", asked)
				if res := w.in(t, sb, connecting("192.0.2.7", 443)); res.ExitCode == 0 || len(res.Denials) != 1 ||
					!literal(res.Denials[0]) {
					t.Errorf("a literal address: %+v", res)
				}
				// What a command that succeeds finds out so is not what the next one fails of.
				if res := w.in(t, sb, ownAddress); res.ExitCode != 0 {
					t.Errorf("its own address: %+v", res)
				}
				if res := w.in(t, sb, "exit 3"); res.ExitCode != 3 || len(res.Denials) != 0 {
					t.Errorf("without any connection: %+v", res)
				}
				// What is the sandbox's own is no lookup and has a route.
				if res := w.in(t, sb,
					"getent hosts localhost; curl -sS http://127.0.0.1:9; curl -sS http://localhost:9"); res.ExitCode == 0 || len(res.Denials) != 0 {
					t.Errorf("loopback: %+v", res)
				}
			}
			check()
			world.Kill(t, w.Daemon(t).Hutchd)
			w.c = w.Connect(t)
			check()
			if r := w.Run(t, "why", sb); !strings.Contains(r.Stdout, "--allow web.test") {
				t.Errorf("why: %s%s", r.Stdout, r.Stderr)
			}
			w.OK(t, "rm", "-f", sb)
			if asked := w.questions(); len(asked) > 0 {
				t.Errorf("asked outside: %q", asked)
			}
		})
	}
}

// ownAddress is how programs learn their own address: a datagram socket that sends nothing.
const ownAddress = `exec python3 -c "import socket
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 53))
except OSError as e: print(e)"`

// TestNetworkFailed: what is allowed and fails outside is told with its cause, and is no denial.
func TestNetworkFailed(t *testing.T) {
	testenv.Axes(t, testenv.EBPF)
	t.Parallel()
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"web.test", "down.test"})
	port := webServer(t, "hello")
	sb := w.allowing(t, "unknown.test", "tcp://down.test:9", fmt.Sprintf("web.test:%d", port))
	w.fetches(t, sb, fmt.Sprintf("curl -sS http://web.test:%d", port), "hello")
	for _, tt := range []struct{ command, target, errno, why string }{
		{"curl -sS https://unknown.test", "unknown.test:443", "ECONNRESET", "knows no address of unknown.test"},
		{"curl -fsS http://unknown.test", "unknown.test:80", "HTTP 502", "knows no address of unknown.test"},
		{"curl -sS http://down.test:9", "down.test:9", "ECONNREFUSED", "nothing listens at 127.0.0.1 port 9"},
	} {
		res := w.in(t, sb, tt.command)
		if res.ExitCode == 0 || len(res.Denials) != 0 || len(res.Failures) != 1 {
			t.Errorf("%s: %+v", tt.command, res)
			continue
		}
		if f := res.Failures[0]; f.Target != tt.target || !strings.Contains(f.Why, tt.why) || f.Hint == "" ||
			f.Exec != res.Exec || f.Errno != tt.errno && w.heldHere(t, sb) {
			t.Errorf("%s: %+v", tt.command, f)
		}
	}
	r := w.Run(t, "why", sb)
	for _, want := range []string{"unknown.test:443", "unknown.test:80", "down.test:9", "nothing listens"} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("why does not tell of %s: %s%s", want, r.Stdout, r.Stderr)
		}
	}
	if r := w.Run(t, "exec", sb, "--", "curl", "-sS", "https://unknown.test"); !strings.Contains(r.Stderr,
		"hutch: network: unknown.test:443 failed: ") {
		t.Errorf("at the terminal: %s", r.Stderr)
	}
	w.OK(t, "rm", "-f", sb)
	if r := w.Run(t, "why", sb); !strings.Contains(r.Stdout, "unknown.test:443") {
		t.Errorf("why of a sandbox that is gone: %s%s", r.Stdout, r.Stderr)
	}
}

// heldHere says whether connections wait until they are dialled, so that their errno is the server's.
func (w *netWorld) heldHere(t testing.TB, sandbox string) bool {
	return strings.Contains(w.wall(t, sandbox, "network").Detail, "tproxy-hold")
}
