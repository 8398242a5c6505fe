package exec_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// forks counts how many children fit into the limit that commands have, lowered so
// that the machine does not notice; the kernel counts them per user namespace.
const forks = `
import os, resource, signal
soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
print(hard)
resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
children = []
try:
    while len(children) < 200:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except BlockingIOError:
    print("EAGAIN")
print(len(children))
for pid in children:
    os.kill(pid, signal.SIGKILL)
`

// TestProcessLimit: a fork bomb is bounded for every kind of user, with and without
// cgroups, by a limit that root inside cannot raise.
func TestProcessLimit(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	out := strings.Fields(w.Inside(t, "python3", "-c", forks))
	if len(out) != 3 {
		t.Fatalf("got %q", out)
	}
	hard, err := strconv.Atoi(out[0])
	if err != nil || hard < 1 || hard > 4096 {
		t.Errorf("RLIMIT_NPROC %s, want at most 4096", out[0])
	}
	if n, err := strconv.Atoi(out[2]); out[1] != "EAGAIN" || err != nil || n > 60 {
		t.Errorf("%s children, then %s; want at most 60, then EAGAIN", out[2], out[1])
	}
	raise := `
import resource
try:
    resource.setrlimit(resource.RLIMIT_NPROC, (5000, 5000))
    print("raised")
except ValueError as e:
    print("refused")
resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))
print("lowered")`
	if out := strings.Fields(w.Inside(t, "python3", "-c", raise)); len(out) != 2 || out[0] != "refused" ||
		out[1] != "lowered" {
		t.Errorf("raise and lower the hard limit: %q", out)
	}
}
