package meter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// DiskPlace is where a sandbox writes.
type DiskPlace struct {
	Dir     string        // the sandbox's, in which fs is
	Volumes []string      // the folders of volumes that it may write to
	Layered bool          // some of its files are in layers of the shelf
	Base    diskuse.Usage // that they take
}

// LimitDisk makes the sandbox's limit of disk space, before anything is written, and has undo told how to take back
// what it has made.
func (t *Meter) LimitDisk(p DiskPlace, undo func(back func() error)) error {
	l := t.limits()
	// a file system of its own would not hold them
	if len(p.Volumes) > 0 || p.Layered {
		if t.disk = newDisk(p.Dir, &l, false, p.Volumes...); t.disk != nil {
			t.disk.base = p.Base
		}
		return nil
	}
	if t.disk = newDisk(p.Dir, &l, WantsOwn(p.Dir, &l)); t.disk == nil {
		return nil
	}
	if !t.disk.hard {
		if t.byProject(); t.disk.project == nil {
			return nil
		}
		undo(func() error { t.FreeProject(); return nil })
		if err := t.disk.project(t.disk.limit); err != nil {
			t.all.cfg.Log.Warn("no project quota; the limit is watched", "sandbox", t.of.ID(), "err", err)
			t.disk = newDisk(p.Dir, &l, false)
		}
		return nil
	}
	d := t.disk
	err := d.mountOwn(t.all.cfg.Kernel)
	if errors.Is(err, errPoorer) {
		t.disk = newDisk(p.Dir, &l, false)
		return nil
	}
	if err != nil {
		return api.Errorf(api.Internal, "make a file system of limits.disk_bytes in memory: %w", err).
			WithField("limits.disk_bytes").
			WithHint("keep the state folder on a disk (HUTCH_ROOT), or leave the limit out")
	}
	undo(func() error {
		if err := t.all.cfg.Kernel.Unmount(d.fs); err != nil {
			return fmt.Errorf("unmount %s: %w", d.fs, err)
		}
		return nil
	})
	return nil
}

// AdoptDisk knows again the limit that a hutchd before has made; project says that it was a project quota.
func (t *Meter) AdoptDisk(p DiskPlace, project bool) {
	l := t.limits()
	if t.disk = newDisk(p.Dir, &l, IsOwn(filepath.Join(p.Dir, "fs")), p.Volumes...); project {
		t.byProject()
	}
	if t.disk != nil {
		t.disk.base = p.Base
	}
}

// Disk is what the meter knows of the disk space; nil without a limit.
func (t *Meter) Disk() *Disk { return t.disk }

// TakeDisk takes over what the meter of the same sandbox knew that was prepared ahead.
func (t *Meter) TakeDisk(d *Disk) { t.disk = d }

// Measure finds out what the sandbox has written, if that has a limit.
func (t *Meter) Measure(ctx context.Context) error {
	if t.disk == nil {
		return nil
	}
	_, err := t.measure(ctx)
	return err
}

// Begin measures before the first command: what volumes hold counts, and is not its doing. all says that the sandbox
// has other files already, too.
func (t *Meter) Begin(ctx context.Context, all bool) error {
	if t.disk == nil || len(t.disk.volumes) == 0 && !all {
		return nil
	}
	return t.allowWhatThereIs(ctx)
}

// Hard reports whether the kernel holds the limit, on a file system of the sandbox's own or by a project quota, of
// which ByProject tells. Both are false without a limit.
func (d *Disk) Hard() bool { return d != nil && d.hard }

// ByProject reports whether a project quota holds the limit.
func (d *Disk) ByProject() bool { return d != nil && d.project != nil }

// Detail says for people what holds the limit.
func (d *Disk) Detail() string {
	switch {
	case d == nil:
		return "none"
	case d.hard:
		return "a file system of its own, in memory"
	case d.project != nil:
		return "a project quota"
	}
	return "watched"
}

// byProject makes the file system hold the limit, where it can. What has no limit of both
// kinds is left to the watch: statfs(2) would tell of the whole file system.
func (t *Meter) byProject() {
	if d := t.disk; d != nil && t.all.cfg.Projects != nil && d.limit.Bytes > 0 && d.limit.Inodes > 0 {
		d.hard, d.project = true, func(limit diskuse.Usage) error {
			ctx, cancel := context.WithTimeout(context.Background(), projectTimeout)
			defer cancel()
			return t.all.cfg.Projects.Limit(ctx, t.of.ID(), limit.Bytes, limit.Inodes)
		}
	}
}

// projectTimeout bounds what the monitor may take to set a quota.
const projectTimeout = 5 * time.Second

// FreeProject takes the limit of the project away, before its files are removed.
func (t *Meter) FreeProject() {
	if d := t.disk; d != nil && d.project != nil {
		if err := d.project(diskuse.Usage{}); err != nil { // the next daemon sweeps it
			t.all.cfg.Log.Debug("take a quota away", "sandbox", t.of.ID(), "err", err)
		}
	}
}
