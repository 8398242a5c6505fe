// Package worker is the process that parses: one scan from standard input, its result to standard output.
package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/harden"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/scan/engine"
)

// Bounds of the process. Whoever reaches one is killed, which is told as code that cannot be parsed.
const (
	// MaxMemory is what it may write to, in bytes: enough for the tree of 1 MiB of any code that people write. What
	// takes more ends the worker, which is a finding.
	MaxMemory = 1 << 30
	maxCPU    = 10       // seconds
	maxStack  = 64 << 20 // bytes, of a parser that recurses
	// maxInput is a request, whose code JSON may write with six bytes for each of its own.
	maxInput = 6*api.MaxCodeBytes + (1 << 20)
)

// Main is the process. It returns its exit status.
func Main() int {
	sys.SetComm("hutch-scan")
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-scan:", err)
		return api.ScanNotBegun
	}
	data, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	var req engine.Request
	if err == nil {
		err = json.Unmarshal(data, &req)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(engine.Scan(req))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-scan:", err)
		return 1
	}
	return 0
}

// confine takes away everything but three pipes, memory and time. Its namespaces are the parent's gift; files it cannot
// open any more.
func confine() error {
	debug.SetMaxStack(maxStack)
	for _, l := range []struct {
		what int
		most uint64
	}{
		{unix.RLIMIT_DATA, MaxMemory}, {unix.RLIMIT_CPU, maxCPU}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0},
		{unix.RLIMIT_NOFILE, 64},
	} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("limit itself: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid dumps: %w", err)
	}
	return harden.Only(nil)
}
