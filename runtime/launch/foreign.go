package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// interruptible takes over a file of the caller's and returns it as one whose
// blocked Read or Write ends with its Close. A file of the runtime's poller does,
// but O_NONBLOCK belongs to the file description, which the caller's own processes
// share: so the file is opened anew where this process may, and waited for with poll(2)
// where it may not (root's pipe, a socket).
func interruptible(f *os.File) (io.ReadWriteCloser, error) {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		f.Close()
		return nil, err
	}
	mode := flags & unix.O_ACCMODE
	// hutch-launch leads a session: a terminal must not become its own (open(2), O_NOCTTY).
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mode|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer f.Close()
		return os.NewFile(uintptr(fd), f.Name()), nil
	}
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &foreign{f: f, stop: os.NewFile(uintptr(fd), "eventfd")}, nil
}

// pipeBuf is what fits into a pipe that is writable (PIPE_BUF, linux/limits.h).
const pipeBuf = 4096

// foreign is a file that this process cannot open anew. Its Read and Write take a
// thread each while they wait.
type foreign struct {
	f    *os.File
	stop *os.File // eventfd: readable from Close on
	once sync.Once
}

// Read reads once there is something to read.
func (b *foreign) Read(p []byte) (n int, err error) {
	err = b.when(unix.POLLIN, func(fd int) (err error) {
		n, err = unix.Read(fd, p)
		return err
	})
	n = max(n, 0)
	if err == nil && n == 0 && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write writes all of p, in pieces that a pipe takes without blocking once
// poll(2) says that it is writable (pipe(7), PIPE_BUF).
func (b *foreign) Write(p []byte) (done int, err error) {
	for done < len(p) && err == nil {
		err = b.when(unix.POLLOUT, func(fd int) error {
			n, err := unix.Write(fd, p[done:min(done+pipeBuf, len(p))])
			done += max(n, 0)
			return err
		})
	}
	return done, err
}

// when does what the file is ready for. os.File keeps both fds open meanwhile,
// also when Close comes in between.
func (b *foreign) when(events int16, do func(fd int) error) error {
	file, err := b.f.SyscallConn()
	if err != nil {
		return err
	}
	stop, err := b.stop.SyscallConn()
	if err != nil {
		return err
	}
	var derr error
	cerr := file.Control(func(fd uintptr) {
		serr := stop.Control(func(sfd uintptr) {
			derr = retry(func() error {
				fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(sfd), Events: unix.POLLIN}}
				if _, err := unix.Poll(fds, -1); err != nil {
					return err
				}
				if fds[1].Revents != 0 {
					return os.ErrClosed
				}
				return do(int(fd))
			})
		})
		if serr != nil {
			derr = os.ErrClosed
		}
	})
	if cerr != nil { // internal/poll's own error, which says that it is closed
		return os.ErrClosed
	}
	return derr
}

// retry repeats what a signal, or a reader that was faster, interrupted.
func retry(f func() error) error {
	for {
		err := f()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return err
		}
	}
}

// Close ends what is under way and gives the file back to the kernel.
func (b *foreign) Close() error {
	err := os.ErrClosed
	b.once.Do(func() {
		_, err = b.stop.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
		_ = b.stop.Close()
		if cerr := b.f.Close(); err == nil {
			err = cerr
		}
	})
	return err
}
