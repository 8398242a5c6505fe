// Package retry paces accept and receive loops that a lack of fds or memory stops.
package retry

import "time"

const first, last = 5 * time.Millisecond, time.Second

// Pace says how long to wait before the next attempt. The zero Pace is ready.
type Pace struct{ delay time.Duration }

// Reset forgets the failures so far: an attempt succeeded.
func (p *Pace) Reset() { p.delay = 0 }

// Wait waits, longer each time in a row, and says false when done was closed instead.
func (p *Pace) Wait(done <-chan struct{}) bool {
	p.delay = min(max(first, 2*p.delay), last)
	timer := time.NewTimer(p.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}
