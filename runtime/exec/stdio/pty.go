package stdio

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// pty opens a terminal of the sandbox's own devpts instance. The master stays
// outside: no fd ever comes out of a sandbox. The caller's terminal is reached only
// through the two pipes; without them the terminal is spooled, and written to with
// exec.write.
func (io *IO) pty(req *Request) error {
	p, fds := req.Params, req.FDs
	master, slave, err := openPty(req.Pts, p.Pty)
	if err != nil {
		return err
	}
	io.give, io.master = []*os.File{slave}, master
	if p.Stdio != nil && !p.Detachable {
		return io.connect(p.Stdio, fds)
	}
	own, err := again(master)
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleSpool, own)
	if p.Detachable {
		if err := io.watch(p.Stdio, fds); err != nil {
			return err
		}
	}
	if io.input, err = again(master); err != nil {
		return err
	}
	// A terminal is one stream: there is nothing in stderr.
	empty, w, err := pipe()
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleSpool, empty)
	return w.Close()
}

// connect joins the caller's two files and the terminal.
func (io *IO) connect(of *api.Stdio, fds packet.Taker) error {
	in, err := takeServed(fds, *of.Stdin, "stdin")
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleFrom, in)
	for _, role := range []launchapi.Role{launchapi.RoleTo, launchapi.RoleOut} {
		own, err := again(io.master)
		if err != nil {
			return err
		}
		io.hand(role, own)
	}
	out, err := takeServed(fds, *of.Stdout, "stdout")
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleInto, out)
	return nil
}

// watch lets the caller's two files follow a terminal that is spooled.
func (io *IO) watch(of *api.Stdio, fds packet.Taker) error {
	out, err := takeServed(fds, *of.Stdout, "stdout")
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleInto, out)
	in, err := takeServed(fds, *of.Stdin, "stdin")
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleFrom, in)
	own, err := again(io.master)
	if err != nil {
		return err
	}
	io.hand(launchapi.RoleKeys, own)
	return nil
}

// takeServed takes a file of the caller's that hutch-launch is to serve. It does not
// cross into the sandbox, so terminals and sockets will do. But hutch-launch opens it
// anew: that would lose a regular file's offset and O_APPEND, and overwrite what is there.
func takeServed(fds packet.Taker, index int, name string) (*os.File, error) {
	f, err := fds.Take(index)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		return f, nil
	}
	if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		return f, nil
	}
	if _, err := mustRelay(f, name, ""); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// again is a second fd of a file, for the poller as the first.
func again(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, derr := -1, error(nil)
	err = rc.Control(func(raw uintptr) { fd, derr = unix.FcntlInt(raw, unix.F_DUPFD_CLOEXEC, 3) })
	if err := errors.Join(err, derr); err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// openPty opens a pair in the sandbox's devpts instance.
func openPty(pts func() (*os.File, error), size *api.Pty) (master, slave *os.File, err error) {
	dir, err := pts()
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), "ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal: %w", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, fmt.Errorf("number of terminal: %w", err)
	}
	if err := setSize(master, *size); err != nil {
		return nil, nil, err
	}
	sfd, err := unix.Openat(int(dir.Fd()), strconv.Itoa(int(n)),
		unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal's slave: %w", err)
	}
	return master, os.NewFile(uintptr(sfd), "pts"), nil
}

// setSize sets a terminal's size; the kernel sends SIGWINCH inside.
func setSize(master *os.File, size api.Pty) error {
	rc, err := master.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) {
		serr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	}); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("set terminal size %dx%d: %w", size.Rows, size.Cols, serr)
	}
	return nil
}

// Resize sets the size of the terminal; ok is false where there is none.
func (io *IO) Resize(size api.Pty) (ok bool, err error) {
	if io.master == nil {
		return false, nil
	}
	return true, setSize(io.master, size)
}
