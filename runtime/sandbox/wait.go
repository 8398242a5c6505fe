package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// waitReadable waits until f, a pidfd, is readable, which is when its process has
// ended, or until f is closed.
func waitReadable(f *os.File) {
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
}
