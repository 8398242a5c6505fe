package network_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestHostService: host:PORT is that port of the host's loopback, on either family, whatever it speaks, and nothing
// else of the host is.
func TestHostService(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	world.Needs(t, "curl")
	w := newNetWorld(t, []string{"evil.test"})
	web, other := webServer(t, "hello"), webServer(t, "other")
	six, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer six.Close()
	go func() {
		for {
			c, err := six.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("by six\n"))
			_ = c.Close()
		}
	}()
	raw := uint16(six.Addr().(*net.TCPAddr).Port)
	read := func(host string, port uint16) string {
		return fmt.Sprintf("python3 -c 'import socket; print(socket.create_connection((\"%s\", %d), 10).recv(99).decode(), end=\"\")'", host, port)
	}
	for _, mode := range []api.NetMode{api.NetAllow, api.NetOpen} {
		sb := w.box(t, api.NetPolicy{Mode: mode,
			Allow: []string{fmt.Sprintf("host:%d", web), fmt.Sprintf("tcp://host.hutch.internal:%d", raw)}})
		for _, name := range []string{"host", "host.hutch.internal"} {
			w.fetches(t, sb, fmt.Sprintf("curl -sS http://%s:%d", name, web), "hello")
			w.fetches(t, sb, read(name, raw), "by six")
		}
		// Another port of the host's, the same by its address, by a name that leads there, and what is never meant.
		w.denied(t, sb, connecting("host", other), "", byName("host", "host service"))
		for _, to := range []string{"127.0.0.1", "169.254.169.254"} {
			if r := w.in(t, sb, connecting(to, web)); r.ExitCode == 0 {
				t.Errorf("%s: %s is reached: %q", mode, to, r.Stdout)
			}
		}
		if r := w.in(t, sb, fmt.Sprintf("curl -sS -m 9 http://evil.test:%d", web)); r.ExitCode == 0 {
			t.Errorf("%s: a name that is 127.0.0.1 is reached: %q", mode, r.Stdout)
		}
		// A service that is not there fails as it would outside.
		closed, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := uint16(closed.Addr().(*net.TCPAddr).Port)
		_ = closed.Close()
		if _, err := w.c.UpdateNetwork(t.Context(),
			api.NetUpdateParams{Sandbox: sb,
				Add: &api.NetLists{Allow: []string{fmt.Sprintf("host:%d", port)}}}); err != nil {
			t.Fatal(err)
		}
		if r := w.in(t, sb, read("host", port)); r.ExitCode == 0 || !strings.Contains(r.Stderr, "refused") &&
			!strings.Contains(r.Stderr, "reset") && !strings.Contains(r.Stderr, "aborted") {
			t.Errorf("%s: nobody listens: %+v", mode, r)
		}
		// It ends with its entry.
		if _, err := w.c.UpdateNetwork(t.Context(),
			api.NetUpdateParams{Sandbox: sb,
				Remove: &api.NetLists{Allow: []string{fmt.Sprintf("host:%d", web)}}}); err != nil {
			t.Fatal(err)
		}
		w.denied(t, sb, connecting("host", web), "", byName("host", "host service"))
		w.OK(t, "rm", "-f", sb)
	}
	// Nobody gets one who has not asked.
	sb := w.box(t, api.NetPolicy{Mode: api.NetOpen})
	w.denied(t, sb, connecting("host", web), "gaierror", byName("host", "host service"))
	if asked := w.questions(); len(asked) != 1 || asked[0] != "evil.test" {
		t.Errorf("looked up: %q", asked)
	}
	w.Run(t, "network", "check", "--allow", "host:5432", "host:22").Want(t, 1)
	w.OK(t, "network", "check", "--allow", "host:5432", "host:5432")
	w.Run(t, "run", "--allow", "host", "host", "true").Want(t, 125).Says(t, "every service of this host", "host:5432")
}
