package proxy

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// maxPipes are all pipes of the process: streams beyond use buffers, which cost
	// twice the CPU time and nothing that others need.
	maxPipes = 16
	// pipeSize is what a pipe must hold. A smaller one moves less per call than a
	// buffer does; the kernel makes them small when a user has too many.
	pipeSize = 256 << 10
)

// errNoPipe says that all pipes are in use, or cannot be had.
var errNoPipe = errors.New("no pipe")

// pipe is an empty pipe between calls.
type pipe struct{ r, w, size int }

// pipes are the process's. They are kept while any stream carries much.
var pipes struct {
	sync.Mutex
	streams int // that carry much
	free    []*pipe
	made    int
	off     bool // the kernel gives no large ones
}

// wantPipes and enoughPipes are called where a stream begins, and ends, to carry much.
func wantPipes() {
	pipes.Lock()
	pipes.streams++
	pipes.Unlock()
}

func enoughPipes() {
	pipes.Lock()
	defer pipes.Unlock()
	if pipes.streams--; pipes.streams > 0 {
		return
	}
	for _, p := range pipes.free {
		p.close()
	}
	pipes.made -= len(pipes.free)
	pipes.free = nil
}

func takePipe() *pipe {
	pipes.Lock()
	defer pipes.Unlock()
	if n := len(pipes.free); n > 0 {
		p := pipes.free[n-1]
		pipes.free = pipes.free[:n-1]
		return p
	}
	if pipes.off || pipes.made == maxPipes {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil // of fds; there may be some later
	}
	p := &pipe{r: fds[0], w: fds[1]}
	// The answer counts, not the request: past a user's quota the kernel says yes to
	// less than was asked for.
	_, _ = unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, pipeSize)
	size, err := unix.FcntlInt(uintptr(p.w), unix.F_GETPIPE_SZ, 0)
	if err != nil || size < pipeSize {
		pipes.off = pipes.made == 0
		p.close()
		return nil
	}
	p.size = size
	pipes.made++
	return p
}

// release gives back a pipe that is empty.
func (p *pipe) release() {
	pipes.Lock()
	pipes.free = append(pipes.free, p)
	pipes.Unlock()
}

// discard closes a pipe that something is left in.
func (p *pipe) discard() {
	pipes.Lock()
	pipes.made--
	pipes.Unlock()
	p.close()
}

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}
