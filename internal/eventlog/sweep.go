package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep removes the logs below root that nobody has open and that were last
// written before a time. It returns their folders.
func Sweep(root string, before time.Time) (removed []string, err error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sweep logs of events: %w", err)
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		gone, err := sweepOne(dir, before)
		if gone {
			removed = append(removed, dir)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

func sweepOne(dir string, before time.Time) (gone bool, err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return false, nil // no log of ours
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil // somebody's
	}
	segments, err := listSegments(dir)
	if err != nil {
		return false, fmt.Errorf("sweep logs of events: %w", err)
	}
	for _, first := range segments {
		st, err := os.Stat(filepath.Join(dir, segmentName(first)))
		if err != nil || !st.ModTime().Before(before) {
			return false, err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return false, fmt.Errorf("sweep logs of events: %w", err)
	}
	return true, nil
}
