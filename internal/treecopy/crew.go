package treecopy

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"sync"

	"github.com/hutch-sh/hutch/internal/diskuse"
)

// maxCrew is how many folders are copied at once, where there are as many processors.
const maxCrew = 4

// A crew copies a tree. Who comes to a folder while another copier has nothing to do leaves it to that one, with all that is below.
// Files of one folder are left to one copier: others would only wait for the lock that making a name in a folder takes.
type crew struct {
	top    int // dst
	dev    uint64
	idle   chan *copier
	busy   sync.WaitGroup
	cancel context.CancelCauseFunc

	mu  sync.Mutex
	sum diskuse.Usage
	err error // the first

	linking sync.Mutex // of whoever makes a file with several names
	// links are where files with more than one name were put, below top.
	links map[inode]string
}

// newCrew returns the first of a crew as well, who has the tree.
func newCrew(ctx context.Context, top int, dev uint64) (*crew, *copier) {
	w := &crew{top: top, dev: dev, idle: make(chan *copier, maxCrew), links: map[inode]string{}}
	ctx, w.cancel = context.WithCancelCause(ctx)
	for range min(maxCrew, runtime.GOMAXPROCS(0)) - 1 {
		w.idle <- &copier{ctx: ctx, crew: w}
	}
	return w, &copier{ctx: ctx, crew: w}
}

// leave has another one do what c has come to; false says that nobody is idle.
func (c *copier) leave(do func(*copier) error) bool {
	w := c.crew
	select {
	case other := <-w.idle:
		other.path = slices.Clone(c.path)
		w.busy.Go(func() { other.end(do(other)) })
		return true
	default:
		return false
	}
}

// end is of what c was to do. It has nothing to do then; when it has failed, the others end.
func (c *copier) end(err error) {
	w := c.crew
	if err != nil {
		w.mu.Lock()
		if w.err == nil {
			w.err = fmt.Errorf("copy %s: %w", path.Join(c.path...), err)
			w.cancel(w.err)
		}
		w.mu.Unlock()
	}
	w.idle <- c
}

// wait is for the end of all.
func (w *crew) wait() (diskuse.Usage, error) {
	w.busy.Wait()
	w.cancel(nil)
	return w.sum, w.err
}
