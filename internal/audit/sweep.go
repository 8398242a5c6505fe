package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// List describes the logs that are kept, those that were written last first.
func (l *Logs) List(ctx context.Context, _ api.Empty) (api.AuditLogs, error) {
	if err := l.Sync(ctx); err != nil {
		return api.AuditLogs{}, err
	}
	list, err := l.list()
	for i := range list {
		head, err := l.Head(ctx, list[i].Sandbox)
		if err == nil { // else it was removed just now, or is broken
			list[i].Records = head.Seq
		}
	}
	return api.AuditLogs{Logs: list}, err
}

func (l *Logs) list() ([]api.AuditLog, error) {
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list audit logs: %w", err)
	}
	var list []api.AuditLog
	for _, e := range entries {
		if !validID(e.Name()) {
			continue
		}
		dir := filepath.Join(l.dir, e.Name())
		st, err := e.Info()
		if err != nil {
			continue // somebody else's sweep
		}
		// That of the folder too: one without files is just being made.
		a := api.AuditLog{Sandbox: e.Name(), Removed: true, Written: st.ModTime().UTC()}
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			st, err := f.Info()
			if err != nil {
				continue
			}
			a.Bytes += (st.Size() + 4095) &^ 4095
			if st.ModTime().After(a.Written) {
				a.Written = st.ModTime().UTC()
			}
			if f.Name() == "head" {
				a.Removed = !locked(filepath.Join(dir, "head"))
			}
		}
		if a.Sandbox == api.AuditHost {
			a.Removed = false // there is always a host
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b api.AuditLog) int { return b.Written.Compare(a.Written) })
	return list, nil
}

// locked says whether a daemon has a log open.
func locked(head string) bool {
	f, err := os.Open(head)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Sweep removes the logs of sandboxes that are gone for too long, and the oldest where all
// together are too large. It returns their folders.
func (l *Logs) Sweep() (removed []string, err error) {
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	s := l.settings.Load()
	list, err := l.list()
	if err != nil {
		return nil, err
	}
	var total int64
	var errs []error
	now := time.Now()
	for i := range list {
		a := &list[i]
		if !a.Removed {
			continue
		}
		total += a.Bytes
		old := s.KeepDays != api.Unlimited && now.Sub(a.Written) > time.Duration(s.KeepDays)*24*time.Hour
		if !old && (s.TotalBytes == api.Unlimited || total <= s.TotalBytes) {
			continue
		}
		dir := filepath.Join(l.dir, a.Sandbox)
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("remove an audit log: %w", err))
			continue
		}
		removed = append(removed, dir)
	}
	return removed, errors.Join(errs...)
}
