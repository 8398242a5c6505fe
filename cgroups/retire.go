package cgroups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher removes cgroups when their last process has ended. A nil one cannot watch:
// what is not empty at once then goes with its sandbox. One inotify instance
// serves them all: a sandbox, which shares hutchd's uid and so its quota of
// instances, cannot take it away.
type watcher struct {
	inotify *os.File
	fd      int // inotify's: File.Fd would take it out of the poller
	done    sync.WaitGroup

	mu     sync.Mutex // guards what follows; held across removals, which wait for one lock of the kernel's anyway
	byWD   map[int32]string
	closed bool
}

func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch cgroups: %w", err)
	}
	w := &watcher{inotify: os.NewFile(uintptr(fd), "inotify"), fd: fd, byWD: map[int32]string{}}
	w.done.Go(w.read)
	return w, nil
}

func (w *watcher) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.inotify.Close()
	w.done.Wait()
	return err
}

// retire removes dir when it is empty. Where it cannot be watched and is not empty now, it goes with
// its sandbox.
func (w *watcher) retire(dir string) {
	if w == nil {
		removed(dir)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.done.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if removed(dir) || w.closed {
			return
		}
		// The kernel modifies the file when the cgroup gets or loses its first or last
		// process (cgroup-v2.rst, cgroup.events).
		wd, err := unix.InotifyAddWatch(w.fd, filepath.Join(dir, "cgroup.events"), unix.IN_MODIFY)
		if err != nil {
			return
		}
		if w.byWD[int32(wd)] = dir; removed(dir) { // it may have been just before
			w.drop(int32(wd))
		}
	})
}

// removed removes a cgroup, and reports whether it is gone.
func removed(dir string) bool {
	err := unix.Rmdir(dir)
	return err == nil || errors.Is(err, unix.ENOENT)
}

// drop ends a watch. The kernel does not when the file has gone.
func (w *watcher) drop(wd int32) {
	delete(w.byWD, wd)
	_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
}

// forget ends the watches below a folder.
func (w *watcher) forget(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for wd, dir := range w.byWD {
		if strings.HasPrefix(dir, prefix) {
			w.drop(wd)
		}
	}
}

// read answers events until the file is closed.
func (w *watcher) read() {
	buf := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		for at := 0; at+unix.SizeofInotifyEvent <= n && !w.closed; {
			// struct inotify_event: wd, mask, cookie, len, all of 4 bytes, and a name,
			// which an event of a watched file does not have.
			wd := int32(binary.NativeEndian.Uint32(buf[at:]))
			if dir, ok := w.byWD[wd]; ok && removed(dir) {
				w.drop(wd)
			}
			at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
		}
		w.mu.Unlock()
	}
}
