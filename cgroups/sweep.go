package cgroups

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep removes the trees of daemons that were killed and returns their paths. A tree whose monitor lives in this pid
// namespace is left alone. So is one that a hutch-launch keeps for the next monitor, that another sweep looks at just
// now, or that still holds a process after wait, in all: they are in left, for AwaitEmpty, because their processes may
// be dying.
func Sweep(wait time.Duration) (removed, left []string, err error) {
	hs, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, nil, err
	}
	// v2 first: it tells when its processes have ended, which are v1's, too.
	slices.SortStableFunc(hs, func(a, b hierarchy) int {
		switch {
		case a.v2 == b.v2:
			return 0
		case a.v2:
			return -1
		}
		return 1
	})
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, h := range hs {
		dirs, err := h.trees()
		if err != nil {
			return removed, left, err
		}
		for _, dir := range dirs {
			if monitorLives(filepath.Base(dir)) {
				continue
			}
			lock, err := tryLock(dir)
			if err != nil {
				continue // gone, or another user's
			}
			gone := false
			if lock != nil {
				gone, err = removeStray(ctx, dir)
				_ = lock.Close()
			}
			switch {
			case err != nil:
				errs = append(errs, err)
			case gone:
				removed = append(removed, dir)
			default:
				left = append(left, dir)
			}
		}
	}
	return removed, left, errors.Join(errs...)
}

// AwaitEmpty waits until no process is left in a cgroup of v2, or it is gone. It reports false when wait ends before.
// Of one of v1 nothing can be awaited: it reports false, too.
func AwaitEmpty(dir string, wait time.Duration) bool {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		_, err := os.Stat(dir)
		return gone(err)
	}
	defer events.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return awaitEvent(ctx, events, "populated", 0) == nil
}

// removeStray removes a dead daemon's tree, and says whether it is gone. Its last processes may be dying: until ctx
// ends they are waited for.
func removeStray(ctx context.Context, dir string) (gone bool, err error) {
	for range 3 {
		if !holdsProcesses(dir) {
			err := removeTree(dir)
			if err == nil {
				return true, nil
			}
			if errors.Is(err, fs.ErrPermission) {
				return false, nil // another user's
			}
			if !errors.Is(err, unix.EBUSY) {
				return false, err
			}
			// A process came in, is one of a namespace that this one does not see, or is not
			// quite gone.
		}
		events, err := os.Open(filepath.Join(dir, "cgroup.events"))
		if err != nil {
			return false, nil // cgroup v1 does not tell
		}
		err = awaitEvent(ctx, events, "populated", 0)
		_ = events.Close()
		if err != nil || ctx.Err() != nil {
			return false, nil
		}
	}
	return false, nil
}

// trees are the folders that look like G: at the hierarchy's root, where root's daemons make them,
// and as an ordinary user everywhere in what the caller's cgroup is a part of and the user owns.
func (h hierarchy) trees() ([]string, error) {
	const pattern = "hutch-*-*-*"
	dirs, err := filepath.Glob(filepath.Join(h.mount, pattern))
	if err != nil || !h.v2 || os.Geteuid() == 0 {
		return dirs, err
	}
	own, err := ownV2("/proc/self/cgroup")
	if err != nil {
		return dirs, err
	}
	return append(dirs, below(h.mount, filepath.Join(h.mount, own), pattern)...), nil
}

// below are the folders of a name's pattern in the uppermost folder above dir, and below mount, that is the caller's as
// all between them are. It does not look into what it has found.
func below(mount, dir, pattern string) (found []string) {
	top := ""
	for ; strings.HasPrefix(dir, mount+"/"); dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && ownedByMe(st) {
			top = dir
		} else if top != "" {
			break
		}
	}
	if top == "" {
		return nil
	}
	_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it may be gone, or nobody's to look into
		}
		if ok, _ := filepath.Match(pattern, d.Name()); ok {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	return found
}

func holdsProcesses(dir string) bool {
	found := false
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			if data, err := os.ReadFile(path); err != nil || len(bytes.TrimSpace(data)) > 0 {
				found = true
			}
		}
		return nil
	})
	return found
}
