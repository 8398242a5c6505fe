package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// bound is the limit in force.
func (d *Disk) bound() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.limit
}

// options are what a tmpfs takes for a limit.
func (d *Disk) options(limit diskuse.Usage) []sys.FSOption {
	var o []sys.FSOption
	if limit.Bytes > 0 {
		o = append(o, sys.FSOption{Key: "size", Value: strconv.FormatInt(limit.Bytes, 10)})
	}
	if limit.Inodes > 0 {
		o = append(o, sys.FSOption{Key: "nr_inodes", Value: strconv.FormatInt(limit.Inodes, 10)})
	}
	return o
}

// mountOwn gives the sandbox a file system of its own where its files are in memory
// anyway.
func (d *Disk) mountOwn(k Kernel) error {
	options := append(d.options(d.limit), sys.FSOption{Key: "source", Value: "hutch"},
		sys.FSOption{Key: "mode", Value: "0700"})
	mnt, err := k.Tmpfs(options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return err
	}
	defer mnt.Close()
	if !takesAttributes(fmt.Sprintf("/proc/self/fd/%d", mnt.Fd())) && takesAttributes(d.fs) {
		return errPoorer
	}
	return k.Attach(mnt, d.fs)
}

// errPoorer says that a tmpfs of the sandbox's own would do less than what the state
// folder is on.
var errPoorer = errors.New("a tmpfs takes no user attributes here")

// takesAttributes says whether a folder can have what overlayfs notes at upper folders:
// user.* attributes, which tmpfs has learnt in Linux 6.6.
func takesAttributes(dir string) bool {
	const name = "user.hutch.try"
	return unix.Setxattr(dir, name, []byte("y"), 0) == nil && unix.Removexattr(dir, name) == nil
}

// changeDisk puts those limits of disk space in force that l sets. It returns how to take
// that back.
func (t *Meter) changeDisk(ctx context.Context, l *api.Limits) (back func() error, err error) {
	if l.DiskBytes == 0 && l.Inodes == 0 {
		return func() error { return nil }, nil
	}
	d, field := t.disk, "limits.disk_bytes"
	if l.DiskBytes == 0 {
		field = "limits.inodes"
	}
	switch {
	case d == nil:
		return nil, api.Errorf(api.FailedPrecondition,
			"%s: sandbox %s was created without a limit of disk space, and nothing watches it", field, t.of.ID()).
			WithField(field).WithHint("give it to sandbox.create")
	case l.DiskBytes < 0 || l.Inodes < 0:
		return nil, api.Errorf(api.InvalidArgument, "%s can be changed while a sandbox runs, and not lifted", field).
			WithField(field).WithHint("ask for as much as you want")
	}
	old := d.bound()
	next := diskuse.Usage{Bytes: cmp.Or(l.DiskBytes, old.Bytes), Inodes: cmp.Or(l.Inodes, old.Inodes)}
	used, err := t.measure(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: measure what the sandbox has written: %w", field, err)
	}
	for _, c := range []struct {
		field           string
		old, next, used int64
	}{
		{"limits.disk_bytes", old.Bytes, next.Bytes, used.Bytes},
		{"limits.inodes", old.Inodes, next.Inodes, used.Inodes},
	} {
		if c.next > 0 && c.next < c.used && (c.old == 0 || c.next < c.old) {
			return nil, api.Errorf(api.FailedPrecondition, "%s: %d is less than the %d that the sandbox has written",
				c.field, c.next, c.used).
				WithField(c.field).WithHint("remove files in it first, or allow more")
		}
	}
	if err := d.set(t.all.cfg.Kernel, next); err != nil {
		return nil, err
	}
	return func() error { return d.set(t.all.cfg.Kernel, old) }, nil
}

// set puts a limit in force. Commands that run keep the bound of single files that they
// were started with (RLIMIT_FSIZE).
func (d *Disk) set(k Kernel, limit diskuse.Usage) error {
	switch {
	case d.project != nil:
		if err := d.project(limit); err != nil {
			return err
		}
	case d.hard:
		if err := k.Reconfigure(d.fs, d.options(limit)); err != nil {
			return fmt.Errorf("change the size of the sandbox's file system: %w", err)
		}
	}
	d.mu.Lock()
	d.limit = limit
	if d.over = d.used.Exceeds(limit); !d.over {
		d.allowed = limit
	}
	d.mu.Unlock()
	d.rest.Store(true)
	d.begin()
	return nil
}
