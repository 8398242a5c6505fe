package treecopy

import (
	"context"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
)

// maxCrew is how many folders are copied at once, where there are as many processors, and maxLeft how many wait for
// each copier but the first: so many that nobody has to wait for the next one, and few, because they are open.
const (
	maxCrew = 4
	maxLeft = 4
)

// A crew copies a tree. Who comes to a folder leaves it to the others, with all that is below, unless enough wait
// already. Files of one folder are left to one copier: others would only wait for the lock that making a name in a
// folder takes.
type crew struct {
	Options
	top    int // dst
	dev    uint64
	cancel context.CancelCauseFunc
	left   chan *folder
	undone atomic.Int64 // folders that somebody is at, or that wait

	mu  sync.Mutex
	sum diskuse.Usage
	err error // the first

	linking sync.Mutex // of whoever makes a file with several names
	// links are where files with more than one name were put, below top.
	links map[inode]string
	names int // bytes of the names of files with several
}

// folder is one to be copied.
type folder struct {
	src, dst *os.File
	st       unix.Stat_t // of src
	depth    int
	path     []string
}

// copyAll copies f and all that is below.
func copyAll(ctx context.Context, o Options, f *folder) (diskuse.Usage, error) {
	others := min(maxCrew, runtime.GOMAXPROCS(0)) - 1
	if o.Alone {
		others = 0
	}
	w := &crew{Options: o, top: int(f.dst.Fd()), dev: f.st.Dev, left: make(chan *folder, maxLeft*others),
		links: map[inode]string{}}
	ctx, w.cancel = context.WithCancelCause(ctx)
	defer w.cancel(nil)
	var busy sync.WaitGroup
	for range others {
		busy.Go(func() { w.help(&copier{ctx: ctx, crew: w}) })
	}
	w.undone.Add(1)
	c := &copier{ctx: ctx, crew: w}
	w.did(c, c.folder(f.src, f.dst, &f.st, f.depth))
	w.help(c)
	busy.Wait()
	return w.sum, w.err
}

// leave leaves a folder to the others, which then own its files; false says that enough wait.
func (c *copier) leave(src, dst *os.File, st *unix.Stat_t, depth int) bool {
	w := c.crew
	if len(w.left) == cap(w.left) {
		return false
	}
	w.undone.Add(1)
	select {
	case w.left <- &folder{src, dst, *st, depth, slices.Clone(c.path)}:
		return true
	default:
		w.undone.Add(-1) // not the last: the caller is at one
		return false
	}
}

// help copies what is left until nothing is.
func (w *crew) help(c *copier) {
	for f := range w.left {
		c.path = f.path
		err := c.folder(f.src, f.dst, &f.st, f.depth)
		f.src.Close()
		f.dst.Close()
		w.did(c, err)
	}
}

// did says how the copy of a folder has ended. When it has failed, so do the others.
func (w *crew) did(c *copier, err error) {
	if err != nil {
		w.mu.Lock()
		if w.err == nil {
			w.err = fmt.Errorf("copy %s: %w", path.Join(c.path...), err)
			w.cancel(w.err)
		}
		w.mu.Unlock()
	}
	if w.undone.Add(-1) == 0 {
		close(w.left)
	}
}

func (w *crew) count(st *unix.Stat_t) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum = w.sum.Add(diskuse.Usage{Bytes: st.Blocks * 512, Inodes: 1}) // stat(2): units of 512
}
