package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/internal/spool"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// maxSpooled bounds the execs of one sandbox whose streams are kept.
const maxSpooled = 4096

// spools are the streams of a sandbox's execs. hutch-launch alone writes them, so
// that no byte is lost or doubled when hutchd dies between reading and writing.
type spools struct {
	dir string // whose file system holds them

	mu     sync.Mutex
	closed bool
	byExec map[string][]*stream
	wg     sync.WaitGroup // one for each stream
}

// stream is one pipe and its spool.
type stream struct {
	pipe *os.File // the end that is read

	mu sync.Mutex // guards what follows: the loop and flush splice in turn
	w  *spool.Writer
	// told is the eventfd that hutchd counts the bytes with, -1 when closed. It is no
	// os.File: those make an fd blocking, for hutchd's duplicate too.
	told int
}

// open starts to spool the pipes of an exec, which it owns from now on. The files
// it returns are the caller's: for each pipe the spool, for reading, and the
// eventfd.
func (s *spools) open(exec string, size int64, pipes []*os.File) (out []*os.File, err error) {
	streams := make([]*stream, 0, len(pipes))
	defer func() {
		if err != nil {
			packet.CloseAll(out)
			for _, st := range streams {
				st.close()
			}
			packet.CloseAll(pipes[len(streams):])
		}
	}()
	for _, p := range pipes {
		st, files, err := newStream(s.dir, size, p)
		if err != nil {
			return out, err
		}
		streams = append(streams, st)
		out = append(out, files...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return out, api.Errorf(api.FailedPrecondition, "the sandbox is being removed")
	case s.byExec[exec] != nil:
		return out, api.Errorf(api.AlreadyExists, "the streams of %s are spooled already", exec)
	case len(s.byExec) >= maxSpooled:
		return out, api.Errorf(api.ResourceExhausted, "the output of %d commands is kept", len(s.byExec)).
			WithHint("remove the sandbox, or forget ended commands")
	}
	s.byExec[exec] = streams
	for _, st := range streams {
		s.wg.Go(st.run)
	}
	return out, nil
}

func newStream(dir string, size int64, pipe *os.File) (_ *stream, out []*os.File, err error) {
	w, err := spool.NewWriter(dir, size)
	if err != nil {
		return nil, nil, err
	}
	reader, err := w.Reader()
	if err != nil {
		w.Close()
		return nil, nil, err
	}
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		w.Close()
		reader.Close()
		return nil, nil, fmt.Errorf("eventfd: %w", err)
	}
	hutchd, err := unix.FcntlInt(uintptr(efd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		w.Close()
		reader.Close()
		_ = unix.Close(efd)
		return nil, nil, fmt.Errorf("duplicate eventfd: %w", err)
	}
	st := &stream{pipe: pipe, told: efd, w: w}
	return st, []*os.File{reader, os.NewFile(uintptr(hutchd), "spool counter")}, nil
}

// run spools until the pipe's last writer is gone or the stream is closed.
func (st *stream) run() {
	rc, err := st.pipe.SyscallConn()
	if err != nil {
		return
	}
	for ended := false; !ended; {
		err := rc.Read(func(fd uintptr) bool {
			err := st.splice(int(fd))
			ended = err != nil && !errors.Is(err, unix.EAGAIN)
			return err == nil || ended // EAGAIN waits for the poller
		})
		if err != nil {
			return // closed
		}
	}
}

// splice moves what there is, at most a chunk, and tells hutchd.
func (st *stream) splice(fd int) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.told < 0 {
		return os.ErrClosed
	}
	n, err := st.w.Splice(fd)
	if errors.Is(err, unix.EINTR) {
		return nil // once more
	}
	if err != nil {
		return err
	}
	var count [8]byte
	binary.NativeEndian.PutUint64(count[:], uint64(n))
	_, err = unix.Write(st.told, count[:])
	return err
}

// flush spools what the pipe holds now, without waiting for its end.
func (st *stream) flush() launchapi.Spooled {
	rc, err := st.pipe.SyscallConn()
	if err == nil {
		_ = rc.Control(func(fd uintptr) {
			for st.splice(int(fd)) == nil {
			}
		})
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	res := launchapi.Spooled{Total: st.w.Total(), Lost: -1}
	if off, lost := st.w.Lost(); lost {
		res.Lost = off
	}
	return res
}

func (st *stream) close() {
	_ = st.pipe.Close() // ends run
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.told >= 0 {
		_ = st.w.Close()
		_ = unix.Close(st.told)
		st.told = -1
	}
}

// flush spools what an ended exec has written. What its left-over background
// processes write later is spooled as it comes.
func (s *spools) flush(exec string) ([]launchapi.Spooled, error) {
	s.mu.Lock()
	streams := s.byExec[exec]
	s.mu.Unlock()
	if streams == nil {
		return nil, api.Errorf(api.NotFound, "no streams of %s are spooled", exec)
	}
	res := make([]launchapi.Spooled, 0, len(streams))
	for _, st := range streams {
		res = append(res, st.flush())
	}
	return res, nil
}

// drop forgets an exec's streams. A process that still writes gets SIGPIPE.
func (s *spools) drop(exec string) {
	s.mu.Lock()
	streams := s.byExec[exec]
	delete(s.byExec, exec)
	s.mu.Unlock()
	for _, st := range streams {
		st.close()
	}
}

// close stores what the pipes still hold, drops everything and waits for the
// goroutines. The sandbox's processes are dead.
func (s *spools) close() {
	s.mu.Lock()
	s.closed = true
	all := s.byExec
	s.byExec = nil
	s.mu.Unlock()
	for _, streams := range all {
		for _, st := range streams {
			st.flush()
			st.close()
		}
	}
	s.wg.Wait()
}

// spool handles the three operations on streams.
func (s *server) spool(req launchapi.Request, sb *sandbox, files []*os.File) {
	<-sb.created
	if sb.undo == nil {
		packet.CloseAll(files)
		s.finish(req, api.Errorf(api.NotFound, "sandbox %s does not exist", sb.id))
		return
	}
	reply := launchapi.Reply{Seq: req.Seq}
	var out []*os.File
	var err error
	switch req.Op {
	case launchapi.OpSpool:
		out, err = sb.spools.open(req.Spool.Exec, req.Spool.Size, files)
	case launchapi.OpFlush:
		reply.Spooled, err = sb.spools.flush(req.Spool.Exec)
	case launchapi.OpDrop:
		sb.spools.drop(req.Spool.Exec)
	}
	if err != nil {
		s.finish(req, err)
		return
	}
	if err := s.conn.Send(reply, out...); err != nil && !errors.Is(err, io.EOF) {
		sb.spools.drop(req.Spool.Exec)
		s.finish(req, fmt.Errorf("hand over the streams of %s: %w", req.Spool.Exec, err))
	}
	packet.CloseAll(out)
}
