// Package rmtree removes folders whose content is hostile: written by a sandbox, or
// unpacked from an archive.
package rmtree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// removeBatch is how many names of a folder are read at once.
const removeBatch = 1024

// Path removes what path names, as At does.
func Path(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	defer dir.Close()
	return At(int(dir.Fd()), filepath.Base(path))
}

// At removes name, of any kind, from the folder parent, without following
// symlinks. A tree can be thousands of folders deep, so unlike os.RemoveAll it
// holds one folder open at a time and comes back by "..", which is sound because
// nobody else may change the tree meanwhile. It enters no mount: what is mounted
// below, a workspace that could not be unmounted say, is not the tree's, and gives
// EXDEV. It is no error when name does not exist.
func At(parent int, name string) error {
	err := unlink(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	w := &remover{}
	if err := w.enter(parent, name); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	if err := w.run(); err != nil {
		return fmt.Errorf("remove below %q: %w", name, err)
	}
	if err := unlink(parent, name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// remover walks a tree. levels are the folders from the top to the open one.
type remover struct {
	dir    *os.File
	levels []level
}

type level struct {
	name    string
	pending []string // folders below it, read but not yet removed
}

// enter goes down into a folder.
func (w *remover) enter(parent int, name string) error {
	fd, err := sys.OpenBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.EXDEV) {
		return fmt.Errorf("something is still mounted on %q: %w", name, err)
	}
	if err != nil {
		return err
	}
	w.swap(fd, name)
	w.levels = append(w.levels, level{name: name})
	return nil
}

// leave goes up and removes the folder it came from, which is empty.
func (w *remover) leave() error {
	fd, err := unix.Openat(w.fd(), "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	name := w.levels[len(w.levels)-1].name
	w.levels = w.levels[:len(w.levels)-1]
	w.swap(fd, "..")
	return unlink(fd, name, unix.AT_REMOVEDIR)
}

func (w *remover) fd() int { return int(w.dir.Fd()) }

func (w *remover) swap(fd int, name string) {
	if w.dir != nil {
		_ = w.dir.Close()
	}
	w.dir = os.NewFile(uintptr(fd), name)
}

// run empties the top folder.
func (w *remover) run() error {
	defer func() { _ = w.dir.Close() }()
	for {
		l := &w.levels[len(w.levels)-1]
		if n := len(l.pending); n > 0 {
			name := l.pending[n-1]
			l.pending = l.pending[:n-1]
			if err := w.enter(w.fd(), name); err != nil {
				return err
			}
			continue
		}
		empty, err := w.clear(l)
		if err != nil {
			return err
		}
		if !empty {
			continue
		}
		if len(w.levels) == 1 {
			return nil
		}
		if err := w.leave(); err != nil {
			return err
		}
	}
}

// clear removes the next batch of files and lists the folders among them.
func (w *remover) clear(l *level) (empty bool, err error) {
	names, err := w.dir.Readdirnames(removeBatch)
	if errors.Is(err, io.EOF) || (err == nil && len(names) == 0) {
		// The position may be behind names that an unlink moved: look again
		// from the start unless that was the first look.
		return w.isEmpty(l)
	}
	if err != nil {
		return false, err
	}
	return false, w.unlinkAll(l, names)
}

// isEmpty reads the folder from its start and removes what is still there.
func (w *remover) isEmpty(l *level) (bool, error) {
	if _, err := w.dir.Seek(0, io.SeekStart); err != nil {
		return false, err
	}
	names, err := w.dir.Readdirnames(removeBatch)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	return len(names) == 0, w.unlinkAll(l, names)
}

func (w *remover) unlinkAll(l *level, names []string) error {
	for _, name := range names {
		switch err := unlink(w.fd(), name, 0); {
		case errors.Is(err, unix.EISDIR):
			l.pending = append(l.pending, name)
		case err != nil && !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return nil
}

func unlink(dir int, name string, flags int) error {
	for {
		err := unix.Unlinkat(dir, name, flags)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
