// Package files is a files worker: hutch-init's binary in another role, started by
// PID 1 as an ordinary exec of one user of a sandbox. It reads and writes files for
// hutchd, with that user's rights and no others, so that nothing outside needs to
// touch what a sandbox may have tampered with. filesapi has the protocol.
//
// It trusts hutchd. It needs nothing of the image, not even a shell, and holds
// nothing that its own user could not have anyway: whoever takes it over, by
// ptrace say, has gained nothing and is to hutchd what any sandbox is.
package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// memoryLimit is where the Go runtime starts to collect hard, in bytes: above what
// MaxCalls small calls need; a few large ones at once are slower.
const memoryLimit = 64 << 20

// Run answers requests until the channel is closed.
func Run() error {
	runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU()))
	debug.SetMemoryLimit(memoryLimit)
	unix.Umask(0) // modes are given as they are meant
	nameSelf()
	ch, err := channel()
	if err != nil {
		return fmt.Errorf("channel: %w", err)
	}
	w := &worker{ch: ch, calls: map[uint64]*call{}}
	return w.serve()
}

// channel is the channel as a file of the runtime's poller: whoever waits for it
// takes no thread. It is a duplicate, because os.Stdin may be in the poller already.
func channel() (syscall.RawConn, error) {
	fd, err := unix.FcntlInt(filesapi.ChannelFD, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "channel").SyscallConn()
}

// maxProcs is how many calls compute at the same time; others wait for files and
// pipes.
const maxProcs = 4

// nameSelf is for ps and top: a program that was executed by an fd is called after
// its number.
func nameSelf() {
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte("hutch-files"))
	_ = unix.Close(fd)
}

type worker struct {
	ch syscall.RawConn // the channel

	send sync.Mutex // one packet after the other

	mu    sync.Mutex // guards calls
	calls map[uint64]*call
}

// call is one request under way.
type call struct {
	*filesapi.Request
	w    *worker
	data []byte // the request's payload
	fd   int    // the pipe that came with it, -1 for none; closed at its end
	stop int    // eventfd of a call with a pipe: readable once it is cancelled

	ctx    context.Context // ends when the call is cancelled
	cancel context.CancelCauseFunc
}

// serve reads requests. Each runs beside the others, so that a ping is answered
// whatever a file system does.
func (w *worker) serve() error {
	buf := make([]byte, filesapi.MaxPacket+1)
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		n, fd, err := w.receive(buf, oob)
		if err != nil || n == 0 {
			return err
		}
		req, payload, err := filesapi.ParseRequest(buf[:n])
		if err != nil {
			return fmt.Errorf("a request that hutchd does not send: %w", err)
		}
		if err := w.accept(req, payload, fd); err != nil {
			return err
		}
	}
}

// receive reads one packet and the fd that came with it, else -1. No bytes are the
// end of the channel.
func (w *worker) receive(buf, oob []byte) (n, fd int, err error) {
	var oobn int
	var rerr error
	err = w.ch.Read(func(ch uintptr) bool {
		n, oobn, _, _, rerr = unix.Recvmsg(int(ch), buf, oob, unix.MSG_CMSG_CLOEXEC)
		return rerr != unix.EAGAIN && rerr != unix.EINTR
	})
	if errors.Is(rerr, unix.ECONNRESET) {
		return 0, -1, nil
	}
	if err := errors.Join(err, rerr); err != nil {
		return 0, -1, fmt.Errorf("receive: %w", err)
	}
	if oobn == 0 {
		return n, -1, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return n, -1, err
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return n, -1, err
	}
	return n, fds[0], nil
}

// accept takes one packet; it must not block.
func (w *worker) accept(req *filesapi.Request, payload []byte, fd int) error {
	w.mu.Lock()
	c := w.calls[req.ID]
	w.mu.Unlock()
	switch req.Op {
	case filesapi.OpPing:
		w.post(&filesapi.Reply{}, nil)
		return nil
	case filesapi.OpCancel:
		if c != nil {
			c.end()
		}
		return nil
	case filesapi.OpData:
		if c == nil || !c.More || len(c.data)+len(payload) > filesapi.MaxData {
			return errors.New("payload for a call that takes none")
		}
		c.data = append(c.data, payload...)
		c.More = req.More
	default:
		if c != nil {
			return fmt.Errorf("call %d is under way", req.ID)
		}
		c = &call{Request: req, w: w, data: append([]byte(nil), payload...), fd: fd, stop: -1}
		c.ctx, c.cancel = context.WithCancelCause(context.Background())
		w.mu.Lock()
		w.calls[req.ID] = c
		w.mu.Unlock()
	}
	if !c.More {
		go c.run()
	}
	return nil
}

// end cancels the call.
func (c *call) end() {
	c.cancel(unix.ECANCELED)
	c.w.mu.Lock() // the call must not close its eventfd in between
	defer c.w.mu.Unlock()
	if c.stop >= 0 {
		_, _ = unix.Write(c.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// operations are what a worker does. Each returns the last packet of its call.
var operations = map[string]func(*call) (*filesapi.Reply, error){
	filesapi.OpRead:    (*call).read,
	filesapi.OpWrite:   (*call).write,
	filesapi.OpList:    (*call).list,
	filesapi.OpStat:    (*call).stat,
	filesapi.OpMkdir:   (*call).mkdir,
	filesapi.OpRemove:  (*call).remove,
	filesapi.OpMove:    (*call).move,
	filesapi.OpPack:    (*call).pack,
	filesapi.OpUnpack:  (*call).unpack,
	filesapi.OpLines:   (*call).lines,
	filesapi.OpGrep:    (*call).grep,
	filesapi.OpFind:    (*call).find,
	filesapi.OpReplace: (*call).replace,
	filesapi.OpPatch:   (*call).patch,
	filesapi.OpSettle:  (*call).settle,
	filesapi.OpSync:    (*call).sync,
}

func (c *call) run() {
	reply, err := c.prepare()
	if err == nil {
		reply, err = operations[c.Op](c)
	}
	c.w.mu.Lock()
	delete(c.w.calls, c.ID)
	for _, fd := range []int{c.fd, c.stop} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	c.stop = -1
	c.w.mu.Unlock()
	if err != nil {
		reply = failure(c.Op, c.Path, err)
	}
	c.cancel(nil)
	reply.ID = c.ID
	c.w.post(reply, nil)
}

// prepare makes what a call with a pipe needs in order to be cancelled.
func (c *call) prepare() (*filesapi.Reply, error) {
	if c.fd < 0 {
		return nil, nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	c.w.mu.Lock()
	c.stop = fd
	c.w.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, unix.ECANCELED
	}
	return nil, nil
}

// give sends payload as part of the call's reply.
func (c *call) give(payload []byte) {
	for len(payload) > 0 {
		var first []byte
		first, payload = filesapi.Chunk(payload)
		c.w.post(&filesapi.Reply{ID: c.ID, More: true}, first)
	}
}

// post sends one packet. hutchd reads always; where it is gone, so is its need.
func (w *worker) post(r *filesapi.Reply, payload []byte) {
	packet, err := filesapi.Encode(r, payload)
	if err != nil { // texts too long for a header
		packet, err = filesapi.Encode(&filesapi.Reply{ID: r.ID, Errno: int(unix.EMSGSIZE)}, nil)
	}
	if err != nil {
		return
	}
	w.send.Lock()
	defer w.send.Unlock()
	_ = w.ch.Write(func(ch uintptr) bool {
		err := unix.Sendmsg(int(ch), packet, nil, nil, unix.MSG_NOSIGNAL)
		return err != unix.EAGAIN && err != unix.EINTR
	})
}

// problem is an errno with words that say what it means here.
type problem struct {
	errno  unix.Errno
	detail string
}

func (p *problem) Error() string { return p.detail }
func (p *problem) Unwrap() error { return p.errno }

// at says where something failed.
func at(path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "at", Path: path, Err: err}
}

// failure is the reply of a call that failed.
func failure(op, path string, err error) *filesapi.Reply {
	r := &filesapi.Reply{Path: path, Errno: int(unix.EIO)}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		r.Path = pe.Path
	}
	var errno unix.Errno
	var p *problem
	switch {
	case errors.As(err, &p):
		r.Errno, r.Detail = int(p.errno), p.detail
	case errors.As(err, &errno):
		r.Errno = int(errno)
	case errors.Is(err, tar.ErrHeader), op == filesapi.OpUnpack && errors.Is(err, io.ErrUnexpectedEOF):
		r.Errno, r.Detail = int(unix.EINVAL), "what was sent is no tar archive, or only a part of one"
	case errors.Is(err, archive.ErrRefused):
		r.Errno, r.Detail = int(unix.EINVAL), err.Error()
	case errors.Is(err, io.ErrUnexpectedEOF):
		r.Errno, r.Detail = int(unix.EINVAL), "what was to be written ended too early"
	case errors.Is(err, os.ErrClosed), errors.Is(err, context.Canceled):
		r.Errno = int(unix.ECANCELED)
	default:
		r.Detail = err.Error()
	}
	const most = 4 << 10 // a header holds both
	r.Path, r.Detail = r.Path[:min(len(r.Path), most)], r.Detail[:min(len(r.Detail), most)]
	return r
}

// retry repeats a system call that a signal interrupted: Go's runtime sends them
// to itself.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func openat(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}
