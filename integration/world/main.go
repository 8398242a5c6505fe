package world

import (
	"fmt"
	"os"
	"os/signal"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
)

// checked is a testing.M that fails when the tests left fds or goroutines of
// this process behind.
type checked struct{ m *testing.M }

func (c checked) Run() int { return leak.Main(c.m) }

// Main is the TestMain of every story. It does not return.
func Main(m *testing.M) {
	// Whatever a daemon leaves behind becomes a child of this process, where the
	// check after each test finds it. See left.go.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become a subreaper:", err)
		os.Exit(1)
	}
	// What a shell's background job ignores its children would ignore, too.
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // caught is default behind exec
		}
	}
	testscript.Main(checked{m}, nil)
}
