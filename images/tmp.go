package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
)

// tmp is a folder below tmp/ in which something is made before a rename
// commits it. Its owner holds an flock on it for as long as it lives, which is
// how sweep tells a dead process's rubbish from another's work: the kernel
// drops the lock with the process.
type tmp struct {
	path string
	dir  *os.File
}

func (t *tmp) fd() int { return int(t.dir.Fd()) }

// newTmp makes a locked temporary folder. The caller must discard it.
func (s *folder) newTmp() (*tmp, error) {
	for {
		p, err := os.MkdirTemp(s.path(tmpDir), "")
		if err != nil {
			return nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		t, err := lockTmp(p)
		if err != nil {
			return nil, err
		}
		if t != nil {
			return t, nil
		}
		// Another process's sweep took it between mkdir and flock.
	}
}

// lockTmp locks the folder p, and returns nil if it vanished meanwhile.
func lockTmp(p string) (*tmp, error) {
	d, err := openDir(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch err := flockNow(d, unix.LOCK_EX); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, d.Close()
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", p, err), d.Close())
	}
	if !samePath(d, p) {
		return nil, d.Close()
	}
	return &tmp{path: p, dir: d}, nil
}

// discard removes the folder, or what is left of it after a commit, and ends
// the lock. Failures leave it to a later sweep.
func (t *tmp) discard() { _ = t.remove() }

// remove removes while the lock is held, so that no sweep meets a half-removed
// folder. A layer's folders may be nested deeper than os.RemoveAll has files
// to open.
func (t *tmp) remove() error {
	defer t.dir.Close()
	parent, err := openDir(filepath.Dir(t.path))
	if err != nil {
		return err
	}
	defer parent.Close()
	return rmtree.At(int(parent.Fd()), filepath.Base(t.path))
}

// sweep removes the temporary folders of processes that died. What cannot be
// removed does not keep a store from being used: files that a daemon with a
// range of ids left are out of reach without it.
func (s *folder) sweep() error {
	entries, err := os.ReadDir(s.path(tmpDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := filepath.Join(s.path(tmpDir), e.Name())
		t, err := lockTmp(p)
		if err == nil && t != nil { // else alive, or gone
			err = t.remove()
		}
		s.log.Debug("swept a temporary folder", "path", p, "err", err)
	}
	return nil
}

// openDir opens a folder that must not be a symlink.
func openDir(p string) (*os.File, error) {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: err}
	}
	return os.NewFile(uintptr(fd), p), nil
}

// flockNow takes an flock without waiting; EWOULDBLOCK when another open file
// has it.
func flockNow(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unlockNow closes f, and its lock is free when it returns. The close alone would leave that to whoever has a
// duplicate: what this process or hutch-launch is just starting, until it executes its program, and hutch-launch until
// it comes round to closing its own.
func unlockNow(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

// samePath reports whether p still names the open file f.
func samePath(f *os.File, p string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(p)
	return err == nil && os.SameFile(a, b)
}
