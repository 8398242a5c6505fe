package server

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turnTime bounds a turn. The start of a command takes a millisecond of work; one that
// takes longer waits for something else, a sandbox that is frozen or hostile, and nobody
// has to wait for that.
const turnTime = 10 * time.Millisecond

// turns shares the work of starting commands out among connections: as many starts at
// once as there are cores, and each connection in which calls wait gets one in its turn. A
// client that floods the daemon is behind itself, not in front of the others.
type turns struct {
	mu    sync.Mutex
	free  int
	lines []*line // in which somebody waits; the first is next
}

// line is the calls of one connection that wait, first come first served. turns.mu guards
// it.
type line struct {
	waiting []chan struct{} // closed when it is its turn
}

func newTurns() *turns { return &turns{free: runtime.GOMAXPROCS(0)} }

// take waits for a turn. It lasts until end is called, which may be often, or until
// turnTime is over.
func (t *turns) take(ctx context.Context, l *line) (end func(), err error) {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return t.turn(), nil
	}
	mine := make(chan struct{})
	if len(l.waiting) == 0 {
		t.lines = append(t.lines, l)
	}
	l.waiting = append(l.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return t.turn(), nil
	case <-ctx.Done():
		t.leave(l, mine)
		return nil, context.Cause(ctx)
	}
}

// turn is a turn that begins.
func (t *turns) turn() (end func()) {
	over := sync.OnceFunc(t.next)
	late := time.AfterFunc(turnTime, over)
	return func() {
		late.Stop()
		over()
	}
}

// next hands a turn that is over to who is first in the next line.
func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		t.free++
		return
	}
	l := t.lines[0]
	t.lines = t.lines[1:]
	close(l.waiting[0])
	if l.waiting = l.waiting[1:]; len(l.waiting) > 0 {
		t.lines = append(t.lines, l)
	}
}

// leave gives up waiting.
func (t *turns) leave(l *line, mine chan struct{}) {
	t.mu.Lock()
	i := slices.Index(l.waiting, mine)
	if i < 0 {
		t.mu.Unlock()
		t.next() // its turn had just come
		return
	}
	defer t.mu.Unlock()
	if l.waiting = slices.Delete(l.waiting, i, i+1); len(l.waiting) == 0 {
		t.lines = slices.DeleteFunc(t.lines, func(o *line) bool { return o == l })
	}
}
