package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// batchBytes is how much of a segment is read at once: at least one record.
const batchBytes = 2 * maxRecord

var batches = sync.Pool{New: func() any { return new([batchBytes]byte) }}

// Cursor reads a log. It keeps its place and nothing else, no open file either. It
// is for one goroutine.
type Cursor struct {
	l     *Log
	next  int64 // the number of the next record
	until int64 // reading ends before this number
	match func(*api.Event) bool

	segment int64 // the first number of the segment that offset is in, 0: none
	offset  int64
}

// Follow reads from the record with this number on, those that match. With follow
// it waits for new ones; else it ends with what there is now.
func (l *Log) Follow(from int64, follow bool, match func(*api.Event) bool) *Cursor {
	c := &Cursor{l: l, next: from, until: math.MaxInt64, match: match}
	v := l.view()
	if !follow {
		c.until = v.next
	}
	if from == v.next { // most readers: no need to look for the place
		c.segment, c.offset = v.segments[len(v.segments)-1], v.size
	}
	return c
}

// Next returns some events in order, with gaps in the place of what is lost, and
// waits until there is one. It returns io.EOF at the end of a log that is not
// followed, and ErrClosed at the end of one that is closed.
func (c *Cursor) Next(ctx context.Context) ([]api.Event, error) {
	for c.next < c.until {
		v := c.l.view()
		switch {
		case c.next < v.segments[0]:
			return []api.Event{c.gap(v.segments[0])}, nil
		case c.next < v.next:
			events, err := c.read(v)
			if err != nil || len(events) > 0 {
				return events, err
			}
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			continue
		case v.closed:
			return nil, ErrClosed
		}
		select {
		case <-v.grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, io.EOF
}

// view is what readers may see of a log.
type view struct {
	segments   []int64
	next, size int64
	closed     bool
	grown      <-chan struct{}
}

func (l *Log) view() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return view{l.segments, l.next, l.size, l.closed, l.grown}
}

// gap moves to the record to, and says what is skipped.
func (c *Cursor) gap(to int64) api.Event {
	data, err := json.Marshal(api.GapEvent{From: c.next, To: to - 1})
	if err != nil {
		panic(err) // two numbers always encode
	}
	c.next = to
	return api.Event{Seq: to - 1, Time: time.Now().UTC(), Kind: api.EventGap, Data: data}
}

// read reads a piece of the segment that holds the next record.
func (c *Cursor) read(v view) (events []api.Event, err error) {
	i := len(v.segments) - 1
	for v.segments[i] > c.next {
		i--
	}
	end := v.next // of the segment's numbers
	size := v.size
	if i+1 < len(v.segments) {
		end, size = v.segments[i+1], math.MaxInt64
	}
	if first := v.segments[i]; c.segment != first {
		c.segment, c.offset = first, 0
	}
	buf, ok := batches.Get().(*[batchBytes]byte)
	if !ok {
		buf = new([batchBytes]byte)
	}
	defer batches.Put(buf)
	n, err := c.pread(buf[:min(batchBytes, size-c.offset)])
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil // dropped just now: another view shows the gap
	case err != nil:
		return nil, fmt.Errorf("read the log of events: %w", err)
	}
	rest := buf[:n]
	for c.next < min(end, c.until) {
		line, more, whole := nextLine(rest)
		if !whole {
			break
		}
		c.offset += int64(len(line)) + 1
		rest = more
		if e, err := parseRecord(line); err == nil && e.Seq >= c.next && e.Seq < end {
			events = c.take(events, e)
		}
	}
	if len(rest) == n && c.next < end {
		// Nothing whole is left to read: the rest of the segment is broken.
		events = append(events, c.gap(min(end, c.until)))
	}
	return events, nil
}

// take adds a record, and the gap before it.
func (c *Cursor) take(events []api.Event, e api.Event) []api.Event {
	if e.Seq > c.next {
		events = append(events, c.gap(min(e.Seq, c.until)))
	}
	if e.Seq >= c.until {
		return events
	}
	c.next = e.Seq + 1
	if e.Kind == api.EventsLost || c.match == nil || c.match(&e) {
		events = append(events, e)
	}
	return events
}

// pread reads at the cursor's offset.
func (c *Cursor) pread(buf []byte) (int, error) {
	f, err := os.Open(c.l.path(c.segment))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.ReadAt(buf, c.offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
