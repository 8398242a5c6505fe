package warm

import (
	"slices"
	"time"
)

// refillAfter is how long nobody must have taken one before the next is made: that takes a core for as long as three
// short commands run. replaceAfter is the same after one ended by itself, as all may.
const (
	refillAfter  = 30 * time.Millisecond
	replaceAfter = time.Second
)

// stock is what the two supplies have in common. Its supply's lock guards it.
type stock[T interface{ ID() string }] struct {
	ready  []T
	making int
	closed bool
	timer  *time.Timer // calls due; nil until there was a reason to
	due    func()      // makes what is missing; takes the lock
}

// later has due called after a while, and no more at the time that was set before.
func (s *stock[T]) later(after time.Duration) {
	switch {
	case s.closed:
	case s.timer == nil:
		s.timer = time.AfterFunc(after, s.due)
	default:
		s.timer.Reset(after)
	}
}

// lose takes out what has ended by itself, and has another made. It reports whether it was there.
func (s *stock[T]) lose(id string) (lost T, ok bool) {
	i := slices.IndexFunc(s.ready, func(t T) bool { return t.ID() == id })
	if i < 0 {
		return lost, false
	}
	lost = s.ready[i]
	s.ready = slices.Delete(s.ready, i, i+1)
	s.later(replaceAfter)
	return lost, true
}

// end takes out all; nothing comes in, and nothing is made, any more.
func (s *stock[T]) end() (left []T) {
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	left, s.ready = s.ready, nil
	return left
}

// The pauses before a pool that cannot be filled is tried again.
const (
	minBackoff = time.Second
	maxBackoff = time.Minute
)

// backoff is how long to pause after one failure after the other. The zero value has seen none.
type backoff struct{ last time.Duration }

// next is the pause after one more failure.
func (b *backoff) next() time.Duration {
	b.last = max(minBackoff, min(2*b.last, maxBackoff))
	return b.last
}

// handed is what somebody who waits is given.
type handed struct {
	s   Sandbox
	err error
}

// turns are those who wait, first come first served. Each has room for one.
type turns []chan handed

// join waits behind all others.
func (ts *turns) join() chan handed {
	turn := make(chan handed, 1)
	*ts = append(*ts, turn)
	return turn
}

// leave gives a turn up; false when its turn has come.
func (ts *turns) leave(turn chan handed) bool {
	i := slices.Index(*ts, turn)
	if i >= 0 {
		*ts = slices.Delete(*ts, i, i+1)
	}
	return i >= 0
}

// hand gives s to the first; false when nobody waits.
func (ts *turns) hand(s Sandbox) bool {
	if len(*ts) == 0 {
		return false
	}
	(*ts)[0] <- handed{s: s}
	*ts = (*ts)[1:]
	return true
}

// fail tells all why nothing comes.
func (ts *turns) fail(why error) {
	for _, turn := range *ts {
		turn <- handed{err: why}
	}
	*ts = nil
}
