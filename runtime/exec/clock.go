package exec

import (
	"context"
	"sync"
	"time"
)

// Clock is the time that a sandbox's commands have: it stands still while the sandbox is
// paused. The life of the sandbox, ttl_s, goes by the wall's.
type Clock struct {
	mu      sync.Mutex
	stopped time.Time     // zero while it runs
	total   time.Duration // that it has stood still before
	running chan struct{} // closed while it runs
	alarms  map[*alarm]struct{}
}

// alarm is one deadline by the clock.
type alarm struct {
	until time.Time // as of the last stop, or now
	timer *time.Timer
	ring  func()
}

// ClockState is a clock in record.json, for the next hutchd.
type ClockState struct {
	Stopped time.Time     `json:"stopped,omitzero"`
	Total   time.Duration `json:"total,omitempty"`
}

// NewClock is one that goes on from a state, or begins.
func NewClock(from ClockState) *Clock {
	c := &Clock{stopped: from.Stopped, total: from.Total, running: make(chan struct{}), alarms: map[*alarm]struct{}{}}
	if c.stopped.IsZero() {
		close(c.running)
	}
	return c
}

// State is what the next hutchd is to know of it.
func (c *Clock) State() ClockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ClockState{Stopped: c.stopped, Total: c.total}
}

// Stop makes the clock stand still.
func (c *Clock) Stop(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return
	}
	c.stopped, c.running = now, make(chan struct{})
	for a := range c.alarms {
		a.timer.Stop()
	}
}

// GoOn lets the clock run; what was left of every deadline then is left now.
func (c *Clock) GoOn(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		return
	}
	stood := now.Sub(c.stopped)
	c.total, c.stopped = c.total+stood, time.Time{}
	for a := range c.alarms {
		a.until = a.until.Add(stood)
		a.timer.Reset(a.until.Sub(now))
	}
	close(c.running)
}

// Runs is closed while the clock runs.
func (c *Clock) Runs() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// alarm calls ring at a time, put off by what the clock has stood still since it had
// stood still for so long before. cancel may be called more than once; ring may be under
// way then.
func (c *Clock) alarm(until time.Time, before time.Duration, ring func()) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{until: until.Add(c.total - before), ring: ring}
	left := time.Until(a.until)
	a.timer = time.AfterFunc(left, func() {
		c.mu.Lock()
		_, due := c.alarms[a]
		if due = due && c.stopped.IsZero() && !time.Now().Before(a.until); due {
			delete(c.alarms, a)
		}
		c.mu.Unlock()
		if due { // else it was stopped at the last moment
			ring()
		}
	})
	if !c.stopped.IsZero() {
		a.timer.Stop()
	}
	c.alarms[a] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		a.timer.Stop()
		delete(c.alarms, a)
	}
}

// Limit is ctx with a deadline by the clock, whose cause is why.
func (c *Clock) Limit(ctx context.Context, until time.Time, before time.Duration, why error) (context.Context,
	context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := c.alarm(until, before, func() { end(why) })
	return ctx, func() {
		cancel()
		end(nil)
	}
}
