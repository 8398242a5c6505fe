package isolation_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestStressRefused: what stress-ng tries of the kernel's side doors is refused and reported;
// the stressor notices and ends by itself. The twin is the same stressor outside, where the
// host has what it needs.
func TestStressRefused(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	world.Needs(t, "stress-ng")
	world.NeedsInside(t, "/usr/bin/stress-ng")
	sb := w.Create(t, "host")
	worked := 0
	// without a call: refused, but not reported, for programs try it
	for _, tt := range []struct{ stressor, call string }{
		{"key", "add_key"}, {"io-uring", ""}, {"handle", ""}, {"af-alg", "socket"}, {"rawsock", "socket"},
		{"rawpkt", "socket"}, {"dccp", "socket"},
		{"reboot", "reboot"}, {"umount", "mount"}, {"unshare", "unshare"},
	} {
		command := []string{"stress-ng", "--timeout", "1s", "--temp-path", "/tmp", "--" + tt.stressor, "1"}
		r := w.Run(t, append([]string{"exec", "--json", "--timeout", "20", sb, "--"}, command...)...)
		res := world.Decode[api.ExecResult](t, r.Stdout)
		told := slices.ContainsFunc(res.Denials, func(d api.Denial) bool { return d.Target == tt.call })
		if tt.call == "" { // io_uring is not there (ENOSYS)
			told = strings.Contains(res.Stderr, "Operation not permitted") ||
				strings.Contains(res.Stderr, "not supported by the kernel")
		}
		if !told || res.TimedOut || r.Code >= 125 {
			t.Errorf("%s: exit code %d, timed out %v, refused %v: %s", tt.stressor, r.Code, res.TimedOut, res.Denials,
				res.Stderr)
		}
		if tt.stressor == "key" || tt.stressor == "io-uring" { // harmless outside
			command[4] = w.Path("tmp")
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if refused := strings.Contains(string(out), "Operation not permitted") ||
				strings.Contains(string(out), "not supported"); !refused {
				worked++
			} else {
				t.Logf("%s outside: %v: %s", tt.stressor, err, out)
			}
		}
	}
	if worked == 0 {
		t.Error("outside, neither key nor io-uring worked")
	}
	if got := w.OK(t, "exec", sb, "--", "stress-ng", "--pipe", "1", "--pipe-ops", "10", "--quiet"); got != "" {
		t.Errorf("the allowed twin: %q", got)
	}
}
