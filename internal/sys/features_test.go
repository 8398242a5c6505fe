package sys

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
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
		got, err := Dumpable(os.Getpid())
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil || got != want {
			t.Errorf("%t, %v; want %t", got, err, want)
		}
	}
}
