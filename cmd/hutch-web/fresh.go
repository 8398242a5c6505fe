package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// fresh is what some files say, read again once one of them is another file or was written since. Nobody waits for
// that: it is looked at when somebody needs to know. What cannot be read changes nothing, and is reported once.
type fresh[T any] struct {
	paths  []string
	load   func() (T, error)
	report func(error)

	mu    sync.Mutex
	seen  []stamp
	value T
}

// stamp tells one state of a file from another.
type stamp struct {
	dev, ino, size int64
	written        time.Time
}

func newFresh[T any](load func() (T, error), report func(error), paths ...string) (*fresh[T], error) {
	f := &fresh[T]{paths: paths, load: load, report: report, seen: stamps(paths)}
	var err error
	f.value, err = load()
	return f, err
}

func (f *fresh[T]) get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := stamps(f.paths)
	if slices.Equal(now, f.seen) {
		return f.value
	}
	f.seen = now // before it is read: what changes meanwhile is seen the next time
	value, err := f.load()
	if err != nil {
		f.report(err)
		return f.value
	}
	f.value = value
	return value
}

func stamps(paths []string) []stamp {
	all := make([]stamp, len(paths)) // of one that is not there, nothing
	for i, path := range paths {
		st, err := os.Stat(path)
		if err != nil {
			continue
		}
		all[i] = stamp{size: st.Size(), written: st.ModTime()}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			all[i].dev, all[i].ino = int64(sys.Dev), int64(sys.Ino) //nolint:gosec // only compared
		}
	}
	return all
}

// maxSecret bounds a file of tokens, or a key.
const maxSecret = 1 << 20

// readSecret reads a file that belongs to the user, or to root, and that nobody else can read or write.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case st.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s can be read by others (mode %04o): chmod 600 %[1]s", path, st.Mode().Perm())
	case !ok || int(sys.Uid) != os.Geteuid() && sys.Uid != 0:
		return nil, fmt.Errorf("%s belongs to another user", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err == nil && len(data) > maxSecret {
		err = errors.New("it has over 1 MiB")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}
