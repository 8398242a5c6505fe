package integration_test

import (
	"strings"
	"testing"
)

// TestDebugRun: the story of a command that is refused something names it, says by what and
// how to allow it, and the command's own output and exit code are what they are.
func TestDebugRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needsPython(t)
	const lookup = `import socket, sys
try: socket.getaddrinfo(sys.argv[1], 80)
except OSError as e: print("refused"); sys.exit(4)
print("resolved")`
	r := w.run(t, "debug", "run", "--allow", "good.test", "host", "--", "python3", "-c", lookup, "evil.test")
	if r.code != 4 || r.stdout != "refused\n" {
		t.Errorf("exit %d: %q", r.code, r.stdout)
	}
	for _, want := range []string{"\nsandbox sb_", "  launch ", "  record ", "user namespace", "  refused ", "evil.test, by names NXDOMAIN", "to allow it: --allow evil.test", "nonzero, exit code 4"} {
		if !strings.Contains("\n"+r.stderr, want) {
			t.Errorf("the story lacks %q:\n%s", want, r.stderr)
		}
	}
	// The twin.
	r = w.run(t, "debug", "run", "--allow", "evil.test", "host", "--", "python3", "-c", lookup, "evil.test")
	if r.code != 0 || r.stdout != "resolved\n" || strings.Contains(r.stderr, "  refused ") {
		t.Errorf("allowed: exit %d: %q\n%s", r.code, r.stdout, r.stderr)
	}
	if daemons := w.daemons(); len(daemons) != 0 {
		t.Errorf("daemons are left: %+v", daemons)
	}
}
