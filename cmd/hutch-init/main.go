// Command hutch-init is PID 1 of a sandbox: see runtime/guest. hutch-launch
// starts it with its channel to hutchd as fd 3 and its own seccomp filter as
// fd 4; it is of no use to anybody else.
package main

import (
	"fmt"
	"os"

	"github.com/hutch-sh/hutch/runtime/guest"
)

// exitFailed is what `hutch run` exits with for failures of hutch itself.
const exitFailed = 125

func main() {
	if err := guest.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-init:", err)
		os.Exit(exitFailed)
	}
}
