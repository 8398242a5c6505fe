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

// Await waits until Read may have something. It returns io.EOF at the end of a log
// that is not followed, and ErrClosed at the end of one that is closed.
func (c *Cursor) Await(ctx context.Context) error {
	for c.next < c.until {
		v := c.l.view()
		switch {
		case c.next < v.next:
			return nil
		case v.closed:
			return ErrClosed
		}
		select {
		case <-v.grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return io.EOF
}

// Read returns at most that many events in order, with gaps in the place of what is
// lost. It does not wait, and may return none although there are more: they did not
// match.
func (c *Cursor) Read(most int) ([]api.Event, error) {
	v := c.l.view()
	switch {
	case most <= 0, c.next >= min(v.next, c.until):
		return nil, nil
	case c.next < v.segments[0]:
		return []api.Event{c.gap(min(v.segments[0], c.until))}, nil
	}
	return c.read(v, most)
}

// view is what readers may see of a log.
type view struct {
	segments   []int64
	next, size int64
	tail       []byte
	closed     bool
	grown      <-chan struct{}
}

func (l *Log) view() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return view{l.segments, l.next, l.size, l.tail, l.closed, l.grown}
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
func (c *Cursor) read(v view, most int) (events []api.Event, err error) {
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
	var rest []byte
	if at := c.offset - (size - int64(len(v.tail))); i == len(v.segments)-1 && at >= 0 && len(v.tail) > 0 {
		rest = v.tail[at:]
	} else {
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
		rest = buf[:n]
	}
	n := len(rest)
	for c.next < min(end, c.until) && len(events) < most {
		line, more, whole := nextLine(rest)
		if !whole {
			break
		}
		if e, err := parseRecord(line); err == nil && e.Seq >= c.next && e.Seq < end {
			if e.Seq > c.next { // and the line once more
				events = append(events, c.gap(min(e.Seq, c.until)))
				continue
			}
			c.next++
			if e.Kind == api.EventsLost || c.match == nil || c.match(&e) {
				events = append(events, e)
			}
		}
		c.offset += int64(len(line)) + 1
		rest = more
	}
	if len(rest) == n && len(events) == 0 {
		// Nothing whole is left to read: the rest of the segment is broken.
		events = append(events, c.gap(min(end, c.until)))
	}
	return events, nil
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
