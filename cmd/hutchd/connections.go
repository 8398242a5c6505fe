package main

import (
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// connections counts those that are open. One user's never take all that there are: others of this daemon's, and root,
// get through.
type connections struct {
	most int // set once

	mu  sync.Mutex // guards what follows
	all int
	by  map[uint32]int // by uid, those who have one
}

// ofOne is how many a user may have.
func (c *connections) ofOne() int { return c.most - c.most/8 }

// enter counts a connection of a user's, until leave, or says why there is no room for it.
func (c *connections) enter(uid uint32) *api.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.all >= c.most:
		return api.Errorf(api.ResourceExhausted, "the daemon serves %d connections, and no more", c.most).
			WithHint("close some, or start the daemon with a higher limit of open files (ulimit -n)")
	case c.by[uid] >= c.ofOne():
		return api.Errorf(api.ResourceExhausted, "user %d has %d connections to the daemon, and may have no more", uid,
			c.by[uid]).
			WithHint("close some, or start the daemon with a higher limit of open files (ulimit -n)")
	}
	if c.by == nil {
		c.by = make(map[uint32]int)
	}
	c.all++
	c.by[uid]++
	return nil
}

func (c *connections) leave(uid uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.by[uid]--; c.by[uid] == 0 {
		delete(c.by, uid)
	}
}
