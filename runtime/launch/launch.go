// Package launch is hutch-launch: it makes the mount namespace that the daemon
// and all sandbox launches share, starts hutchd, and creates and destroys
// sandboxes with libcontainer for it. See DESIGN.md.
package launch

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Config is what the binary wires in.
type Config struct {
	// Filter returns the BPF program (struct sock_filter array) of a built-in
	// seccomp profile; it may cache in stateDir. It is called at most once for
	// each profile, from any goroutine.
	Filter func(stateDir, profile string) ([]byte, error)
	// Custom compiles the text of a caller's profile to such a program.
	Custom func(text string) ([]byte, error)
	// Init names the profile of PID 1 for that of the commands.
	Init func(profile string) string
}

// exitFailed is hutch-launch's exit code when it could not start hutchd.
const exitFailed = 125

// Main is the whole life of hutch-launch. It returns its exit code: hutchd's.
func Main(c Config) int {
	ignoreSignals()
	sys.SetComm("hutch-launch")
	monitor, err := packet.New(os.NewFile(launchapi.BootFD, "monitor"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "hutch-launch: started by hand? fd 3 is not a channel to the monitor:", err)
		return exitFailed
	}
	l, err := boot(c, monitor)
	if err != nil {
		// The monitor that does not hear this any more is gone, and so is the reader
		// of any other message.
		_ = monitor.Send(launchapi.News{Error: launchapi.FromError(err)})
		return exitFailed
	}
	_ = monitor.Send(hello) // a monitor that is gone is seen by supervise
	return l.end(l.supervise(monitor))
}

// ignoreSignals makes the signals that ask a process to stop do nothing: a
// service manager or a shell sends them to everything it started, but only the
// monitor knows whether the sandboxes are to go. They are caught and dropped, because children inherit ignored signals
// through exec and sandboxes would be deaf to them.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
}
