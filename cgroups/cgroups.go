// Package cgroups finds or makes the part of the cgroup hierarchies that a
// daemon owns, and hands it over to the daemon's uid. It runs in the monitor,
// outside every namespace of hutch's making. hutchd, too, links it: it sets and
// reads limits below what the monitor delegated.
//
// The layout, in each hierarchy that is used:
//
//	G = hutch-<pid namespace>-<monitor pid>-<its start time>
//	G/daemon                the daemon's own processes (v2 only)
//	G/sandboxes             owned by the daemon's uid
//	G/sandboxes/<sandbox>   made by libcontainer, limited by hutchd
package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mode says which hierarchy holds the controllers that limits need.
type Mode string

// The modes. With None a limit that needs a controller is refused.
const (
	V2   Mode = "v2"
	V1   Mode = "v1"
	None Mode = "none"
)

// Tree is a delegated part of the hierarchies.
type Tree struct {
	Mode Mode `json:"mode"`
	// Path of the sandboxes' parent below the mount of every hierarchy, e.g.
	// "/hutch-812-55/sandboxes"; "" with None.
	Path string `json:"path"`
	// V2Mount says that a cgroup2 hierarchy is part of the tree (pure v2 or
	// hybrid), so that /proc/PID/cgroup's "0::" line can be checked.
	V2Mount     bool     `json:"v2_mount"`
	Controllers []string `json:"controllers"` // of those that limits need
	// Mounts are where the hierarchies with these controllers are mounted, by
	// controller; "" is the v2 hierarchy when execs can have cgroups in it, for
	// which it must know cgroup.kill (Linux 5.14).
	Mounts map[string]string `json:"mounts"`
	// Reason says why Mode is None, and Remedy what the user can do.
	Reason string `json:"reason,omitempty"`
	Remedy string `json:"remedy,omitempty"`

	hierarchies []hierarchy
	group       string // G's name or path below each mount
	// locks are G in each hierarchy, open and flocked for as long as the monitor
	// lives: a sweep, also one in another pid namespace, which cannot see this
	// process, passes over what is locked.
	locks []*os.File
}

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mount       string
	controllers []string // v1: as mounted; v2: cgroup.controllers of the root
	v2          bool
}

// wanted are the controllers behind the limits and statistics of runtime/api.
var wanted = []string{"cpu", "memory", "pids", "cpuset", "io"}

// canonical is v2's name of a controller. v1's cpuacct is none of v2's, and for reading only.
func canonical(c string) string {
	if c == "blkio" {
		return "io"
	}
	return c
}

// Delegate makes a tree for a daemon of uid and gid and returns it; when the
// host offers none, the tree's Mode is None with the reason. euid is the
// caller's: only root may use a hierarchy that nobody delegated. obtain is for an
// ordinary user whose cgroup is somebody else's: it moves this process to one that
// is delegated to the user, or says why there is none.
func Delegate(euid, uid, gid int, obtain func() error) (*Tree, error) {
	hs, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	name, err := groupName(os.Getpid())
	if err != nil {
		return nil, err
	}
	if euid == 0 {
		return delegateRoot(hs, name, uid, gid)
	}
	return delegateUser(hs, name, obtain)
}

// Locks are what keeps sweeps away from the tree. Whoever is to keep it when this
// process has ended holds duplicates.
func (t *Tree) Locks() []*os.File { return t.locks }

// Reopen makes a whole Tree of one that a monitor before has written down and other
// processes still keep.
func Reopen(t Tree) (*Tree, error) {
	if t.Path == "" {
		return &t, nil
	}
	group, ok := strings.CutSuffix(t.Path, "/sandboxes")
	if !ok || !strings.HasPrefix(filepath.Base(group), "hutch-") {
		return nil, fmt.Errorf("cgroup %q is none of hutch's", t.Path)
	}
	hs, err := mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	t.hierarchies, t.group = hs, group
	return &t, nil
}

// delegateRoot makes fresh top-level groups. The root of a hierarchy may hold
// processes and children with controllers at once, so nothing has to move.
func delegateRoot(hs []hierarchy, name string, uid, gid int) (t *Tree, err error) {
	t = &Tree{Mode: V1, Path: "/" + name + "/sandboxes", hierarchies: hs, group: name}
	if len(hs) == 0 {
		return none("no cgroup file system is mounted", "mount -t cgroup2 cgroup2 /sys/fs/cgroup"), nil
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Remove())
		}
	}()
	for _, h := range hs {
		if h.v2 {
			t.V2Mount = true
			if len(hs) == 1 {
				t.Mode = V2
				// Without systemd nobody has given the root's children controllers. What can
				// not be enabled is not in Controllers then.
				_, _ = enable(h.mount)
			}
		}
		if err := t.make(h, uid, gid); err != nil {
			return t, err
		}
		got, err := t.usable(h)
		if err != nil {
			return t, err
		}
		t.Controllers = append(t.Controllers, got...)
	}
	return t, nil
}

// usable are the controllers that sandboxes can have in a hierarchy: a v2 cgroup has
// those that its parent gave it.
func (t *Tree) usable(h hierarchy) ([]string, error) {
	have := h.controllers
	if h.v2 {
		data, err := os.ReadFile(filepath.Join(h.mount, t.Path, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read controllers: %w", err)
		}
		have = strings.Fields(string(data))
	}
	var got []string
	for _, c := range have {
		if c = canonical(c); slices.Contains(wanted, c) {
			got = append(got, c)
		}
	}
	return got, nil
}

func (t *Tree) takeOver(h hierarchy, dir string) error {
	if err := t.make(h, os.Getuid(), os.Getgid()); err != nil {
		return err
	}
	if err := t.Enter(os.Getpid()); err != nil {
		return err
	}
	for _, d := range []string{dir, filepath.Join(h.mount, t.group), filepath.Join(h.mount, t.Path)} {
		got, err := enable(d)
		if err != nil {
			return err
		}
		t.Controllers = got
	}
	return nil
}

// Enter moves a process into G/daemon of the v2 hierarchy: moving a process
// later into G/sandboxes/x needs write access to the cgroup.procs of their
// common ancestor, which is then G. Without a v2 hierarchy it does nothing.
func (t *Tree) Enter(pid int) error {
	for _, h := range t.hierarchies {
		if h.v2 {
			return write(filepath.Join(h.mount, t.group, "daemon", "cgroup.procs"), strconv.Itoa(pid))
		}
	}
	return nil
}

// Remove removes the tree's groups; they must hold no process any more. The
// caller's own process is moved out first where it was moved in.
func (t *Tree) Remove() error {
	var errs []error
	for _, h := range t.hierarchies {
		root := filepath.Join(h.mount, t.group)
		if h.v2 && holdsSelf(filepath.Join(root, "daemon")) {
			// A child that gives controllers to its own keeps them in use.
			errs = append(errs, removeEmptied(filepath.Join(root, "sandboxes")), h.leave(root))
		}
		errs = append(errs, removeEmptied(root))
	}
	for _, f := range t.locks {
		errs = append(errs, f.Close())
	}
	t.locks = nil
	return errors.Join(errs...)
}

// leave moves the caller's process out of root, to the group above. That one may
// hold it only without controllers for its children, unless it is the hierarchy's
// root.
func (h hierarchy) leave(root string) error {
	parent := filepath.Dir(root)
	if parent != h.mount {
		for _, dir := range []string{root, parent} {
			if err := write(filepath.Join(dir, "cgroup.subtree_control"), disableAll(dir)); err != nil {
				return err
			}
		}
	}
	return write(filepath.Join(parent, "cgroup.procs"), strconv.Itoa(os.Getpid()))
}

// lock takes the flock of a group that this process has just made.
func (t *Tree) lock(dir string) error {
	f, err := tryLock(dir)
	if err != nil {
		return err
	}
	if f == nil {
		return fmt.Errorf("lock cgroup %s: somebody else has", dir)
	}
	t.locks = append(t.locks, f)
	return nil
}

// tryLock flocks a cgroup; nil says that another process has.
func tryLock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock cgroup: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	}
	return nil, errors.Join(fmt.Errorf("lock cgroup %s: %w", dir, err), f.Close())
}

// make creates G, G/sandboxes and, in v2, G/daemon, and gives the daemon what it
// needs: folders below sandboxes, and moving its own processes there. The limits
// of G and G/sandboxes stay the caller's.
func (t *Tree) make(h hierarchy, uid, gid int) error {
	root := filepath.Join(h.mount, t.group)
	sandboxes := filepath.Join(root, "sandboxes")
	if err := os.Mkdir(root, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := t.lock(root); err != nil {
		return err
	}
	if err := h.inheritCPUSet(root); err != nil {
		return err
	}
	if err := os.Mkdir(sandboxes, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := h.inheritCPUSet(sandboxes); err != nil {
		return err
	}
	own := []string{sandboxes, filepath.Join(sandboxes, "cgroup.procs")}
	if h.v2 {
		daemon := filepath.Join(root, "daemon")
		if err := os.Mkdir(daemon, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		if _, err := enable(root); err != nil {
			return err
		}
		own = append(own, filepath.Join(root, "cgroup.procs"), filepath.Join(daemon, "cgroup.procs"),
			filepath.Join(sandboxes, "cgroup.subtree_control"), filepath.Join(sandboxes, "cgroup.threads"))
	}
	t.note(h, sandboxes)
	for _, path := range own {
		if err := os.Chown(path, uid, gid); err != nil {
			return fmt.Errorf("delegate cgroup to uid %d: %w", uid, err)
		}
	}
	return nil
}

// note fills in Mounts.
func (t *Tree) note(h hierarchy, sandboxes string) {
	if t.Mounts == nil {
		t.Mounts = map[string]string{}
	}
	for _, c := range h.controllers {
		if c = canonical(c); slices.Contains(wanted, c) || c == "cpuacct" {
			t.Mounts[c] = h.mount
		}
	}
	if _, err := os.Stat(filepath.Join(sandboxes, "cgroup.kill")); h.v2 && err == nil {
		t.Mounts[""] = h.mount
	}
}

// inheritCPUSet fills v1's cpuset files, which start empty: a process cannot
// join a group without cpus and memory nodes (cpusets, admin-guide/cgroup-v1).
func (h hierarchy) inheritCPUSet(dir string) error {
	if h.v2 || !slices.Contains(h.controllers, "cpuset") {
		return nil
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		v, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return fmt.Errorf("inherit cpuset: %w", err)
		}
		if err := write(filepath.Join(dir, file), strings.TrimSpace(string(v))); err != nil {
			return err
		}
	}
	return nil
}

// enable turns on, for dir's children, those wanted controllers that dir has.
func enable(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("read controllers: %w", err)
	}
	var got []string
	for _, c := range strings.Fields(string(data)) {
		if slices.Contains(wanted, c) {
			got = append(got, c)
		}
	}
	if len(got) == 0 {
		return nil, nil
	}
	return got, write(filepath.Join(dir, "cgroup.subtree_control"), "+"+strings.Join(got, " +"))
}

func disableAll(dir string) string {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	fields := strings.Fields(string(data))
	if len(fields) == 0 {
		return ""
	}
	return "-" + strings.Join(fields, " -")
}

func holdsSelf(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	return err == nil && slices.Contains(strings.Fields(string(data)), strconv.Itoa(os.Getpid()))
}

// emptyTimeout bounds how long the last processes of a tree may take to leave it.
const emptyTimeout = 5 * time.Second

// RemoveEmptied removes a cgroup whose processes have ended, and those below it.
func RemoveEmptied(dir string) error { return removeEmptied(dir) }

// removeEmptied is removeTree for a tree whose processes have ended: the kernel may take
// them out of their cgroups a moment after it has reported their end.
func removeEmptied(dir string) error {
	err := removeTree(dir)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	events, oerr := os.Open(filepath.Join(dir, "cgroup.events"))
	if oerr != nil {
		return err // cgroup v1 does not tell
	}
	defer events.Close()
	ctx, cancel := context.WithTimeout(context.Background(), emptyTimeout)
	defer cancel()
	if awaitEvent(ctx, events, "populated", 0) != nil {
		return err
	}
	return removeTree(dir)
}

// removeTree removes a cgroup and those below it, deepest first. A cgroup's
// files are the kernel's and go with the folder.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// write writes a value to a cgroup file that exists. O_CREAT is never used: it
// turns "no such file" into EACCES in a delegated hierarchy.
func write(path, value string) error {
	if value == "" {
		return nil
	}
	fd, err := openFile(path, unix.O_WRONLY)
	if err != nil {
		return fmt.Errorf("write %q to cgroup: %w", value, err)
	}
	n, werr := unix.Write(fd, []byte(value))
	if werr == nil && n < len(value) {
		werr = io.ErrShortWrite
	}
	if err := errors.Join(werr, unix.Close(fd)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}

// openFile is os.OpenFile without the poller: files of cgroups can be polled, and each would be added to it and wake
// the thread that polls, some 20 us. They never block.
func openFile(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// readFile reads the start of a small file.
func readFile(path string) (string, error) {
	fd, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return readAt(fd, filepath.Dir(path), filepath.Base(path))
}

func none(reason, remedy string) *Tree {
	return &Tree{Mode: None, Reason: reason, Remedy: remedy}
}
