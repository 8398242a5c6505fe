package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// pty opens a terminal of the sandbox's own devpts instance. The master stays
// here: no fd ever comes out of a sandbox. The caller's terminal is reached only
// through the two pipes.
func (io *stdio) pty(s *Sandbox, p *api.ExecParams, fds Taker) error {
	in, err := fds.Take(*p.Stdio.Stdin)
	if err != nil {
		return err
	}
	if in, err = pollable(in); err != nil {
		return err
	}
	out, err := fds.Take(*p.Stdio.Stdout)
	if err != nil {
		in.Close()
		return err
	}
	if out, err = pollable(out); err != nil {
		in.Close()
		return err
	}
	master, slave, err := openPty(filepath.Join(s.dir, "pts"), p.Pty)
	if err != nil {
		in.Close()
		out.Close()
		return err
	}
	io.give = []*os.File{slave}
	io.master = master
	io.closers = []*os.File{out}
	io.out = startPump(master, out, nil)
	io.stdin = startPump(in, master, nil)
	return nil
}

// openPty opens a pair in the devpts instance mounted at dir.
func openPty(dir string, size *api.Pty) (master, slave *os.File, err error) {
	fd, err := unix.Open(filepath.Join(dir, "ptmx"), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal %s/ptmx: %w", dir, err)
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
	sfd, err := unix.Open(filepath.Join(dir, strconv.Itoa(int(n))), unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
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
