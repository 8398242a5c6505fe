package sys_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestDumpable: what the process itself says of itself, both ways.
func TestDumpable(t *testing.T) {
	for _, want := range []bool{false, true} {
		n := uintptr(0)
		if want {
			n = 1
		}
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, n, 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		got, err := sys.Dumpable(os.Getpid())
		if errors.Is(err, errors.ErrUnsupported) {
			testenv.Require(t, probe.Check{Name: "get_dumpable", Status: probe.No, Detail: err.Error()})
		}
		if err != nil || got != want {
			t.Errorf("%t, %v; want %t", got, err, want)
		}
	}
}
