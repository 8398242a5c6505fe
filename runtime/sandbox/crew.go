package sandbox

import (
	"context"
	"sync"
)

// crew is goroutines that somebody waits for. Unlike with a sync.WaitGroup more may come while somebody waits: the end
// of the daemon does, and sandboxes may still be removed by whoever asks. The zero value is ready.
type crew struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil while nobody waits
}

// Go has f done by a goroutine of the crew.
func (c *crew) Go(f func()) {
	c.Add()
	go func() {
		defer c.Done()
		f()
	}()
}

// Add counts one more, whose end Done tells.
func (c *crew) Add() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

// Done says that one has ended.
func (c *crew) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.none != nil {
		close(c.none)
		c.none = nil
	}
}

// Wait returns when none is left, or ctx ends.
func (c *crew) Wait(ctx context.Context) {
	for {
		c.mu.Lock()
		if c.n == 0 {
			c.mu.Unlock()
			return
		}
		if c.none == nil {
			c.none = make(chan struct{})
		}
		none := c.none
		c.mu.Unlock()
		select {
		case <-none: // and perhaps others have come
		case <-ctx.Done():
			return
		}
	}
}
