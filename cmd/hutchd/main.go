// Command hutchd is hutch's daemon. `hutchd serve` is the monitor, which stays in
// the caller's namespaces and starts hutch-launch; hutch-launch starts `hutchd
// daemon`, which does the work in a user namespace of its own.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/hutch-sh/hutch/internal/yamltree"
	"github.com/hutch-sh/hutch/internal/yamltree/yamlread"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// exitFailed is hutch's exit code for failures of its own.
const exitFailed = 125

func init() {
	// The main thread stays the main goroutine's: a goroutine that changes its
	// thread's namespaces must never get it, because it cannot end.
	runtime.LockOSThread()
}

func main() {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case "serve":
		err = serve(os.Args[2:])
	case "daemon":
		err = runDaemon()
	case connectRole:
		err = connectAll(os.Args[2:])
	case yamltree.Role:
		err = yamlread.Serve(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown role %q: start the daemon with `hutch serve`", role)
	}
	if errors.Is(err, errLeave) {
		os.Exit(monitorapi.ExitLeft)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutchd:", err)
	}
	switch {
	case errors.Is(err, errNotAll):
		os.Exit(monitorapi.ExitFailed)
	case err != nil:
		os.Exit(exitFailed)
	}
}
