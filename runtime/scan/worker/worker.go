// Package worker is hutch-scan's: it gives up all that a parser does not need, then parses.
package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/scan/engine"
)

// ExitRefused is the exit status of a worker that has not looked at its input, because it could not be confined: a fault of the host's or
// of ours. Any other end without a result is what the code has done to it.
const ExitRefused = 3

// Bounds of the worker's.
const (
	maxMemory  = 1 << 30  // that can be written; what Go reserves and never uses is more than this by itself
	maxSpace   = 8 << 30  // of addresses
	maxStack   = 64 << 20 // of the shell's parser, which recurses
	maxSeconds = 20       // of CPU
	maxInput   = 16 << 20 // code of the largest size, every byte of it escaped
)

// Main reads api.ScanParams from the standard input and writes an api.ScanResult to the standard output.
func Main() int {
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-scan:", err)
		return ExitRefused
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput))
	if err != nil {
		return ExitRefused
	}
	var p api.ScanParams
	if err := json.Unmarshal(text, &p); err != nil {
		return ExitRefused
	}
	res := engine.Scan(p)
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return 1
	}
	return 0
}

// confine bounds this process and takes from it all system calls but those of pipes and memory. It can open no file, make no socket and start
// nothing; the namespaces that it was started in are beside that.
func confine() error {
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(maxMemory / 2)
	for _, l := range []struct {
		what string
		id   int
		max  uint64
	}{
		{"memory", unix.RLIMIT_DATA, maxMemory},
		{"addresses", unix.RLIMIT_AS, maxSpace},
		{"time", unix.RLIMIT_CPU, maxSeconds},
		{"files", unix.RLIMIT_FSIZE, 0},
		{"core files", unix.RLIMIT_CORE, 0},
	} {
		if err := unix.Setrlimit(l.id, &unix.Rlimit{Cur: l.max, Max: l.max}); err != nil {
			return fmt.Errorf("bound %s to %d: %w", l.what, l.max, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid dumps: %w", err)
	}
	return installFilter()
}
