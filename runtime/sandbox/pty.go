package sandbox

import (
	"errors"
	"fmt"
	"io"
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
	in, out, err := terminalStreams(p.Stdio, fds)
	if err != nil {
		return err
	}
	master, slave, err := s.openPty(p.Pty)
	if err != nil {
		in.Close()
		out.Close()
		return err
	}
	io.give = []*os.File{slave}
	io.master = master
	io.closers = append(io.closers, out)
	io.out = startPump(master, out, nil)
	k := &keyboard{master: master, lineStart: true}
	io.stdin = startPump(in, k, k.end)
	return nil
}

// terminalStreams takes the caller's two files. One file may be both, a socket
// say: so both are taken before either is used.
func terminalStreams(of *api.Stdio, fds Taker) (in, out io.ReadWriteCloser, err error) {
	first, err := fds.Take(*of.Stdin)
	if err != nil {
		return nil, nil, err
	}
	second, err := fds.Take(*of.Stdout)
	if err != nil {
		first.Close()
		return nil, nil, err
	}
	if in, err = interruptible(first); err != nil {
		second.Close()
		return nil, nil, err
	}
	if out, err = interruptible(second); err != nil {
		in.Close()
		return nil, nil, err
	}
	return in, out, nil
}

// keyboard is the master as what is typed sees it. A terminal has no end of file:
// where the caller's input ends, the key for it is pressed.
type keyboard struct {
	master    *os.File
	lineStart bool
}

func (k *keyboard) Write(p []byte) (int, error) {
	if len(p) > 0 {
		k.lineStart = p[len(p)-1] == '\n' || p[len(p)-1] == '\r'
	}
	return k.master.Write(p)
}

// end presses Ctrl-D, twice behind a part of a line: the first then only hands
// that over (termios(3), VEOF).
func (k *keyboard) end() {
	keys := "\x04\x04"
	if k.lineStart {
		keys = "\x04"
	}
	_, _ = k.master.WriteString(keys) // the command may have ended
}

// openPty opens a pair in the sandbox's devpts instance, through the sandbox's own
// mount of it: through hutchd's, /proc/self/fd inside would show a host path.
func (s *Sandbox) openPty(size *api.Pty) (master, slave *os.File, err error) {
	dir, err := s.openPts()
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
	sfd, err := unix.Openat(int(dir.Fd()), strconv.Itoa(int(n)), unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open terminal's slave: %w", err)
	}
	return master, os.NewFile(uintptr(sfd), "pts"), nil
}

// openPts opens /dev/pts as PID 1 sees it and makes sure that it is the devpts
// instance of the sandbox.
func (s *Sandbox) openPts() (*os.File, error) {
	root, err := openPath(fmt.Sprintf("/proc/%d/root", s.Record().PID))
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), "dev/pts", &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open terminal: /dev/pts inside: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "pts")
	var inside, own unix.Stat_t
	err = errors.Join(unix.Fstat(fd, &inside), unix.Stat(filepath.Join(s.dir, "pts"), &own))
	if err == nil && inside.Dev != own.Dev {
		err = errors.New("/dev/pts inside is not the sandbox's own")
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return dir, nil
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
