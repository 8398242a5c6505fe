package meter

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// What a sandbox may write: all that is below its folder fs, which is the upper folders of
// its root and of workspaces in mode overlay, and its volumes. See DESIGN.md, "Disk".

// Disk knows how much a sandbox has written, and its limit.
type Disk struct {
	fs string // the folder
	// volumes are the folders of volumes that it may write to.
	volumes []string
	// base is what layers of the shelf take, which it has as its own and cannot change.
	base diskuse.Usage
	// hard says that fs is a file system of its own, which takes no more: nothing has to be
	// watched, and what it holds can be asked for at any time.
	hard bool
	// project holds the limit where that is by a project quota, else nil.
	project func(limit diskuse.Usage) error

	wake  chan struct{} // somebody begins to use the sandbox
	begun atomic.Int64  // how often somebody has
	rest  atomic.Bool   // the next look is later than it might be: wake has to be used
	turn  chan struct{} // a token: whoever holds it measures

	mu      sync.Mutex // guards what follows
	limit   diskuse.Usage
	used    diskuse.Usage // when it was last measured
	peak    diskuse.Usage
	allowed diskuse.Usage // what it may use before something is done: its limit, or what it had when that was done
	over    bool          // it uses more than its limit
	free    diskuse.Usage // of the file system that fs is on, when last looked at
	// spent is how much that has got less since the last measurement, not counting what it got
	// more in between; lost is the part of it that is known to be in no file with a name.
	spent, lost diskuse.Usage
	gone        diskuse.Usage // the sum of spent, over all measurements
	unlinked    diskuse.Usage // open files without a name
	cost        time.Duration // of the last measurement
	at          time.Time     // when that was
	cpu         time.Duration // what the sandbox had used of CPU time then
}

// newDisk is nil without a limit.
func newDisk(dir string, l *api.Limits, hard bool, volumes ...string) *Disk {
	if l.DiskBytes <= 0 && l.Inodes <= 0 {
		return nil
	}
	limit := diskuse.Usage{Bytes: max(0, l.DiskBytes), Inodes: max(0, l.Inodes)}
	return &Disk{
		fs: filepath.Join(dir, "fs"), volumes: slices.Clip(volumes), limit: limit, allowed: limit, hard: hard,
		wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
}

// DefaultInodes is a limit of inodes that goes with one of bytes: as many as a file system
// of that size has with one for each block, and enough for a small one full of small files.
// Files without content would else fill the table of the host's file system.
func DefaultInodes(bytes int64) int64 { return max(65536, bytes/4096) }

// WantsOwn says whether a sandbox below dir gets a file system of its own: where that costs
// nothing, because its files are in memory anyway, and can hold more than the limit. One
// of its own would not be bounded by that one.
func WantsOwn(dir string, l *api.Limits) bool {
	var st unix.Statfs_t
	return l.DiskBytes > 0 && unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC &&
		l.DiskBytes < int64(st.Blocks)*st.Bsize
}

// IsOwn says whether a file system is mounted on the folder fs of a sandbox.
func IsOwn(fs string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, fs, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
	return err == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// measure finds out what is used.
func (t *Meter) measure(ctx context.Context) (diskuse.Usage, error) {
	d := t.disk
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return diskuse.Usage{}, context.Cause(ctx)
	}
	if d.hard {
		free, total, err := diskuse.FreeAt(d.fs)
		if err == nil {
			d.note(diskuse.Usage{Bytes: total.Bytes - free.Bytes, Inodes: total.Inodes - free.Inodes})
		}
		return d.use(), err
	}
	select { // walks of many sandboxes at once would only be in each other's way
	case t.all.walks <- struct{}{}:
		defer func() { <-t.all.walks }()
	case <-ctx.Done():
		return diskuse.Usage{}, context.Cause(ctx)
	}
	if err := d.look(); err != nil {
		return diskuse.Usage{}, err
	}
	cpu, _ := t.cpuTime()
	d.mu.Lock()
	spent, before, allowed := d.spent, d.used, d.allowed
	d.spent, d.cpu = diskuse.Usage{}, cpu
	d.mu.Unlock()
	start := time.Now()
	used, err := diskuse.Trees(ctx, less(allowed, d.base), append(d.volumes, d.fs)...)
	used = used.Add(d.base)
	if errors.Is(err, diskuse.ErrTooDeep) { // what cannot be counted is too much
		used, err = d.bound().Add(diskuse.Usage{Bytes: 1, Inodes: 1}), nil
	}
	if err != nil {
		return diskuse.Usage{}, err
	}
	used = t.addUnlinked(used, before, spent)
	d.note(used)
	d.mu.Lock()
	d.at, d.cost = time.Now(), time.Since(start)
	d.mu.Unlock()
	return used, nil
}

// less is a limit without what is used of it already; 0 would be none.
func less(limit, used diskuse.Usage) diskuse.Usage {
	if limit.Bytes > 0 {
		limit.Bytes = max(1, limit.Bytes-used.Bytes)
	}
	if limit.Inodes > 0 {
		limit.Inodes = max(1, limit.Inodes-used.Inodes)
	}
	return limit
}

// addUnlinked adds files that are open and have no name, where so much was written that is
// in no file with one that the limit may be exceeded.
func (t *Meter) addUnlinked(used, before, spent diskuse.Usage) diskuse.Usage {
	d := t.disk
	d.mu.Lock()
	named := diskuse.Usage{Bytes: before.Bytes - d.unlinked.Bytes, Inodes: before.Inodes - d.unlinked.Inodes}
	d.lost.Bytes += max(0, spent.Bytes-(used.Bytes-named.Bytes))
	d.lost.Inodes += max(0, spent.Inodes-(used.Inodes-named.Inodes))
	search := d.unlinked.Bytes > 0 || used.Add(d.lost).Exceeds(d.allowed)
	d.mu.Unlock()
	if !search || used.Exceeds(d.allowed) {
		return used
	}
	found := diskuse.Unlinked(procs.IDs(t.of.Record().PID))
	d.mu.Lock()
	d.unlinked, d.lost = found, diskuse.Usage{}
	d.mu.Unlock()
	return used.Add(found)
}

// note keeps a measurement.
func (d *Disk) note(used diskuse.Usage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used = used
	d.peak.Bytes, d.peak.Inodes = max(d.peak.Bytes, used.Bytes), max(d.peak.Inodes, used.Inodes)
	if d.over = used.Exceeds(d.limit); !d.over {
		d.allowed = d.limit
	}
}

func (d *Disk) use() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

func (d *Disk) measured() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.at.IsZero()
}

func (d *Disk) goneSoFar() diskuse.Usage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

func (d *Disk) isOver() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// look notes what the file system has lost. It is a system call, whatever is on it.
func (d *Disk) look() error {
	free, _, err := diskuse.FreeAt(d.fs)
	if err != nil {
		return err
	}
	if len(d.volumes) > 0 {
		there, err := freeBeside(d.fs, d.volumes[0]) // they are all in one folder
		if err != nil {
			return err
		}
		free = free.Add(there)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.free != (diskuse.Usage{}) {
		less := diskuse.Usage{Bytes: max(0, d.free.Bytes-free.Bytes), Inodes: max(0, d.free.Inodes-free.Inodes)}
		d.spent, d.gone = d.spent.Add(less), d.gone.Add(less)
	}
	d.free = free
	return nil
}

// cpuTime is that of all processes of the sandbox, where it has a cgroup that tells.
func (t *Meter) cpuTime() (time.Duration, bool) {
	group, own := t.of.Cgroup()
	if !own {
		return 0, false
	}
	cpu, _, err := t.all.cfg.Cgroups.Usage(group, "")
	return cpu, err == nil
}

// gauge is for the beginning and the end of an exec that took so long: it measures where that
// may tell something new and is quick, or the limit may be exceeded. Else it is a system call.
// In a long time much can be written while others remove as much, and the file system loses
// nothing: long is what a measurement adds little to.
//
// before is what the file system had lost in all (Disk.gone) when the exec began; zero where that is not known.
func (t *Meter) gauge(took time.Duration, before diskuse.Usage) {
	d := t.disk
	if err := d.look(); err != nil {
		return
	}
	d.mu.Lock()
	now := diskuse.Usage{Bytes: d.gone.Bytes - before.Bytes, Inodes: d.gone.Inodes - before.Inodes}
	long := took > 0 && (took >= longFor*d.cost || took >= longEnough && d.used.Inodes < quick)
	// What the file system has lost may be others', what a command has made took longer to
	// make than to count.
	grown := now.Bytes >= worthMeasuring || now.Inodes >= worthCounting || d.free.Inodes == 0 // btrfs counts none
	again := d.hard || d.over || d.used.Add(d.spent).Exceeds(d.allowed) || long || grown && d.used.Inodes+
		d.spent.Inodes < quick
	d.mu.Unlock()
	if !again {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exec.KillTimeout)
	defer cancel()
	if _, err := t.measure(ctx); err != nil {
		t.all.cfg.Log.Warn("measure what a sandbox has written", "sandbox", t.of.ID(), "err", err)
	}
}

const (
	worthMeasuring = 64 << 10 // bytes
	worthCounting  = 16       // inodes: hutchd itself makes some for each command
	quick          = 1000     // inodes: their measurement takes about a millisecond
	longEnough     = 20 * time.Millisecond
	longFor        = 50 // times what the last measurement took
)

// full says that a file system of the sandbox's own has no room.
func (d *Disk) full() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := diskuse.Usage{Bytes: d.limit.Bytes - d.used.Bytes, Inodes: d.limit.Inodes - d.used.Inodes}
	least := int64(4096)
	if d.project != nil {
		least = 64 << 10 // for the file system's own blocks
	}
	return d.limit.Bytes > 0 && left.Bytes < least || d.limit.Inodes > 0 && left.Inodes <= 0
}

// fileSize is the size that no single file may have, so that not even one that is written in
// an instant crosses the limit: 0 when nothing more may be written.
func (d *Disk) fileSize() (size uint64, bounded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.over:
		return 0, true
	case d.limit.Bytes > 0:
		return uint64(d.limit.Bytes), true
	}
	return 0, false
}

// denial says which limit it was.
func (d *Disk) denial() api.Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := api.Denial{
		Kind: "limit", Target: "disk_bytes", Rule: fmt.Sprintf("at most %d bytes", d.limit.Bytes),
		Why:        fmt.Sprintf("the files of the sandbox take %d bytes", d.used.Bytes),
		HowToAllow: "remove files, or allow more: limits.disk_bytes, hutch update --disk SIZE",
	}
	whose := "the sandbox has made"
	if len(d.volumes) > 0 {
		n.Why, whose = fmt.Sprintf("the files of the sandbox and of its volumes take %d bytes", d.used.Bytes),
			"the sandbox and its volumes have"
	}
	if d.limit.Inodes > 0 && (d.used.Inodes > d.limit.Inodes || d.hard && d.used.Inodes >= d.limit.Inodes) {
		n.Target, n.Rule = "inodes", fmt.Sprintf("at most %d files and folders", d.limit.Inodes)
		n.Why = fmt.Sprintf("%s %d", whose, d.used.Inodes)
		n.HowToAllow = "remove files, or allow more: limits.inodes, hutch update --inodes N"
	}
	return n
}

// freeBeside is what is free on the file system of path, where that is another than the one of folder.
func freeBeside(folder, path string) (diskuse.Usage, error) {
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat(folder, &a), unix.Stat(path, &b)); err != nil || a.Dev == b.Dev {
		return diskuse.Usage{}, err
	}
	free, _, err := diskuse.FreeAt(path)
	return free, err
}
