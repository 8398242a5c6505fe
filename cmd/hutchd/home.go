package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// home is this daemon's own folder below the data folder, which several daemons
// may share:
//
//	daemons/lock            held while a home is made or swept
//	daemons/<pid>-<n>/lock  held for as long as the daemon lives
//	daemons/<pid>-<n>/sandboxes/<id>
//
// Whoever can take a home's lock knows that its daemon is dead and may sweep it.
// hutch-launch holds the lock as well, so a home lives on when hutchd is killed, and is
// the next one's.
type home struct {
	root string // daemons/
	dir  string
	lock *os.File
	log  *slog.Logger
	// inMemory says that sandboxes lies on a tmpfs.
	inMemory bool
}

// lockName is the lock's in its home.
const lockName = "lock"

// homeKey is the key of the lock at hutch-launch; the home's name follows.
const homeKey = "home/"

// adoptHome is the home of a hutchd before; nil when there is none among what
// hutch-launch has kept. It owns the lock.
func adoptHome(data string, kept map[string]*os.File, log *slog.Logger) *home {
	for key, lock := range kept {
		name, ok := strings.CutPrefix(key, homeKey)
		if !ok {
			continue
		}
		h := &home{root: filepath.Join(data, "daemons"), lock: lock, log: log}
		h.dir = filepath.Join(h.root, name)
		delete(kept, key)
		var st unix.Statfs_t
		h.inMemory = unix.Statfs(h.sandboxes(), &st) == nil && st.Type == unix.TMPFS_MAGIC && isMount(h.sandboxes())
		return h
	}
	return nil
}

// isWhole reports whether nobody has begun to remove the home.
func (h *home) isWhole() bool {
	mine, err := h.lock.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(filepath.Join(h.dir, lockName))
	return err == nil && os.SameFile(mine, named)
}

// isMount reports whether something is mounted on dir.
func isMount(dir string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// key is where hutch-launch keeps the lock.
func (h *home) key() string { return homeKey + filepath.Base(h.dir) }

// openHome makes a home and sweeps those of daemons that were killed.
func openHome(data string, log *slog.Logger) (*home, error) {
	h := &home{root: filepath.Join(data, "daemons"), log: log}
	if err := os.MkdirAll(h.root, 0o700); err != nil {
		return nil, fmt.Errorf("make the daemon's folder: %w", err)
	}
	if _, err := h.sweep(); err != nil {
		log.Warn("sweep what dead daemons left", "err", err)
	}
	all, err := h.lockAll()
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if h.dir, err = os.MkdirTemp(h.root, fmt.Sprintf("%d-", os.Getpid())); err != nil {
		return nil, fmt.Errorf("make the daemon's folder: %w", err)
	}
	if h.lock, err = flock(filepath.Join(h.dir, lockName), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, err
	}
	if err := os.Mkdir(h.sandboxes(), 0o700); err != nil {
		return nil, fmt.Errorf("make the daemon's folder: %w", err)
	}
	if err := sys.Spread(h.sandboxes()); err != nil { // they are made all the same
		log.Debug("spread sandboxes over the disk", "err", err)
	}
	return h, h.makeUsable()
}

// makeUsable mounts a tmpfs on the sandboxes' folder where the state folder's file
// system cannot hold the upper folder of an overlay, as inside a container, whose
// own root is one. What sandboxes write is then kept in memory; inMemory says so.
func (h *home) makeUsable() error {
	err := h.tryOverlay()
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	mnt, err := sys.FSMount("tmpfs", []sys.FSOption{{Key: "source", Value: "hutch"}, {Key: "mode", Value: "0700"}},
		unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fmt.Errorf("keep sandboxes in memory: %w", err)
	}
	defer mnt.Close()
	if err := sys.AttachTree(mnt, h.sandboxes()); err != nil {
		return fmt.Errorf("keep sandboxes in memory: %w", err)
	}
	h.inMemory = true
	h.log.Warn("the state folder's file system cannot hold overlays: what sandboxes write is kept in memory")
	return nil
}

// tryOverlay mounts, and drops, an overlay whose upper folder is where sandboxes'
// will be.
func (h *home) tryOverlay() error {
	dir := filepath.Join(h.sandboxes(), "try")
	defer os.RemoveAll(dir)
	for _, sub := range []string{"", "lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return fmt.Errorf("try the state folder: %w", err)
		}
	}
	return sys.InFolder(dir, func() error {
		mnt, err := sys.FSMount("overlay", []sys.FSOption{
			{Key: "source", Value: "overlay"}, {Key: "lowerdir", Value: "lower"},
			{Key: "upperdir", Value: "upper"}, {Key: "workdir", Value: "work"}, {Key: "userxattr"},
		}, 0)
		if err != nil {
			return err
		}
		if err := unix.Setxattr("upper", "user.overlay.try", []byte("y"), 0); errors.Is(err, unix.EOPNOTSUPP) {
			h.log.Warn("the state folder's file system takes no user attributes: a folder of an image that is removed in a sandbox cannot be made again; " +
				"keep HUTCH_ROOT on ext4, xfs, btrfs, or a tmpfs of Linux 6.6 or later")
		}
		return mnt.Close()
	})
}

func (h *home) sandboxes() string { return filepath.Join(h.dir, "sandboxes") }

// shelf is where stopped sandboxes and snapshots are kept: on the file system of the sandboxes, since they are moved
// there.
func (h *home) shelf() string {
	if h.inMemory { // and gone with this daemon
		return filepath.Join(h.sandboxes(), ".shelf")
	}
	return filepath.Join(filepath.Dir(h.root), "shelf")
}

// lockAll keeps other daemons from making or sweeping homes until it is closed.
func (h *home) lockAll() (*os.File, error) {
	return flock(filepath.Join(h.root, "lock"), unix.LOCK_EX)
}

func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// sweep removes the homes of dead daemons and returns their paths. Their mounts
// went with their mount namespace.
func (h *home) sweep() ([]string, error) {
	all, err := h.lockAll()
	if err != nil {
		return nil, err
	}
	defer all.Close()
	entries, err := os.ReadDir(h.root)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	var removed []string
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(h.root, e.Name())
		if !e.IsDir() || dir == h.dir || !strings.Contains(e.Name(), "-") {
			continue
		}
		lock, err := flock(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // alive
		}
		err = rescue(filepath.Join(filepath.Dir(h.root), "shelf"), filepath.Join(dir, "sandboxes"), h.log)
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep: keep what was stopped: %w", err))
		} else if err := rmtree.Path(dir); err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		} else {
			removed = append(removed, dir)
		}
		lock.Close()
	}
	return removed, errors.Join(errs...)
}

// rescue keeps the sandboxes of a dead daemon that were being stopped or started.
func rescue(dir, sandboxes string, log *slog.Logger) error {
	st, err := shelf.Open(dir, log)
	if err != nil {
		return err
	}
	return st.Rescue(sandboxes)
}

// close removes the home; its sandboxes are gone by then.
func (h *home) close() error {
	all, err := h.lockAll()
	if err != nil {
		return err
	}
	defer all.Close()
	var errs []error
	// First, which isWhole looks for.
	if err := os.Remove(filepath.Join(h.dir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if h.inMemory {
		errs = append(errs, sys.Detach(h.sandboxes()))
	}
	return errors.Join(append(errs, rmtree.Path(h.dir), h.lock.Close())...)
}

// openHome takes over the home of a hutchd that was killed, or makes one.
func (d *daemon) openHome(held *launchapi.Held) (err error) {
	if d.home = adoptHome(d.cfg.Data, held.Kept, d.log); d.home != nil {
		if d.home.isWhole() {
			return nil
		}
		// It was killed at its end, when its sandboxes were gone.
		if err := errors.Join(d.launcher.Unkeep(d.home.key()), d.home.close()); err != nil {
			d.log.Warn("remove the rest of the daemon's folder", "err", err) // a sweep may
		}
	}
	if d.home, err = openHome(d.cfg.Data, d.log); err != nil {
		return err
	}
	return d.launcher.Keep(d.home.key(), d.home.lock)
}

func (d *daemon) closeHome() error {
	if d.left {
		return nil
	}
	return d.home.close()
}
