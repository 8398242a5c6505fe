// Package eventlog keeps what happened in a daemon, numbered, on disk: numbers go on
// after a restart, and a reader that was away reads what it has missed.
//
//	DIR/lock                      held while the log is open
//	DIR/id                        a random name of the log
//	DIR/00000000000000000001.log  records 1 and on, one a line
//	DIR/00000000000000013244.log  records 13244 and on: the segment that is written
//
// An event is written before any reader sees it, so one that was seen is never lost
// and its number never given to another, however the process ends. Nothing is
// synced: the loss of power may take the last seconds with it.
//
// Readers have no queue: they read the files at their own pace, and what is dropped
// before they come to it, because only so many segments are kept, they learn as a
// gap.
package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

const (
	defaultSegment  = 2 << 20
	defaultSegments = 8
	// maxWaiting bounds what waits to be written, should the disk stall.
	maxWaiting = 1 << 16
	// maxTail is how much of what was written last is kept for readers that have read all before.
	maxTail = 16 << 10
)

// Options bound a log. The zero value is 8 segments of 2 MiB.
type Options struct {
	SegmentBytes int64
	Segments     int
	Logger       *slog.Logger // nil discards
}

// ErrClosed is what readers of a closed log get.
var ErrClosed = errors.New("the log of events is closed")

// Log is an open log. It is safe for concurrent use.
type Log struct {
	dir  string
	id   string
	opts Options
	lock *os.File
	done chan struct{} // closed when the writer has ended

	queue struct {
		sync.Mutex
		events  []pending
		lost    int64           // events that found no room, or could not be written
		synced  []chan struct{} // to be closed when what waits has been written
		closing bool
		wake    chan struct{} // capacity 1
	}

	// Of the writer: the segment that is written.
	file *os.File
	buf  []byte

	mu       sync.Mutex
	segments []int64       // their first numbers, ascending; never empty
	next     int64         // the number of the next event
	size     int64         // of the last segment, as far as readers may read
	tail     []byte        // the end of the last segment, up to size: what was written last
	closed   bool          // no more will be written
	grown    chan struct{} // closed, and made anew, when any of it changes
}

// pending is an event on its way to disk.
type pending struct {
	api.Event
	data any
}

// Emit notes an event. It takes about a microsecond and never waits for the disk;
// data is encoded later and must not change.
func (l *Log) Emit(kind api.EventKind, sandbox, exec string, data any) {
	e := pending{api.Event{Time: time.Now().UTC(), Kind: kind, Sandbox: sandbox, Exec: exec}, data}
	l.queue.Lock()
	switch {
	case l.queue.closing:
	case len(l.queue.events) >= maxWaiting:
		l.queue.lost++
	default:
		l.queue.events = append(l.queue.events, e)
	}
	l.queue.Unlock()
	l.wake()
}

func (l *Log) wake() {
	select {
	case l.queue.wake <- struct{}{}:
	default:
	}
}

// Sync waits until what was emitted before has been written, or is lost.
func (l *Log) Sync(ctx context.Context) error {
	synced := make(chan struct{})
	l.queue.Lock()
	l.queue.synced = append(l.queue.synced, synced)
	l.queue.Unlock()
	l.wake()
	select {
	case <-synced:
	case <-l.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Close writes what waits and closes the log. Readers get ErrClosed when they have
// read it all.
func (l *Log) Close() error {
	l.queue.Lock()
	l.queue.closing = true
	l.queue.Unlock()
	l.wake()
	<-l.done
	l.mu.Lock()
	l.closed = true
	l.broadcastLocked()
	l.mu.Unlock()
	return errors.Join(l.file.Close(), l.lock.Close())
}

// ID names the log: another one has other numbers.
func (l *Log) ID() string { return l.id }

// Range is the number of the oldest event that is kept and of the next one.
func (l *Log) Range() (first, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.segments[0], l.next
}

// run is the writer: one goroutine, so that numbers and bytes have one order.
func (l *Log) run() {
	defer close(l.done)
	for {
		<-l.queue.wake
		l.queue.Lock()
		events, lost, synced, closing := l.queue.events, l.queue.lost, l.queue.synced, l.queue.closing
		l.queue.events, l.queue.lost, l.queue.synced = nil, 0, nil
		l.queue.Unlock()
		if lost > 0 {
			events = append(events, pending{api.Event{Time: time.Now().UTC(), Kind: api.EventsLost},
				api.LostEvent{Count: lost}})
		}
		if failed, err := l.write(events); err != nil {
			l.opts.Logger.Warn("events are lost", "count", failed, "err", err)
			l.queue.Lock()
			l.queue.lost += failed + max(lost-1, 0) // the note of the loss is not one itself
			l.queue.Unlock()
		}
		for _, s := range synced {
			close(s)
		}
		if closing {
			return
		}
	}
}

// write numbers and stores events. It returns how many could not be stored.
func (l *Log) write(events []pending) (failed int64, err error) {
	for len(events) > 0 {
		n, err := l.writeSome(events)
		if err != nil {
			return int64(len(events)), err
		}
		events = events[n:]
	}
	return 0, nil
}

// writeSome stores, in one write, as many events as fit into one segment.
func (l *Log) writeSome(events []pending) (n int, err error) {
	l.buf = l.buf[:0]
	seq := l.next // which only this goroutine writes
	for n < len(events) {
		before := len(l.buf)
		events[n].Seq = seq
		if err := l.encode(&events[n]); err != nil {
			l.opts.Logger.Error("an event cannot be written", "kind", events[n].Kind, "err", err)
			n++ // a mistake of ours; the number is still free
			continue
		}
		if l.size+int64(len(l.buf)) > l.opts.SegmentBytes && l.size+int64(before) > 0 {
			l.buf = l.buf[:before]
			if before > 0 {
				break // the segment is full with what we have
			}
			if err := l.rotate(seq); err != nil {
				return 0, err
			}
			continue
		}
		seq++
		n++
	}
	return n, l.flush(l.buf, seq)
}

func (l *Log) encode(e *pending) error {
	if e.data != nil {
		data, err := json.Marshal(e.data)
		if err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
		e.Data = data
	}
	buf, err := appendRecord(l.buf, &e.Event)
	l.buf = buf
	return err
}

// flush writes whole records and then lets readers see them.
func (l *Log) flush(records []byte, next int64) error {
	if len(records) == 0 {
		return nil
	}
	if _, err := l.file.WriteAt(records, l.size); err != nil {
		// What was written of it is overwritten by the next attempt, or cut off when
		// the log is opened again.
		return errors.Join(err, l.file.Truncate(l.size))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size += int64(len(records)); len(records) <= maxTail {
		l.tail = slices.Clone(records) // readers may still have the one before
	} else {
		l.tail = nil
	}
	l.next = next
	l.broadcastLocked()
	return nil
}

// rotate starts a segment with the record seq, and drops the oldest ones.
func (l *Log) rotate(seq int64) error {
	f, err := os.OpenFile(l.path(seq), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("start a segment: %w", err)
	}
	_ = l.file.Close() // written by write(2): nothing is left to fail
	l.file = f
	l.mu.Lock()
	l.segments = append(l.segments, seq)
	drop := l.segments[:max(0, len(l.segments)-l.opts.Segments)]
	l.segments = l.segments[len(drop):]
	l.size, l.tail = 0, nil
	l.broadcastLocked()
	l.mu.Unlock()
	var errs []error
	for _, first := range drop {
		errs = append(errs, os.Remove(l.path(first)))
	}
	if err := errors.Join(errs...); err != nil {
		l.opts.Logger.Warn("drop old events", "err", err)
	}
	return nil
}

func (l *Log) broadcastLocked() {
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *Log) path(first int64) string { return filepath.Join(l.dir, segmentName(first)) }

func segmentName(first int64) string { return fmt.Sprintf("%020d.log", first) }
