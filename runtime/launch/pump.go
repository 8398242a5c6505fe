package launch

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// pump copies from a pipe (or pty master) to a writer until end of file, and can
// be asked to say when all that was in the pipe at some moment has been written.
type pump struct {
	src  io.ReadCloser
	dst  io.Writer
	done chan struct{} // closed when the copying has ended
	err  error         // valid after done

	closeOnce sync.Once
	closeDst  func() // releases dst, may be nil
}

// startPump owns src from now on, and dst when closeDst is given. Closing src must
// end a read that is under way.
func startPump(src io.ReadCloser, dst io.Writer, closeDst func()) *pump {
	p := &pump{src: src, dst: dst, done: make(chan struct{}), closeDst: closeDst}
	go p.run()
	return p
}

func (p *pump) run() {
	defer close(p.done)
	spliced, err := splicePipes(p.src, p.dst)
	if !spliced {
		err = p.copy()
	}
	// EIO is how a pty master says that no slave is open any more.
	if !errors.Is(err, io.EOF) && !errors.Is(err, unix.EIO) && !errors.Is(err, os.ErrClosed) &&
		!errors.Is(err, os.ErrDeadlineExceeded) {
		p.err = err
	}
	if p.closeDst != nil {
		p.closeDst()
	}
}

func (p *pump) copy() error {
	buf := make([]byte, 64<<10)
	for {
		n, err := sys.ReadMaster(p.src.Read, buf)
		if n > 0 {
			if _, err := p.dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// ownSource is what finish needs of a source: it is an end of a pipe that hutchd has
// made, or the master of a terminal.
type ownSource interface {
	SetReadDeadline(time.Time) error
	SyscallConn() (syscall.RawConn, error)
}

// finish ends the pump after the writer it served has died: everything that is in
// the pipe now is still copied; what a left-over background process may write
// later is not. It blocks only while dst does. A source that is the caller's is
// just given up: what it holds is for the next reader.
func (p *pump) finish() error {
	own, ok := p.src.(ownSource)
	if !ok {
		p.close()
		return nil
	}
	select {
	case <-p.done:
		p.close()
		return p.err
	default:
	}
	// An expired deadline ends the blocked Read; the rest is read without waiting.
	_ = own.SetReadDeadline(time.Unix(1, 0))
	<-p.done
	err := p.err
	if err == nil {
		err = p.drain(own)
	}
	p.close()
	return err
}

func (p *pump) close() { p.closeOnce.Do(func() { _ = p.src.Close() }) }

// drain copies what the pipe holds, without waiting for more. It is bounded by
// the pipe's capacity unless somebody writes on, so it stops there.
func (p *pump) drain(own ownSource) error {
	rc, err := own.SyscallConn()
	if err != nil {
		return nil
	}
	buf := make([]byte, 64<<10)
	for left := 1 << 20; left > 0; {
		var n int
		var rerr error
		if err := rc.Control(func(fd uintptr) { n, rerr = sys.ReadMasterFD(int(fd), buf) }); err != nil {
			return nil
		}
		if rerr != nil || n <= 0 {
			return nil
		}
		left -= n
		if _, err := p.dst.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}
