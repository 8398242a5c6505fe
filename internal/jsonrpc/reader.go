package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	readChunk = 64 << 10
	// keepLarge is for how many reads without a large line its buffer is kept: they
	// often come in a row.
	keepLarge = 64
)

// ErrLineTooLong is ReadLine's answer to a line over the limit. The line has
// been skipped and its fds closed; the next call returns the line after it.
var ErrLineTooLong = errors.New("line too long")

// Answers of ReadLine to a line whose fds cannot be had. Those that came are
// closed; the line itself is returned with the error.
var (
	ErrTooManyFDs = fmt.Errorf("more than %d fds on one request", MaxFDs)
	// ErrLostFDs means that the kernel could not install all of the fds, because
	// this process has too many open (RLIMIT_NOFILE).
	ErrLostFDs = errors.New("no room for the fds of a request: too many open files")
)

// ErrBusy is ReadLine's answer to a long line for which there is no room now. The line has been skipped, as with
// ErrLineTooLong.
var ErrBusy = errors.New("too many long lines at once")

// LongLines bounds how many Readers hold a line at once that does not fit into the buffer that each has. It is safe for
// concurrent use. The zero value bounds nothing.
type LongLines struct {
	places chan struct{}
	// Who wants to send a long line waits for up to wait, and has to end it within whole: who does not would keep
	// others from theirs.
	wait, whole time.Duration
}

// NewLongLines lets n hold one.
func NewLongLines(n int) LongLines {
	return LongLines{places: make(chan struct{}, n), wait: 10 * time.Second, whole: 30 * time.Second}
}

func (l LongLines) take() bool {
	select {
	case l.places <- struct{}{}:
		return true
	default:
	}
	late := time.NewTimer(l.wait)
	defer late.Stop()
	select {
	case l.places <- struct{}{}:
		return true
	case <-late.C:
		return false
	}
}

// Reader reads lines and their fds. It is for one goroutine.
type Reader struct {
	conn   *net.UnixConn
	max    atomic.Int64
	others LongLines
	slow   *time.Timer // ends the connection; not nil while this is one of others

	// buf[pos:] is what has been read and not returned; buf[:scanned] is known
	// to hold no newline after pos.
	buf          []byte
	pos, scanned int
	eof          bool
	spare        int // reads since the buffer's size was last needed

	files []received // of lines not returned yet, in order
	oob   []byte
}

// received are fds with the index in buf of the last byte they came with. err
// says why there are none.
type received struct {
	at    int
	files []*os.File
	err   error
}

// NewReader reads lines of at most max bytes from conn, which stays the
// caller's.
func NewReader(conn *net.UnixConn, max int, others LongLines) *Reader {
	// Room for one fd too many, so that MaxFDs+1 are seen without MSG_CTRUNC.
	r := &Reader{conn: conn, others: others, oob: make([]byte, unix.CmsgSpace((MaxFDs+1)*4))}
	r.max.Store(int64(max))
	return r
}

// SetMax changes how long lines may be. Anybody may call it.
func (r *Reader) SetMax(max int) { r.max.Store(int64(max)) }

// ReadLine returns the next line without its newline, and the fds that belong to it, which the caller owns. The line is
// valid until the next call. With ErrLineTooLong and ErrBusy it is only the begin of one.
//
// It returns io.EOF when the other end has finished writing; an unfinished last
// line is returned first, as a line. Blank lines are skipped.
func (r *Reader) ReadLine() ([]byte, []*os.File, error) {
	for {
		end, whole := r.findLine()
		switch {
		case whole || (r.eof && end > r.pos):
			line, files, err := r.cut(end, whole)
			if r.slow != nil && len(line) > readChunk/2 {
				r.slow.Reset(r.others.whole) // of the next one
			}
			switch {
			case int64(len(line)) > r.max.Load():
				closeFiles(files)
				return line[:min(len(line), headBytes)], nil, ErrLineTooLong
			case err != nil:
				closeFiles(files)
				return line, nil, err
			case len(bytes.TrimSpace(line)) == 0:
				closeFiles(files)
				continue
			}
			return line, files, nil
		case r.eof:
			r.shorten() // its calls may go on for long
			return nil, nil, io.EOF
		case int64(end-r.pos) > r.max.Load():
			return r.skipLine(ErrLineTooLong)
		}
		if !r.compact() {
			return r.skipLine(ErrBusy)
		}
		if err := r.fill(); err != nil {
			r.shorten()
			return nil, nil, err
		}
	}
}

// Close closes the fds that no line was returned for, and makes room for the long lines of others.
func (r *Reader) Close() {
	r.shorten()
	for _, g := range r.files {
		closeFiles(g.files)
	}
	r.files = nil
}

// findLine returns the index of the next newline, or the end of the buffer.
func (r *Reader) findLine() (end int, whole bool) {
	if i := bytes.IndexByte(r.buf[r.scanned:], '\n'); i >= 0 {
		return r.scanned + i, true
	}
	r.scanned = len(r.buf)
	return len(r.buf), false
}

// cut takes buf[pos:end] and its newline, if there is one, out of the buffer.
func (r *Reader) cut(end int, whole bool) (line []byte, files []*os.File, err error) {
	line = r.buf[r.pos:end]
	last := end
	if !whole {
		last = end - 1
	}
	files, err = r.advance(last)
	return line, files, err
}

// advance moves behind buf[last] and returns the fds that came up to there.
func (r *Reader) advance(last int) (files []*os.File, err error) {
	for len(r.files) > 0 && r.files[0].at <= last {
		files = append(files, r.files[0].files...)
		if err == nil {
			err = r.files[0].err
		}
		r.files = r.files[1:]
	}
	r.pos = last + 1
	r.scanned = r.pos
	return files, err
}

// headBytes is how much of a line that is skipped is returned: its id is in there.
const headBytes = 256

// skipLine drops input up to and including the next newline, and returns the begin of it and why.
func (r *Reader) skipLine(why error) ([]byte, []*os.File, error) {
	head := bytes.Clone(r.buf[r.pos:min(len(r.buf), r.pos+headBytes)])
	for {
		last, whole := r.findLine()
		if !whole {
			last = len(r.buf) - 1
		}
		files, _ := r.advance(last)
		closeFiles(files)
		if whole || r.eof {
			return head, nil, why
		}
		r.compact() // nothing is kept, so that there is room
		if err := r.fill(); err != nil {
			return nil, nil, err
		}
	}
}

// fill reads once, and only when the buffer holds no whole line, and has room.
func (r *Reader) fill() error {
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(r.buf[len(r.buf):cap(r.buf)], r.oob)
	files, perr := parseRights(r.oob[:oobn])
	if err != nil {
		closeFiles(files)
		// A net.OpError wraps io.EOF here, unlike in Read.
		if errors.Is(err, io.EOF) {
			r.eof = true
			return nil
		}
		return fmt.Errorf("read request: %w", err)
	}
	if perr != nil {
		return perr
	}
	if n == 0 {
		closeFiles(files)
		r.eof = true
		return nil
	}
	r.buf = r.buf[:len(r.buf)+n]
	g := received{at: len(r.buf) - 1, files: files}
	if flags&unix.MSG_CTRUNC != 0 && len(files) <= MaxFDs {
		g.err = ErrLostFDs // there was room for more in oob
	}
	if len(files) > 0 || g.err != nil {
		r.keep(g)
	}
	return nil
}

// keep notes fds that arrived. A line that trickles in with fds on every byte
// must not pile them up: beyond the limit they are closed at once.
func (r *Reader) keep(g received) {
	start := bytes.LastIndexByte(r.buf[:g.at], '\n') + 1 // of g's line
	held := len(g.files)
	for _, old := range r.files {
		if old.at < start {
			continue
		}
		if old.err != nil {
			closeFiles(g.files)
			return
		}
		held += len(old.files)
	}
	if held > MaxFDs {
		closeFiles(g.files)
		g.files, g.err = nil, ErrTooManyFDs
	}
	r.files = append(r.files, g)
}

// compact moves the unread rest to the front and makes room for one read. It reports whether there is.
func (r *Reader) compact() bool {
	if r.pos > 0 {
		n := copy(r.buf, r.buf[r.pos:])
		r.buf = r.buf[:n]
		r.scanned -= r.pos
		for i := range r.files {
			r.files[i].at -= r.pos
		}
		r.pos = 0
	}
	r.spare++
	if len(r.buf) > 2*readChunk {
		r.spare = 0
	}
	// A large line's buffer is not kept for the small ones, nor while others wait.
	if len(r.buf) == 0 && cap(r.buf) > 4*readChunk && r.spare > keepLarge {
		r.buf = nil
	}
	if r.slow != nil && len(r.buf) <= readChunk/2 {
		rest := r.buf
		r.shorten()
		r.buf = append(make([]byte, 0, readChunk), rest...)
	}
	if cap(r.buf)-len(r.buf) >= readChunk/2 {
		return true
	}
	size := max(2*cap(r.buf), readChunk)
	if r.others.places != nil && size > readChunk {
		if r.slow == nil {
			if !r.others.take() {
				return false
			}
			r.slow = time.AfterFunc(r.others.whole, func() { _ = r.conn.SetReadDeadline(time.Unix(1, 0)) })
		}
		size = min(size, max(int(r.max.Load()), len(r.buf))+readChunk)
	}
	grown := make([]byte, len(r.buf), size)
	copy(grown, r.buf)
	r.buf = grown
	return true
}

// shorten gives up a large buffer.
func (r *Reader) shorten() {
	if r.buf = nil; r.slow != nil {
		r.slow.Stop()
		r.slow = nil
		<-r.others.places
	}
}

func parseRights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read request: control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // credentials or the like: nothing that needs closing
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("received-fd-%d", fd)))
		}
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}
