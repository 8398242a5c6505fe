package sys

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigchld is the head of siginfo_t as waitid(2) fills it, on 64-bit machines:
// three ints, padding to the union's alignment, then _sigchld
// (asm-generic/siginfo.h).
type sigchld struct {
	_   [3]int32
	_   int32
	pid int32
}

// The struct must fit what the kernel writes.
var _ [unsafe.Sizeof(unix.Siginfo{}) - unsafe.Sizeof(sigchld{})]byte

// ExitedChild returns the pid of some child that has exited and was not waited
// for, without reaping it, and 0 when there is none. It does not block.
func ExitedChild() (pid int, err error) {
	var info unix.Siginfo
	for {
		err = unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.ECHILD) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("waitid: %w", err)
	}
	return int((*sigchld)(unsafe.Pointer(&info)).pid), nil
}

// Reap takes the exit status of the child pid, which must have exited, as
// wait4(2) gives it.
func Reap(pid int) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait4 %d: %w", pid, err)
		case got != pid:
			return 0, fmt.Errorf("wait4 %d: still running", pid)
		}
		return ws, nil
	}
}

// OpenPidfd opens a pidfd of pid (pidfd_open(2)), non-blocking so that the Go
// runtime's poller takes it. The caller must know that pid is still the process
// it means: a child that nobody has waited for.
func OpenPidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)), nil
}

// AwaitExit blocks until the process of pidfd, as OpenPidfd made it, has
// exited, or pidfd is closed (os.ErrClosed). It costs no thread: the poller
// watches the pidfd, which becomes readable when the process exits.
func AwaitExit(pidfd *os.File) error {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return rc.Read(func(fd uintptr) bool { return readable(fd) })
}

// HasExited reports whether the process of pidfd, of whatever mode, has exited,
// reaped or not.
func HasExited(pidfd *os.File) (exited bool, err error) {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return false, err
	}
	err = rc.Control(func(fd uintptr) { exited = readable(fd) })
	return exited, err
}

func readable(fd uintptr) bool {
	now, err := Ready(int(fd), unix.POLLIN)
	return err == nil && now != 0
}

// Ready returns which of events an fd is ready for, and what poll(2) reports unasked: POLLHUP, POLLERR and POLLNVAL. It
// does not wait. A signal that is pending makes poll(2) fail with EINTR also when there is nothing to wait for
// (fs/select.c, do_poll); it is asked again then.
func Ready(fd int, events int16) (int16, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if _, err := unix.Poll(fds, 0); !errors.Is(err, unix.EINTR) {
			return fds[0].Revents, err
		}
	}
}

// KillPidfd sends SIGKILL to pidfd's process. One that is gone already is no
// error.
func KillPidfd(pidfd *os.File) error {
	rc, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	var kerr error
	err = rc.Control(func(fd uintptr) {
		kerr = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0)
	})
	if err == nil && kerr != nil && !errors.Is(kerr, unix.ESRCH) {
		err = fmt.Errorf("kill %s: %w", pidfd.Name(), kerr)
	}
	return err
}
