// Package launch is hutch-launch: it makes the mount namespace that the daemon
// and all sandbox launches share, starts hutchd, and creates and destroys
// sandboxes with libcontainer for it. See DESIGN.md.
package launch

import (
	"encoding/json"
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
	defer monitor.Close()
	l, err := boot(c, monitor)
	if err != nil {
		// The monitor that does not hear this any more is gone, and so is the reader
		// of any other message.
		_ = monitor.Send(launchapi.Booted{Error: launchapi.FromError(err)})
		return exitFailed
	}
	if err := monitor.Send(launchapi.Booted{DaemonPID: l.daemon.pid}); err != nil {
		return l.end(endedMonitor)
	}
	return l.end(l.supervise(monitor))
}

// ignoreSignals makes the signals that ask a process to stop do nothing: a
// service manager or a shell sends them to everything it started, but only the
// monitor knows whether the sandboxes are to go. It says so by closing the
// channel. They are caught and dropped, because children inherit ignored signals
// through exec and sandboxes would be deaf to them.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
}

// ending is why hutch-launch stops.
type ending int

const (
	endedDaemon  ending = iota // hutchd exited
	endedMonitor               // the monitor closed its channel, or died
)

// launcher is a booted hutch-launch.
type launcher struct {
	server   *server
	daemon   *daemon
	children *children
}

// supervise serves hutchd until it, or the monitor, is gone. Keeping sandboxes
// over a crash of hutchd starts here: start it again with a new channel instead
// of returning.
func (l *launcher) supervise(monitor *packet.Conn) ending {
	served := make(chan struct{})
	go func() {
		defer close(served)
		l.server.serve()
	}()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		drain(monitor)
	}()
	var why ending
	select {
	case <-l.daemon.exited:
		why = endedDaemon
	case <-gone:
		why = endedMonitor
	}
	l.server.hangUp()
	<-served
	_ = monitor.Close()
	<-gone
	return why
}

// drain reads until the channel ends: the monitor has nothing more to say.
func drain(monitor *packet.Conn) {
	for {
		var ignored json.RawMessage
		files, err := monitor.Recv(&ignored)
		if err != nil {
			return
		}
		packet.CloseAll(files)
	}
}

// end stops everything below hutch-launch and returns the exit code. Mounts end
// with the mount namespace, and folders are hutchd's, whose next start sweeps
// them; processes and cgroups would stay.
func (l *launcher) end(why ending) int {
	if why == endedMonitor {
		l.daemon.kill()
	}
	<-l.daemon.exited
	if err := l.server.close(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-launch: end sandboxes:", err)
	}
	if err := l.children.killAll(); err != nil {
		fmt.Fprintln(os.Stderr, "hutch-launch: end processes:", err)
	}
	return l.daemon.exitCode()
}
