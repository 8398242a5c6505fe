package cgroups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// hits tells of limits that were met, as it happens: the kernel modifies memory.events and
// pids.events then, at most every 10 ms (CGROUP_FILE_NOTIFY_MIN_INTV in kernel/cgroup). v1's
// memory controller has an eventfd for it instead, and its pids controller nothing: such forks
// are reported when the command has ended. One inotify instance serves all sandboxes,
// for watcher's reasons; a nil one tells nothing.
type hits struct {
	inotify *os.File
	fd      int
	done    sync.WaitGroup

	mu     sync.Mutex
	byWD   map[int32]*hit
	closed bool
}

// hit is what is called for one file.
type hit struct {
	mu   sync.Mutex // held while it is called
	call func()     // nil when nobody wants it any more
}

func (h *hit) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.call != nil {
		h.call()
	}
}

// end returns when it is not being called, and will not be.
func (h *hit) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.call = nil
}

func newHits() (*hits, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch limits: %w", err)
	}
	h := &hits{inotify: os.NewFile(uintptr(fd), "inotify"), fd: fd, byWD: map[int32]*hit{}}
	h.done.Go(h.read)
	return h, nil
}

func (h *hits) close() error {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	err := h.inotify.Close()
	h.done.Wait()
	return err
}

// read calls what is registered for each file that was modified.
func (h *hits) read() {
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := h.inotify.Read(buf)
		if err != nil {
			return
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; { // see watcher.read
			h.mu.Lock()
			met := h.byWD[int32(binary.NativeEndian.Uint32(buf[at:]))]
			h.mu.Unlock()
			if met != nil {
				met.now()
			}
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
	}
}

func (h *hits) add(path string, call func()) (drop func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, os.ErrClosed
	}
	wd, err := unix.InotifyAddWatch(h.fd, path, unix.IN_MODIFY)
	if err != nil {
		return nil, &os.PathError{Op: "watch", Path: path, Err: err}
	}
	met := &hit{call: call}
	h.byWD[int32(wd)] = met
	return func() {
		h.forget(int32(wd))
		met.end()
	}, nil
}

func (h *hits) forget(wd int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.byWD, wd)
	if !h.closed {
		_, _ = unix.InotifyRmWatch(h.fd, uint32(wd))
	}
}

// Watch calls hit, with VerdictOOM or VerdictPIDs, whenever a sandbox has met its limit of
// memory or of processes. Once stop has returned hit is not being called, and will not be: hit must not call stop, nor
// wait for anything. What cannot be watched is left out: Events counts it all the same.
func (x *Execs) Watch(sandbox string, hit func(api.Verdict)) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	if x.hits == nil {
		return stop, nil
	}
	add := func(controller, file string, counter func() uint64, v api.Verdict) error {
		before := counter()
		drop, err := x.hits.add(filepath.Join(x.mounts[controller], sandbox, file), func() {
			// memory.events is modified by more than kills.
			if now := counter(); now > before {
				before = now
				hit(v)
			}
		})
		if err == nil {
			stops = append(stops, drop)
		}
		return err
	}
	if x.v2("pids") { // v1's file is never said to be modified
		err = add("pids", "pids.events", func() uint64 { _, n := x.Events(sandbox); return n }, api.VerdictPIDs)
	}
	switch {
	case x.mounts["memory"] == "":
	case x.v2("memory"):
		err = errors.Join(err, add("memory", "memory.events", func() uint64 { n, _ := x.Events(sandbox); return n },
			api.VerdictOOM))
	default:
		drop, werr := watchOOM1(filepath.Join(x.mounts["memory"], sandbox), func() { hit(api.VerdictOOM) })
		if err = errors.Join(err, werr); werr == nil {
			stops = append(stops, drop)
		}
	}
	return stop, err
}

// watchOOM1 registers an eventfd with a v1 memory cgroup
// (Documentation/admin-guide/cgroup-v1/memory.rst, 10). The kernel adds to it before it
// kills, and once more when the cgroup is removed.
func watchOOM1(dir string, call func()) (stop func(), err error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch memory: %w", err)
	}
	event := os.NewFile(uintptr(fd), "oom")
	control, err := openFile(filepath.Join(dir, "memory.oom_control"), unix.O_RDONLY)
	if err == nil {
		defer unix.Close(control)
		err = write(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch memory: %w", err), event.Close())
	}
	var done sync.WaitGroup
	done.Go(func() {
		buf := make([]byte, 8)
		for {
			if _, err := event.Read(buf); err != nil {
				return // stopped
			}
			if _, err := os.Stat(dir); err != nil {
				return
			}
			call()
		}
	})
	return func() {
		_ = event.Close()
		done.Wait()
	}, nil
}
