package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxQueued bounds what waits for one client that does not read, in bytes. A
	// message that arrives below it is taken whatever its size. It allows several
	// replies of the largest size (2 * 16 MiB of output) to be ready at once.
	maxQueued = 128 << 20
	// maxQueuedNews is how much may wait before news (messages that nobody must
	// get) are dropped.
	maxQueuedNews = 1 << 20
	// maxQueuedFeed is how much may wait before those who feed a connection wait:
	// enough for the socket to stay busy while the next line is made.
	maxQueuedFeed = 512 << 10
	// writeTimeout is how long a client may read nothing at all while something
	// waits for it.
	writeTimeout = 30 * time.Second
	// writeChunk is what must get through within writeTimeout.
	writeChunk = 256 << 10
)

// ErrSlowReader is why a connection was given up whose client does not read.
var ErrSlowReader = errors.New("client does not read its replies")

// ErrClosed is the answer to a message on a closed connection.
var ErrClosed = net.ErrClosed

// Writer sends lines from a queue of its own, so that the sender never waits for
// a client that does not read. It may be used by several goroutines.
type Writer struct {
	conn    *net.UnixConn
	timeout time.Duration

	mu      sync.Mutex
	queue   []queued
	queued  int // bytes in queue and in the write under way
	closing bool
	err     error         // why nothing more is sent
	wake    chan struct{} // capacity 1: something in the fields above changed
	room    chan struct{} // capacity 1: a line has left
	done    chan struct{} // closed when the goroutine has ended
}

// queued is a line that waits; lent is the buffer to give back, nil for lines that
// are not of lines. Or, without a line, what is to be called when those before it have left.
type queued struct {
	line []byte
	lent *[]byte
	then []func()
}

// lines are buffers for what is fed, which comes in large pieces and often.
var lines = sync.Pool{New: func() any { return new([]byte) }}

// NewWriter starts a writer, which owns conn: Close closes it when the queue is
// empty.
func NewWriter(conn *net.UnixConn) *Writer { return newWriter(conn, writeTimeout) }

func newWriter(conn *net.UnixConn, timeout time.Duration) *Writer {
	w := &Writer{conn: conn, timeout: timeout, wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues line, to which it adds the newline; it takes it over. It never blocks. When too much waits the
// connection is given up.
func (w *Writer) Write(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.closedLocked(); err != nil {
		return err
	}
	if w.queued > maxQueued {
		w.failLocked(fmt.Errorf("%w: %d bytes wait", ErrSlowReader, w.queued))
		return w.err
	}
	w.pushLocked(line)
	return nil
}

// TryWrite queues line unless much waits already, and reports whether it did.
func (w *Writer) TryWrite(line []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closedLocked() != nil || w.queued > maxQueuedNews {
		return false
	}
	w.pushLocked(line)
	return true
}

// AwaitRoom waits until little waits for the client. It is for one goroutine at a
// time.
func (w *Writer) AwaitRoom(ctx context.Context) error {
	for {
		w.mu.Lock()
		err, full := w.closedLocked(), w.queued > maxQueuedFeed
		w.mu.Unlock()
		if err != nil || !full {
			return err
		}
		select {
		case <-w.room:
		case <-w.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// feed queues a line, with its newline, in a buffer of lines that it takes over.
func (w *Writer) feed(lent *[]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.closedLocked(); err != nil {
		return err
	}
	w.queue = append(w.queue, queued{line: *lent, lent: lent})
	w.queued += len(*lent)
	w.signalLocked()
	return nil
}

// afterwards calls fns, in the writer's goroutine, when what is queued has been written; in
// another one when the connection is closed.
func (w *Writer) afterwards(fns []func()) {
	if len(fns) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closedLocked() != nil {
		go queued{then: fns}.call()
		return
	}
	w.queue = append(w.queue, queued{then: fns})
	w.signalLocked()
}

func (q queued) call() {
	for _, fn := range q.then {
		fn()
	}
}

// Close lets the queue drain and then closes the connection. It does not wait;
// Done does.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
	w.signalLocked()
}

// Abort closes the connection at once.
func (w *Writer) Abort(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(why)
}

// Done is closed when the connection is closed and nothing more is sent.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err says why the connection was given up; nil after a Close that sent all.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) closedLocked() error {
	if w.err != nil {
		return w.err
	}
	if w.closing {
		return ErrClosed
	}
	return nil
}

func (w *Writer) pushLocked(line []byte) {
	w.queue = append(w.queue, queued{line: append(line, '\n')})
	w.queued += len(line) + 1
	w.signalLocked()
}

// failLocked also wakes a write that is under way, by closing the connection.
func (w *Writer) failLocked(err error) {
	if w.err == nil {
		w.err = err
		for _, q := range w.queue {
			if q.then != nil {
				go q.call()
			}
		}
		w.queue = nil
		_ = w.conn.Close()
	}
	w.signalLocked()
}

func (w *Writer) signalLocked() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) run() {
	defer close(w.done)
	defer w.conn.Close()
	for {
		q, ok := w.next()
		if !ok {
			return
		}
		if q.then != nil {
			q.call()
			continue
		}
		err := w.send(q.line)
		w.mu.Lock()
		w.queued -= len(q.line)
		if err != nil {
			w.failLocked(err)
		}
		w.mu.Unlock()
		if q.lent != nil {
			lines.Put(q.lent)
		}
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
}

// next waits for a line; ok is false when there will be none.
func (w *Writer) next() (q queued, ok bool) {
	for {
		w.mu.Lock()
		switch {
		case w.err != nil:
			w.mu.Unlock()
			return queued{}, false
		case len(w.queue) > 0:
			q, w.queue = w.queue[0], w.queue[1:]
			w.mu.Unlock()
			return q, true
		case w.closing:
			w.mu.Unlock()
			return queued{}, false
		}
		w.mu.Unlock()
		<-w.wake
	}
}

// send writes in pieces, so that the time-out is about a client that reads
// nothing and not about one that reads slowly.
func (w *Writer) send(line []byte) error {
	for len(line) > 0 {
		n := min(len(line), writeChunk)
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
		n, err := w.conn.Write(line[:n])
		line = line[n:]
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: nothing for %v", ErrSlowReader, w.timeout)
		}
		if err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
	return nil
}
