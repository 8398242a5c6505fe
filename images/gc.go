package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// GC removes layers that no reference names, no lease keeps and inUse (nil:
// none) does not claim, and skeletons of the host image that are out of date.
// inUse is asked for folders as they are in Rootfs.Lower.
// It returns the bytes freed, as allocated on disk. Errors of single folders
// are joined; the rest is still collected.
func (s *Store) GC(inUse func(folder string) bool) (freed int64, err error) {
	if err := s.sweep(); err != nil {
		return 0, storeError(err, "collect images", s.dir)
	}
	names, err := s.candidates(inUse)
	if err != nil {
		return 0, storeError(err, "collect images", s.dir)
	}
	var errs []error
	for _, name := range names {
		n, err := s.collect(name)
		freed += n
		errs = append(errs, err)
	}
	return freed, storeError(errors.Join(errs...), "collect images", s.dir)
}

// candidates are the folders that nobody seems to want.
func (s *folder) candidates(inUse func(string) bool) ([]string, error) {
	marked, err := s.marked()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range []string{layersDir, hostDir} {
		entries, err := os.ReadDir(s.path(d))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			name := path.Join(d, e.Name())
			if !e.IsDir() || !s.canRemove(name) || marked[name] || (inUse != nil && inUse(path.Join(name, unitRoot))) ||
				s.leases.held(name) {
				continue
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// canRemove reports whether the files of a folder belong to ids that this
// process has. Layers with the owners of a range are out of reach for a single
// id; a daemon with the range can remove both.
func (s *folder) canRemove(name string) bool {
	return !s.singleUID || strings.HasSuffix(name, singleSuffix) || strings.HasPrefix(name, hostDir+"/")
}

// marked are the folders that references name, in both ways of unpacking, and those of pins.
func (s *folder) marked() (map[string]bool, error) {
	entries, err := os.ReadDir(s.path(refsDir))
	if err != nil {
		return nil, err
	}
	marked := make(map[string]bool)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(s.path(refsDir), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		img, err := s.decodeRecord(data)
		if err != nil {
			return nil, fmt.Errorf("image record %s: %w", e.Name(), err)
		}
		for _, l := range img.Layers {
			l = unit(l)
			base := strings.TrimSuffix(l, singleSuffix)
			marked[base], marked[base+singleSuffix] = true, true
		}
	}
	return marked, s.markPinned(marked)
}

// collect removes one folder unless it is wanted after all.
func (s *folder) collect(name string) (freed int64, err error) {
	t, err := s.withdraw(name)
	if t == nil || err != nil {
		return 0, err
	}
	defer t.discard()
	return diskUse(t.path), nil
}

// withdraw puts a folder where nobody finds it, to be discarded; nil where it is wanted after all, or gone. A puller
// leases a layer before it writes the reference that names it, so once the exclusive lock is held either the reference
// is visible or nobody has the layer. Who asks for a lease waits for the lock, and so not for the deletion, which can
// take long.
func (s *folder) withdraw(name string) (_ *tmp, err error) {
	dir, err := openDir(s.path(name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	defer unlockNow(dir)
	if err := flockNow(dir, unix.LOCK_EX); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil // leased, or being collected
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	marked, err := s.marked()
	if err != nil || marked[name] {
		return nil, err
	}
	t, err := s.newTmp()
	if err != nil {
		return nil, err
	}
	// The rename makes the removal atomic for everybody else.
	if err := os.Rename(s.path(name), filepath.Join(t.path, "gone")); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

// diskUse adds up the allocated bytes below dir; hard links count once per
// name, which is good enough for a report.
func diskUse(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(p, &st) == nil && st.Nlink > 0 {
			total += st.Blocks * 512 / int64(st.Nlink)
		}
		return nil
	})
	return total
}
