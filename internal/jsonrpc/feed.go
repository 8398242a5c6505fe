package jsonrpc

import (
	"context"
	"fmt"
)

// Feed queues one notification of a stream of them: what an exec writes, what
// happens in the daemon. Unlike Notify it never drops and unlike Tell it waits,
// until the client has read nearly all that was queued before. So there is never
// more than about one such line in memory for a connection, however many feed it,
// and a reply never waits behind more than that.
//
// Those who feed a connection take turns, first come first served. build appends
// to the empty line that it gets what is to be sent; it appends nothing when there
// is nothing. It runs when there is room, so that what it reads is not held in
// memory meanwhile, and must not block. Feed returns the error of build.
func (c *Channel) Feed(ctx context.Context, build func(line []byte) ([]byte, error)) error {
	select {
	case c.turn <- struct{}{}: // waiting senders are served in order
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	if err := c.w.AwaitRoom(ctx); err != nil {
		return fmt.Errorf("feed: %w", err)
	}
	lent, ok := lines.Get().(*[]byte)
	if !ok {
		lent = new([]byte)
	}
	line, err := build((*lent)[:0])
	if err != nil || len(line) == 0 {
		lines.Put(lent)
		return err
	}
	*lent = append(line, '\n')
	return c.w.feed(lent)
}

// KeepOpen makes Serve wait for release, besides the replies, after a client has
// finished writing but still reads; a client that is gone, and Drain, end it all
// the same. release may be called once.
func (c *Channel) KeepOpen() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fed++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fed--
		if c.waiting && c.idleLocked() {
			c.wakeLocked()
		}
	}
}

// idleLocked reports whether nothing is under way that a client still waits for.
func (c *Channel) idleLocked() bool { return len(c.calls) == 0 && (c.fed == 0 || c.draining) }
