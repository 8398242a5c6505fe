// Hutch runs untrusted code in rootless sandboxes: the command line.
//
// It does nothing itself. Every verb but version, doctor and completion is one
// or more calls to hutchd, the user's own daemon, which it starts when none runs.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostexec"
)

func main() {
	roomy(0)
	if hostexec.IsRunner() { // what --mode has on the host
		os.Exit(hostexec.Main())
	}
	os.Exit(run(os.Args[1:]))
}

// roomy has the stack of its caller grow once, to what most command lines need, and not in four steps, each of which
// copies all that is there: its frame is large, and touched only when n is not 0.
//
//go:noinline
func roomy(n int) byte {
	if n == 0 {
		return 0
	}
	var frame [48 << 10]byte
	for i := range n {
		frame[i] = byte(i)
	}
	return frame[n/2]
}

// run executes one command line and returns the exit code.
func run(args []string) int {
	args, err := fromDocker(args)
	if err == nil {
		root := newRoot(args)
		root.SetArgs(args)
		var cmd *cobra.Command
		cmd, err = root.ExecuteContextC(context.Background())
		err = inFlags(cmd, args, err)
	}
	if err != nil {
		cli.PrintError(os.Stderr, cli.StyleFor(os.Stderr), err)
	}
	return cli.ExitCode(err)
}
