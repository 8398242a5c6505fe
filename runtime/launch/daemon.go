package launch

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// daemon is the running hutchd.
type daemon struct {
	pid    int
	pidfd  *os.File
	exited chan struct{}   // closed when it has ended
	status unix.WaitStatus // valid after exited
}

// startDaemon starts hutchd with its channels to us and to the monitor, which
// stay the caller's.
func startDaemon(kids *children, binary *os.File, msg *launchapi.Start, toUs, toMonitor *os.File) (*daemon, error) {
	if len(msg.Args) == 0 {
		return nil, api.Errorf(api.InvalidArgument, "start hutchd: no arguments")
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr,
		launchapi.DaemonLaunchFD: toUs, launchapi.DaemonMonitorFD: toMonitor}
	program, path, err := sys.ForExec(binary, files)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	env := append([]string{}, msg.Env...)

	d := &daemon{exited: make(chan struct{})}
	d.pid, err = kids.start(func() (int, error) {
		// Capabilities belong to a thread; the child has those of the one that
		// starts it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := dropInheritable(); err != nil {
			return 0, err
		}
		proc, err := os.StartProcess(path, msg.Args, &os.ProcAttr{Dir: "/", Env: env, Files: files})
		if err != nil {
			return 0, err
		}
		pid := proc.Pid
		return pid, proc.Release() // children waits for it
	})
	if err != nil {
		return nil, api.Errorf(api.Unavailable, "start hutchd: %w", err).
			WithHint("hutchd must be readable and executable for the user it runs as, on a file system without noexec")
	}
	if d.pidfd, err = sys.OpenPidfd(d.pid); err != nil {
		return nil, errors.Join(err, unix.Kill(d.pid, unix.SIGKILL))
	}
	go func() {
		defer close(d.exited)
		d.status = kids.wait(d.pid, d.pidfd)
	}()
	return d, nil
}

// dropInheritable clears the calling thread's ambient and inheritable
// capabilities, which were needed only while its uid was unmapped: uid 0 gets
// its capabilities from exec itself, and a helper that hutchd starts as another
// uid shall have none.
func dropInheritable() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("clear inheritable capabilities: %w", err)
	}
	return nil
}

// kill ends hutchd; exited tells when.
func (d *daemon) kill() { _ = sys.KillPidfd(d.pidfd) }

// exitCode is hutchd's, as a shell has it.
func (d *daemon) exitCode() int {
	if d.status.Signaled() {
		return 128 + int(d.status.Signal())
	}
	return d.status.ExitStatus()
}
