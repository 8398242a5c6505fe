package cgroups

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// maxOpen bounds the files that are kept open; what is more is opened for each reading.
const maxOpen = 2048

// files reads small files of cgroups, those that every exec asks for again and again: to
// look up a path costs several times what the reading does. Its methods may be called from
// any goroutine.
type files struct {
	mu   sync.RWMutex // held to read: nobody closes a file meanwhile
	open map[string]map[string]int
	n    int    // files that are open
	age  uint64 // how often files were forgotten
}

// read returns the start of a file of a folder. It stays open until forget.
func (f *files) read(dir, name string) (string, error) {
	f.mu.RLock()
	if fd, ok := f.open[dir][name]; ok {
		defer f.mu.RUnlock()
		return readAt(fd, dir, name)
	}
	age := f.age
	f.mu.RUnlock()
	fd, err := unix.Open(filepath.Join(dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: filepath.Join(dir, name), Err: err}
	}
	text, err := readAt(fd, dir, name)
	if err != nil || !f.keep(dir, name, fd, age) {
		_ = unix.Close(fd)
	}
	return text, err
}

// keep says whether a file that was opened at an age stays open. Its folder may have been forgotten since, as those are
// that are gone, and nobody would ever close it.
func (f *files) keep(dir, name string, fd int, age uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.open[dir][name]; ok || f.age != age || f.n >= maxOpen {
		return false
	}
	if f.open == nil {
		f.open = map[string]map[string]int{}
	}
	if f.open[dir] == nil {
		f.open[dir] = map[string]int{}
	}
	f.open[dir][name] = fd
	f.n++
	return true
}

// readAt reads from the start: the kernel then makes the text anew.
func readAt(fd int, dir, name string) (string, error) {
	var buf [1024]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil { // ENODEV: the cgroup is gone
		return "", &os.PathError{Op: "read", Path: filepath.Join(dir, name), Err: err}
	}
	return string(buf[:n]), nil
}

// forget closes the files of folders: of all for which it is true.
func (f *files) forget(which func(dir string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.age++
	for dir := range f.open {
		if which(dir) {
			f.drop(dir)
		}
	}
}

// forgetOne closes the files of one folder.
func (f *files) forgetOne(dir string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.age++
	f.drop(dir)
}

func (f *files) drop(dir string) {
	for _, fd := range f.open[dir] {
		_ = unix.Close(fd)
		f.n--
	}
	delete(f.open, dir)
}
