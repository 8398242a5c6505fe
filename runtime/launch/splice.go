package launch

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// spliceMax is how much one splice(2) is asked to move: more than a pipe can hold.
const spliceMax = 1 << 20

const (
	// A pipe has this many bytes at first (pipe(7)). One that is found full is enlarged: who
	// writes has else to wait for two others each time.
	pipeSize = 64 << 10
	bigPipe  = 1 << 20 // the most that a process without privileges may ask for
	// Pages in pipes count against a user (pipe-user-pages-soft, 64 MiB): beyond that all of
	// the user's new pipes are small.
	maxBigPipes = 16
)

// bigPipes are in use.
var bigPipes atomic.Int32

// errEmpty says that the source of a splice has nothing now.
var errEmpty = errors.New("nothing to splice")

// splicePipes moves from pipe to pipe without touching the bytes, until the source is at its
// end, which is nil, or fails. ok is false when these are not two pipes, and nothing was
// moved.
func splicePipes(src io.Reader, dst io.Writer) (ok bool, err error) {
	from, isFile := src.(*os.File)
	if !isFile || !isPipe(from) {
		return false, nil
	}
	var when func(do func(fd int) error) error
	switch to := dst.(type) {
	case *os.File:
		if !isPipe(to) {
			return false, nil
		}
		when = func(do func(fd int) error) error { return whenWritable(to, do) }
	case *foreign:
		if !isPipe(to.f) {
			return false, nil
		}
		when = func(do func(fd int) error) error { return to.when(unix.POLLOUT, do) }
	default:
		return false, nil
	}
	in, err := from.SyscallConn()
	if err != nil {
		return false, nil
	}
	big := false
	defer func() {
		if big {
			bigPipes.Add(-1)
		}
	}()
	for {
		// Waits in the runtime's poller, which a deadline or Close ends.
		if err := in.Read(func(fd uintptr) bool { return readable(int(fd)) }); err != nil {
			return true, err
		}
		var n int64
		var serr error
		err := in.Control(func(fd uintptr) {
			serr = when(func(to int) error {
				var err error
				n, err = unix.Splice(int(fd), nil, to, nil, spliceMax, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
				if err == unix.EAGAIN && !readable(int(fd)) {
					return errEmpty // somebody else has read it
				}
				return err
			})
		})
		switch {
		case err != nil:
			return true, err
		case errors.Is(serr, errEmpty):
		case serr != nil:
			return true, serr
		case n == 0:
			return true, nil
		case n >= pipeSize && !big:
			big = enlarge(in)
		}
	}
}

// enlarge makes a pipe big, if not too many are. It stays so until its relay ends.
func enlarge(pipe syscall.RawConn) bool {
	if bigPipes.Add(1) > maxBigPipes {
		bigPipes.Add(-1)
		return false
	}
	// A pipe that stays small is no error.
	_ = pipe.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, bigPipe) })
	return true
}

// whenWritable does what may be done while a pipe takes more, again while that is EAGAIN.
func whenWritable(f *os.File, do func(fd int) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var derr error
	err = rc.Write(func(fd uintptr) bool {
		for derr = unix.EINTR; errors.Is(derr, unix.EINTR); {
			derr = do(int(fd))
		}
		return !errors.Is(derr, unix.EAGAIN)
	})
	if err != nil {
		return err
	}
	return derr
}

// readable says whether a pipe has something, or is at its end.
func readable(fd int) bool {
	now, err := sys.Ready(fd, unix.POLLIN)
	return err == nil && now != 0
}

func isPipe(f *os.File) bool {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	pipe := false
	_ = rc.Control(func(fd uintptr) {
		var st unix.Stat_t
		pipe = unix.Fstat(int(fd), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
	})
	return pipe
}
