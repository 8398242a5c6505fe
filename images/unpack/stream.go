package unpack

import (
	"errors"
	"io"
)

// Read-ahead of one stage of unpacking: enough to smooth out bursts.
const (
	aheadBytes   = 256 << 10
	aheadBuffers = 4
)

// ahead reads from a reader in a goroutine of its own.
type ahead struct {
	full chan []byte   // closed at the end, after err is set
	free chan []byte   // buffers to fill
	stop chan struct{} // closed by Close
	err  error
	rest []byte // unread part of cur
	cur  []byte
}

// readAhead starts to read r. Close ends that, but does not interrupt a Read
// of r that is under way: make r fail first.
func readAhead(r io.Reader) *ahead {
	a := &ahead{
		full: make(chan []byte, aheadBuffers),
		free: make(chan []byte, aheadBuffers),
		stop: make(chan struct{}),
	}
	for range aheadBuffers {
		a.free <- make([]byte, aheadBytes)
	}
	go a.fill(r)
	return a
}

func (a *ahead) fill(r io.Reader) {
	defer close(a.full)
	for {
		var buf []byte
		select {
		case buf = <-a.free:
		case <-a.stop:
			a.err = errStopped
			return
		}
		n, err := readFull(r, buf[:aheadBytes])
		if n > 0 {
			a.full <- buf[:n] // never blocks: there are as many places as buffers
		}
		if err != nil {
			a.err = err
			return
		}
	}
}

// readFull is io.ReadFull with the reader's own error, so that the end of a
// stream and a stream cut short stay different.
func readFull(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

var errStopped = errors.New("reading was stopped")

func (a *ahead) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		if err := a.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// peek returns the next bytes without reading them, at most n of at most a buffer's.
func (a *ahead) peek(n int) []byte {
	if len(a.rest) == 0 && a.next() != nil {
		return nil // Read has the error, too
	}
	return a.rest[:min(n, len(a.rest))]
}

// next gives the used buffer back and takes a full one.
func (a *ahead) next() error {
	if a.cur != nil {
		a.free <- a.cur[:aheadBytes]
		a.cur = nil
	}
	buf, ok := <-a.full
	if !ok {
		return a.err
	}
	a.cur, a.rest = buf, buf
	return nil
}

// WriteTo lets io.Copy write whole buffers.
func (a *ahead) WriteTo(w io.Writer) (total int64, err error) {
	for {
		if len(a.rest) > 0 {
			n, err := w.Write(a.rest)
			total += int64(n)
			a.rest = a.rest[n:]
			if err != nil {
				return total, err
			}
		}
		if err := a.next(); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return total, err
		}
	}
}

// Close waits for the goroutine. It may be called once.
func (a *ahead) Close() error {
	close(a.stop)
	for range a.full { // until the goroutine has ended
	}
	return nil
}
