package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Lease keeps folders of the store from being removed, by this process or by
// any other, until Release. A process that dies loses its leases.
type Lease struct {
	l     *leases
	names []string
	once  sync.Once
}

// leases holds one shared flock per leased folder, counted, so that a hundred
// sandboxes of one image cost one file per layer.
type leases struct {
	mu sync.Mutex
	m  map[string]*leased
}

type leased struct {
	dir *os.File
	n   int
}

// Lease keeps the named folders, each as in Image.Layers or Rootfs.Lower. It
// fails with not_found when one of them does not exist.
func (s *folder) Lease(names []string) (*Lease, error) {
	l := &Lease{l: &s.leases}
	for _, name := range names {
		name = unit(name)
		if err := s.leases.hold(s.path(name), name); err != nil {
			l.Release()
			return nil, err
		}
		l.names = append(l.names, name)
	}
	return l, nil
}

// Release ends the lease. Further calls do nothing.
func (l *Lease) Release() {
	l.once.Do(func() {
		for _, name := range l.names {
			l.l.drop(name)
		}
	})
}

// Each calls f with each leased folder and the file whose flock is the lease; both stay
// the store's. Another process that holds a duplicate of the file keeps the folder when
// this one dies.
func (l *Lease) Each(f func(name string, lock *os.File)) {
	l.l.mu.Lock()
	defer l.l.mu.Unlock()
	for _, name := range l.names {
		if have := l.l.m[name]; have != nil {
			f(name, have.dir)
		}
	}
}

func (l *leases) hold(path, name string) error {
	if l.again(name) {
		return nil
	}
	dir, err := lockShared(path) // others go on meanwhile
	if err != nil {
		return err
	}
	if dir == nil {
		return api.Errorf(api.NotFound, "the store has no folder %s", name).
			WithHint("Pull the image again.")
	}
	l.enter(name, dir)
	return nil
}

// again takes a lease of a folder once more; false where there is none.
func (l *leases) again(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.m[name]
	if have == nil {
		return false
	}
	have.n++
	return true
}

// adopt makes a lease of a folder that the caller has open and has taken the
// shared flock of, and takes over the file.
func (l *leases) adopt(name string, dir *os.File) *Lease {
	l.enter(name, dir)
	return &Lease{l: l, names: []string{name}}
}

func (l *leases) enter(name string, dir *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.m[name]; have != nil { // another was faster
		have.n++
		unlockNow(dir)
		return
	}
	if l.m == nil {
		l.m = make(map[string]*leased)
	}
	l.m[name] = &leased{dir: dir, n: 1}
}

func (l *leases) drop(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.m[name]
	if have == nil {
		return // closeAll was first
	}
	if have.n--; have.n == 0 {
		delete(l.m, name)
		unlockNow(have.dir)
	}
}

// closeAll is for the end of this process; what others have duplicates of stays leased.
func (l *leases) closeAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for name, have := range l.m {
		errs = append(errs, have.dir.Close())
		delete(l.m, name)
	}
	return errors.Join(errs...)
}

// held reports whether this process has a lease on name. An flock belongs to
// an open file, so its own would not keep this process from removing it.
func (l *leases) held(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.m[name] != nil
}

// lockShared opens a folder and takes a shared flock on it; nil without an
// error when it does not exist. A collector holds its exclusive lock only
// while it looks at refs and renames, so the wait is short.
func lockShared(path string) (*os.File, error) {
	dir, err := openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_SH)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), dir.Close())
	}
	if !samePath(dir, path) {
		if err := dir.Close(); err != nil {
			return nil, err
		}
		return lockShared(path) // removed while we waited, or replaced
	}
	return dir, nil
}
