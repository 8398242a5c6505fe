package jsonrpc

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Send writes line, which must end with its newline, and lets files ride on the
// first byte's sendmsg. The files stay the caller's. Only one Send may be under
// way on a connection.
//
// sent is false when nothing has left, so that the connection is still good.
func Send(conn *net.UnixConn, line []byte, files []*os.File) (sent bool, err error) {
	n := 0
	if len(files) > 0 {
		if len(files) > MaxFDs {
			return false, fmt.Errorf("send request: %d fds, at most %d", len(files), MaxFDs)
		}
		err = withFDs(files, nil, func(fds []int) error {
			var err error
			n, _, err = conn.WriteMsgUnix(line, unix.UnixRights(fds...), nil)
			return err
		})
		if err != nil {
			return n > 0, fmt.Errorf("send request with %d fds: %w", len(files), explain(err))
		}
	}
	if n == len(line) {
		return true, nil
	}
	m, err := conn.Write(line[n:])
	if err != nil {
		return n+m > 0, fmt.Errorf("send request: %w", err)
	}
	return true, nil
}

// withFDs calls do while all files are held open, without File.Fd, which may
// set the file description to blocking mode for everybody who shares it.
func withFDs(files []*os.File, fds []int, do func([]int) error) error {
	if len(files) == 0 {
		return do(fds)
	}
	rc, err := files[0].SyscallConn()
	if err != nil {
		return fmt.Errorf("fd %s: %w", files[0].Name(), err)
	}
	var derr error
	if err := rc.Control(func(fd uintptr) {
		derr = withFDs(files[1:], append(fds, int(fd)), do)
	}); err != nil {
		return fmt.Errorf("fd %s: %w", files[0].Name(), err)
	}
	return derr
}

// explain adds what the errno does not say: fds under way are counted per uid
// against the sender's RLIMIT_NOFILE (unix(7), since Linux 4.5).
func explain(err error) error {
	if errors.Is(err, unix.ETOOMANYREFS) {
		return fmt.Errorf("%w (more fds are under way for this user than RLIMIT_NOFILE allows)", err)
	}
	return err
}
