// Command hutch-init is PID 1 of a sandbox: see runtime/guest. hutch-launch
// starts it with its channel to hutchd as fd 3 and its own seccomp filter as
// fd 4. PID 1 starts it again as a worker, in the role that the argument names.
// It is of no use to anybody else.
package main

import (
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest"
	"github.com/hutch-sh/hutch/runtime/guest/files"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// exitFailed is what `hutch run` exits with for failures of hutch itself.
const exitFailed = 125

func main() {
	if os.Getpid() == 1 {
		sys.SetTitle("hutch-init") // it is started by the number of an fd
	}
	role := guest.Run
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case guestapi.WorkerFiles:
			role = files.Run
		case guestapi.WorkerShell:
			role = guest.RunShell
		}
	}
	if err := role(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-init:", err)
		os.Exit(exitFailed)
	}
}
