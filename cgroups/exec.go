package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Execs are the cgroups of execs below those of their sandboxes, in the v2
// hierarchy. It runs in hutchd, which owns what the monitor delegated, and keeps
// nothing in memory that the kernel does not know: the next hutchd goes on.
// sandbox is a sandbox's path below the mount of every hierarchy. Its methods may
// be called from any goroutine.
type Execs struct {
	mode      Mode
	mounts    map[string]string // see Tree.Mounts
	own       string            // cgroup.procs of this process' own group; "" without a v2 hierarchy
	disk      string            // "MAJOR:MINOR" that limits of I/O are for; "" with none
	retired   *watcher
	hits      *hits
	files     files // that every exec reads
	hastening atomic.Bool
	// mirroring is held while the cgroup of an exec gets its limit of memory, its own or the sandbox's: an update of
	// the sandbox's finds it before or after that.
	mirroring sync.Mutex
	// reclaims are of sandboxes that are paused.
	reclaims reclaims
}

// OpenExecs makes the Execs of a tree. Without a usable v2 hierarchy there are no
// cgroups for execs, see Enabled; what is about sandboxes works all the same. disk is
// what DiskOf said of the state folder.
func OpenExecs(t *Tree, disk string) (*Execs, error) {
	x := &Execs{disk: disk, mode: None}
	if t != nil {
		x.mode, x.mounts = t.Mode, t.Mounts
	}
	if len(x.mounts) == 0 {
		return x, nil
	}
	// EMFILE: this user's inotify instances are used up. See watcher and hits.
	var err error
	if x.hits, err = newHits(); err != nil && !errors.Is(err, unix.EMFILE) {
		return nil, err
	}
	if !x.Enabled() {
		return x, nil
	}
	x.own = filepath.Join(x.mounts[""], filepath.Dir(t.Path), "daemon", "cgroup.procs")
	if x.retired, err = newWatcher(); err != nil && !errors.Is(err, unix.EMFILE) {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Enabled says whether execs can have cgroups.
func (x *Execs) Enabled() bool { return x.mounts[""] != "" }

// Close ends all watches and reclaims.
func (x *Execs) Close() error {
	var errs []error
	x.reclaims.close()
	x.files.forget(func(string) bool { return true })
	if x.hits != nil {
		errs = append(errs, x.hits.close())
	}
	if x.retired != nil {
		errs = append(errs, x.retired.close())
	}
	return errors.Join(errs...)
}

func (x *Execs) dir(sandbox, exec string) string { return filepath.Join(x.mounts[""], sandbox, exec) }

// Mount returns a detached read-only mount of a sandbox's cgroup, for its PID 1
// to clone into the cgroups below it. It leads nowhere else: ".." ends there, and
// writing gives EROFS.
func (x *Execs) Mount(sandbox string) (*os.File, error) {
	return sys.CloneReadOnly(x.dir(sandbox, ""))
}

// Make makes the cgroup of an exec. Limits of CPUs, memory and processes are set; others are not its business. Without
// a limit of memory of its own it shows the sandbox's, see mirror.
func (x *Execs) Make(sandbox, exec string, l api.Limits) error {
	if err := x.enable(sandbox, l); err != nil {
		return err
	}
	if x.memoryV2() {
		x.mirroring.Lock()
		defer x.mirroring.Unlock()
	}
	dir := x.dir(sandbox, exec)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, v := range limitFiles(l) {
		err := write(filepath.Join(dir, v.file), v.value)
		if v.file == swapFile && errors.Is(err, fs.ErrNotExist) {
			continue // no swap, or none that is counted
		}
		if err != nil {
			return errors.Join(err, os.Remove(dir))
		}
	}
	if !x.memoryV2() {
		return nil
	}
	var err error
	if l.MemoryBytes > 0 {
		err = unix.Setxattr(dir, ownMemory, nil, 0)
	} else {
		err = x.mirrorInto(sandbox, dir, unlimited)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("limit the memory of cgroup %s: %w", dir, err), os.Remove(dir))
	}
	return nil
}

// Number is the inode of an exec's cgroup, by which eBPF knows it; 0 when it is gone.
func (x *Execs) Number(sandbox, exec string) uint64 {
	var st unix.Stat_t
	if unix.Stat(x.dir(sandbox, exec), &st) != nil {
		return 0
	}
	return st.Ino
}

// enable gives the children of a sandbox's cgroup the controllers that l needs.
// PID 1 lives in a child, so the kernel allows it (cgroups(7), "no internal
// processes").
func (x *Execs) enable(sandbox string, l api.Limits) error {
	var need []string
	for name, set := range map[string]bool{"cpu": l.CPUs > 0, "memory": l.MemoryBytes > 0, "pids": l.PIDs > 0} {
		if set {
			need = append(need, "+"+name)
		}
	}
	return write(filepath.Join(x.dir(sandbox, ""), "cgroup.subtree_control"), strings.Join(need, " "))
}

// periodUS is the length of a CPU quota's period; 100 ms is the kernel's default.
const periodUS = 100_000

const swapFile = "memory.swap.max"

type setting struct{ controller, file, value string }

// limitFiles are the settings for the limits that sandboxes and execs can have
// (Documentation/admin-guide/cgroup-v2.rst).
func limitFiles(l api.Limits) []setting {
	var all []setting
	switch l.MemoryBytes {
	case 0:
	case api.Unlimited:
		all = append(all, setting{"memory", "memory.max", "max"}, setting{"memory", swapFile, "max"})
	default:
		all = append(all, setting{"memory", "memory.max", bound(l.MemoryBytes)},
			setting{"memory", swapFile, bound(l.SwapBytes)})
	}
	if l.OOMGroup {
		all = append(all, setting{"memory", "memory.oom.group", "1"})
	}
	switch {
	case l.CPUs > 0:
		all = append(all, setting{"cpu", "cpu.max", fmt.Sprintf("%d %d", int64(l.CPUs*periodUS), periodUS)})
	case l.CPUs == api.Unlimited:
		all = append(all, setting{"cpu", "cpu.max", "max"})
	}
	if l.PIDs != 0 {
		all = append(all, setting{"pids", "pids.max", bound(l.PIDs)})
	}
	return all
}

// Usage is what the processes in an exec's cgroup have used since it was made. memory is the peak in
// bytes, 0 where the exec's cgroup has no memory controller.
func (x *Execs) Usage(sandbox, exec string) (cpu time.Duration, memory int64, err error) {
	dir := x.dir(sandbox, exec)
	text, err := x.files.read(dir, "cpu.stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read use of a cgroup: %w", err)
	}
	us, ok := flatKey(text, "usage_usec")
	if !ok {
		return 0, 0, fmt.Errorf("%s/cpu.stat has no usage_usec", dir)
	}
	if x.memoryV2() {
		peak, _ := x.files.read(dir, "memory.peak") // "" where it is not enabled
		memory, _ = strconv.ParseInt(strings.TrimSpace(peak), 10, 64)
	}
	return time.Duration(us) * time.Microsecond, memory, nil
}

// Reusable says that no process is left in the cgroup of an exec, so that another
// may have it: a fresh one costs the kernel more than all else that an exec does
// with it. Not one in which forks were refused, which is counted. Its CPU time and its peak of memory go on from what
// they were.
func (x *Execs) Reusable(sandbox, exec string) bool {
	dir := x.dir(sandbox, exec)
	text, err := x.files.read(dir, "cgroup.events")
	if err != nil {
		return false
	}
	populated, ok := flatKey(text, "populated")
	if !ok || populated != 0 {
		return false
	}
	return !x.v2("pids") || x.event("pids", filepath.Join(sandbox, exec), "pids.events", "", "max") == 0
}

// memoryV2 says whether cgroups of execs can have a memory controller.
func (x *Execs) memoryV2() bool { return x.v2("memory") }

// Events counts, since the sandbox began, the processes that ran out of memory
// and the forks that its limit of processes refused. Until Linux 6.11 the latter are counted
// in the cgroup of who forked alone (cgroup-v2.rst, pids_localevents), so the path may be an
// exec's, too.
func (x *Execs) Events(sandbox string) (oom, pids uint64) {
	return x.event("memory", sandbox, "memory.events", "memory.oom_control", "oom_kill"),
		x.event("pids", sandbox, "pids.events", "pids.events", "max")
}

// event reads a counter where the controller is, 0 where it is not.
func (x *Execs) event(controller, sandbox, v2file, v1file, key string) uint64 {
	mount, ok := x.mounts[controller]
	if !ok {
		return 0
	}
	file := v1file
	if mount == x.mounts[""] {
		file = v2file
	}
	text, err := x.files.read(filepath.Join(mount, sandbox), file)
	if err != nil {
		return 0
	}
	n, _ := flatKey(text, key)
	return n
}

// maxKilled bounds the pids that a kill lists.
const maxKilled = 1024

// Kill kills every process of an exec, however it has hidden, and waits until
// they are gone. It returns their pids as the sandbox counts them. The cgroup can
// not be used again: since 6.12 or so a process cloned into it later dies at once.
func (x *Execs) Kill(ctx context.Context, sandbox, exec string) ([]int, error) {
	dir := x.dir(sandbox, exec)
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return nil, fmt.Errorf("kill cgroup: %w", err)
	}
	defer events.Close()
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("kill cgroup: %w", err)
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid := pidInside(field); pid > 0 && len(pids) < maxKilled {
			pids = append(pids, pid)
		}
	}
	if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil {
		return nil, err
	}
	if err := awaitEvent(ctx, events, "populated", 0); err != nil {
		return pids, fmt.Errorf("processes of %s do not die: %w", dir, err)
	}
	return pids, nil
}

// pidInside is the pid of a process in the innermost pid namespace that it is in,
// 0 when it has ended meanwhile (proc_pid_status(5), NSpid).
func pidInside(pid string) int {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	return innermost(string(text))
}

func innermost(status string) int {
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "NSpid:")
		if fields := strings.Fields(list); ok && len(fields) > 0 {
			inside, _ := strconv.Atoi(fields[len(fields)-1])
			return inside
		}
	}
	return 0
}

// Retire removes the cgroup of an exec that has ended, in the background: at once,
// or when the last of the processes that it left behind has ended.
func (x *Execs) Retire(sandbox, exec string) {
	dir := x.dir(sandbox, exec)
	x.files.forgetOne(dir)
	x.retired.retire(dir)
}

// Forget ends the watch of a sandbox's retired cgroups, which go with its own, and closes
// what is open of the sandbox's.
func (x *Execs) Forget(sandbox string) {
	x.files.forget(func(dir string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(x.mounts)), func(mount string) bool {
			own := filepath.Join(mount, sandbox)
			return dir == own || strings.HasPrefix(dir, own+"/")
		})
	})
	if x.retired != nil {
		x.retired.forget(x.dir(sandbox, "") + "/")
	}
}

// flatKey is the value of a key in a file of "key value" lines.
func flatKey(text, key string) (uint64, bool) {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " "); ok && k == key {
			n, err := strconv.ParseUint(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
