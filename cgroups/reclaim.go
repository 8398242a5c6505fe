package cgroups

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A write to memory.reclaim (Linux 5.19) reclaims before it returns, and holds on to the cgroup's file meanwhile. A
// removal of the cgroup waits for that (kernfs_drain) with cgroup_mutex held, for which every other removal, creation,
// freeze and kill of cgroups on the machine waits in turn. So: small pieces, one at a time, and whoever is about to
// remove the cgroup ends the write first. The kernel looks for a signal between attempts of a fraction of a piece each.
const reclaimPiece = 1 << 20

// maxReclaims bounds how many sandboxes wait for their turn. Of those that are paused beyond that nothing is taken
// back.
const maxReclaims = 1024

// interruptSignal ends a write. It is the one by which Go's runtime preempts goroutines: it has a handler in every
// program, expects strays and does nothing about them, and no program asks for it. The handler's SA_RESTART
// does not matter, because memory_reclaim says EINTR itself.
const interruptSignal = unix.SIGURG

// Reclaim takes back page cache that a sandbox's cgroup is charged for, behind the caller's back and when it is its
// turn, and calls told with what its memory is less. Where the hierarchy has no memory.reclaim (v1, before Linux 5.19),
// or too many wait, or it was stopped before it was through, told is not called. Once stop has returned nothing is
// being written and told is not called any more; it takes as long as the kernel takes for a MiB. told must neither wait
// for long nor call stop, which may be called more than once.
func (x *Execs) Reclaim(sandbox string, told func(bytes int64)) (stop func()) {
	if !x.v2("memory") {
		return func() {}
	}
	return x.reclaims.add(filepath.Join(x.mounts["memory"], sandbox), told)
}

// reclaims are all that are under way: one is, by a thread that there is while any waits.
type reclaims struct {
	done sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held over a write
	queue  []*reclaim
	now    *reclaim // whose turn it is
	thread int      // that writes
	runs   bool
	closed bool
}

// reclaim is that of one cgroup. What is not constant reclaims.mu guards.
type reclaim struct {
	dir     string
	told    func(bytes int64)
	left    chan struct{} // closed when nothing is written for it any more
	stopped bool
	file    int // memory.reclaim while it may be written to, else -1
	other   int // one that cannot be written to
}

func (q *reclaims) add(dir string, told func(int64)) (stop func()) {
	r := &reclaim{dir: dir, told: told, left: make(chan struct{}), file: -1}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.queue) >= maxReclaims {
		return func() {}
	}
	q.queue = append(q.queue, r)
	if !q.runs {
		q.runs = true
		q.done.Go(q.run)
	}
	return func() { q.stop(r) }
}

// stop returns when nothing is written for r any more.
func (q *reclaims) stop(r *reclaim) {
	q.mu.Lock()
	q.end(r)
	q.mu.Unlock()
	<-r.left
}

// end makes r leave. A signal that comes just before the write, when nobody has asked for another yet, would be lost;
// so its file is exchanged for one that cannot be written to. Whoever comes too late for the signal fails at that.
func (q *reclaims) end(r *reclaim) {
	r.stopped = true
	if i := slices.Index(q.queue, r); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
		close(r.left)
		return
	}
	if r.file >= 0 {
		_ = unix.Dup3(r.other, r.file, unix.O_CLOEXEC)
		_ = unix.Tgkill(os.Getpid(), q.thread, interruptSignal)
	}
}

// close ends all of them.
func (q *reclaims) close() {
	q.mu.Lock()
	q.closed = true
	for len(q.queue) > 0 {
		q.end(q.queue[0])
	}
	if q.now != nil {
		q.end(q.now)
	}
	q.mu.Unlock()
	q.done.Wait()
}

// run writes until nobody waits any more. Signals are for threads, so it stays on one.
func (q *reclaims) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		q.mu.Lock()
		q.now = nil
		if len(q.queue) == 0 {
			q.runs = false
			q.mu.Unlock()
			return
		}
		r := q.queue[0]
		q.queue = slices.Delete(q.queue, 0, 1)
		q.now, q.thread = r, unix.Gettid()
		q.mu.Unlock()
		if bytes, err := q.take(r); err == nil {
			r.told(bytes)
		}
		close(r.left)
	}
}

// errStopped says that a reclaim was stopped.
var errStopped = errors.New("stopped")

// take reclaims as much as there is page cache, if nobody stops it, and returns what was gained. Anonymous memory stays
// where it is unless there is swap: then the kernel decides what it takes.
func (q *reclaims) take(r *reclaim) (gained int64, err error) {
	stat, err := unix.Open(filepath.Join(r.dir, "memory.stat"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reclaim memory: %w", err)
	}
	defer unix.Close(stat)
	file, err := unix.Open(filepath.Join(r.dir, "memory.reclaim"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("reclaim memory: %w", err)
	}
	q.mu.Lock()
	r.file, r.other = file, stat
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		r.file = -1
		_ = unix.Close(file)
	}()
	left, err := pageCache(stat)
	if err != nil {
		return 0, err
	}
	before, err := current(r.dir)
	now := before
	for err == nil && left >= int64(os.Getpagesize()) {
		if q.isStopped(r) {
			return 0, errStopped
		}
		piece := min(left, reclaimPiece)
		_, werr := unix.Write(file, []byte(strconv.FormatInt(piece, 10)))
		was := now
		if now, err = current(r.dir); err != nil {
			break
		}
		switch {
		case q.isStopped(r):
			return 0, errStopped
		case werr == nil:
			left -= piece
		case errors.Is(werr, unix.EINTR): // a stray signal
		case errors.Is(werr, unix.EAGAIN) && was-now >= piece/8:
			// not all of it: what is being used just then for example
			left -= was - now
		case errors.Is(werr, unix.EAGAIN):
			left = 0
		default:
			err = fmt.Errorf("reclaim memory: %w", werr)
		}
	}
	return max(0, before-now), err
}

func (q *reclaims) isStopped(r *reclaim) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.stopped
}

// pageCache is the memory of a cgroup, and all below it, that is a copy of what a file has on the disk: file of
// memory.stat counts tmpfs, too. What the disk has not got yet the kernel would write there first, and all else of the
// machine that is so with it.
func pageCache(stat int) (int64, error) {
	buf := make([]byte, 16<<10)
	n, err := unix.Pread(stat, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("read memory.stat: %w", err)
	}
	text := string(buf[:n])
	return int64(key(text, "inactive_file") + key(text, "active_file") - key(text, "file_dirty") - key(text,
		"file_writeback")), nil
}

func current(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, fmt.Errorf("reclaim memory: %w", err)
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
