// Package leak fails the tests of a package that leave file descriptors or
// goroutines behind.
//
//	func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }
package leak

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long what a test has already closed may take to end: a
// goroutine that was told to stop still has to be scheduled.
const patience = 5 * time.Second

// Main runs the tests and then compares the process with what it was before. It
// returns the exit status. Goroutines with one of these functions on their stack live as long as the process.
func Main(m *testing.M, forever ...string) int {
	if err := startPoller(); err != nil {
		fmt.Fprintln(os.Stderr, "leak check:", err)
		return 1
	}
	before := openFDs()
	status := m.Run()
	if status != 0 {
		return status
	}
	deadline := time.Now().Add(patience)
	for {
		fds, stacks := newFDs(before), strayGoroutines(forever)
		if len(fds) == 0 && len(stacks) == 0 {
			return 0
		}
		if time.Now().After(deadline) {
			for _, fd := range fds {
				fmt.Fprintln(os.Stderr, "leaked fd:", fd)
			}
			for _, s := range stacks {
				fmt.Fprintf(os.Stderr, "leaked goroutine:\n%s\n\n", s)
			}
			return 1
		}
		runtime.GC() // pipes that net has pooled for splice(2) are closed by it
	}
}

// startPoller makes the runtime open its epoll instance, which stays open.
func startPoller() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_ = r.Close()
	return w.Close()
}

// openFDs maps the open fds to what they refer to.
func openFDs() map[string]string {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	fds := make(map[string]string)
	for _, e := range entries {
		// The fd that lists the folder is gone by now and has no target.
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			fds[e.Name()] = target
		}
	}
	return fds
}

func newFDs(before map[string]string) []string {
	var found []string
	for fd, target := range openFDs() {
		if before[fd] != target {
			found = append(found, fd+" -> "+target)
		}
	}
	slices.Sort(found)
	return found
}

// strayGoroutines returns the stacks of goroutines that are neither the test
// runner's nor the runtime's.
func strayGoroutines(forever []string) []string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var stray []string
	for i, stack := range bytes.Split(buf, []byte("\n\n")) {
		s := string(stack)
		switch {
		case i == 0: // this one
		case slices.ContainsFunc(forever, func(f string) bool { return strings.Contains(s, f) }):
		case strings.Contains(s, "testing.(*M)."), strings.Contains(s, "os/signal."),
			strings.Contains(s, "runtime/pprof."),
			strings.Contains(s, "internal/fuzz."), strings.Contains(s, "runtime.ensureSigM"):
		default:
			stray = append(stray, s)
		}
	}
	return stray
}
