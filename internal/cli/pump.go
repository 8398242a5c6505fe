package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pumpBuffer is the default size of a pipe, in bytes (pipe(7)).
const pumpBuffer = 64 << 10

// pipe makes a pipe for a command. The end that hutch keeps does not block, so
// that its goroutine can be interrupted; the command's does, as it expects. The
// pipe belongs to owner, uid 0 of the sandbox, where the caller is root: it is
// the caller's uid otherwise, which is the same.
func newPipe(owner uint32, keepRead bool) (kept, passed *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe2: %w", err)
	}
	ours, theirs := fds[0], fds[1]
	if !keepRead {
		ours, theirs = fds[1], fds[0]
	}
	if os.Geteuid() == 0 {
		err = unix.Fchown(ours, int(owner), int(owner))
	}
	if err == nil {
		err = unix.SetNonblock(ours, true)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("prepare pipe for uid %d: %w", owner, err), unix.Close(ours),
			unix.Close(theirs))
	}
	return os.NewFile(uintptr(ours), "pipe"), os.NewFile(uintptr(theirs), "pipe"), nil
}

// outPump copies what a command writes to one of the caller's files.
type outPump struct {
	name string
	from *os.File // kept end of a pipe; owned
	to   *os.File // the caller's
	done chan struct{}
	err  error // valid after done
}

func startOut(name string, from, to *os.File) *outPump {
	p := &outPump{name: name, from: from, to: to, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer from.Close() // a command that goes on writing gets SIGPIPE
		p.err = p.copy()
	}()
	return p
}

func (p *outPump) copy() error {
	buf := make([]byte, pumpBuffer)
	for {
		n, err := p.from.Read(buf)
		if werr := p.write(buf[:n]); werr != nil {
			return werr
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return p.rest(buf)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: read from the sandbox: %w", p.name, err)
		}
	}
}

// rest copies what the pipe holds at this moment. Whatever the command itself
// wrote is in it, because the command has ended; what a child that it left
// behind will write later must not keep hutch waiting.
func (p *outPump) rest(buf []byte) error {
	if err := p.from.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	raw, err := p.from.SyscallConn()
	if err != nil {
		return err
	}
	var left uint32
	if cerr := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetUint32(int(fd), unix.TIOCINQ) }); cerr != nil ||
		err != nil {
		return fmt.Errorf("%s: TIOCINQ: %w", p.name, errors.Join(cerr, err))
	}
	for left > 0 {
		n, err := p.from.Read(buf[:min(left, uint32(len(buf)))])
		if werr := p.write(buf[:n]); werr != nil {
			return werr
		}
		if err != nil {
			return fmt.Errorf("%s: read from the sandbox: %w", p.name, err)
		}
		left -= uint32(n)
	}
	return nil
}

// write writes b. A reader that went away is no error of hutch's: the pipe is
// closed and the command learns of it as it would without hutch.
func (p *outPump) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if _, err := p.to.Write(b); err != nil {
		return fmt.Errorf("write %s: %w", p.name, err)
	}
	return nil
}

// finish copies what the ended command left in the pipe and ends the pump.
func (p *outPump) finish() {
	// It fails only on a file that is closed, when the pump has ended already.
	_ = p.from.SetReadDeadline(time.Unix(1, 0))
}

// inPump copies one of the caller's files to a command.
type inPump struct {
	from *os.File    // the caller's: blocking, shared with other processes
	to   *os.File    // kept end of a pipe; owned
	keys *DetachKeys // what the caller leaves with; nil is nothing
	stop *os.File    // closing it ends the pump; owned
	wake *os.File    // reads end of file then; owned by the goroutine
	done chan struct{}
	err  error // valid after done
}

func startIn(from, to *os.File, keys *DetachKeys) (*inPump, error) {
	wake, stop, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p := &inPump{from: from, to: to, keys: keys, stop: stop, wake: wake, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer wake.Close()
		defer to.Close() // end of file for the command
		p.err = p.copy()
	}()
	return p, nil
}

func (p *inPump) copy() error {
	buf := make([]byte, pumpBuffer)
	for {
		n, err := p.read(buf)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		if n == 0 {
			return nil
		}
		if _, err := p.to.Write(p.keys.filter(buf[:n])); readerGone(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil // the command reads no more
		} else if err != nil {
			return fmt.Errorf("write to the sandbox: %w", err)
		}
	}
}

// read reads from the caller's file, without ever setting it non-blocking: the
// flag would be seen by every process that shares the file. It returns 0 at the
// end of the file and when the pump is to stop.
func (p *inPump) read(buf []byte) (int, error) {
	for {
		fds := []unix.PollFd{
			{Fd: int32(p.from.Fd()), Events: unix.POLLIN},
			{Fd: int32(p.wake.Fd()), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return 0, fmt.Errorf("poll: %w", err)
		}
		if fds[1].Revents != 0 {
			return 0, nil
		}
		n, err := unix.Read(int(p.from.Fd()), buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return max(n, 0), err
	}
}

// finish ends the pump; what was not read stays with the caller.
func (p *inPump) finish() {
	p.stop.Close()
	// It fails only on a file that is closed, when the pump has ended already.
	_ = p.to.SetWriteDeadline(time.Unix(1, 0))
}

// readerGone reports whether a write failed because nobody reads any more. A Unix
// socket that was closed with bytes unread says so with ECONNRESET, once.
func readerGone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}
