package probe

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CgroupMode is how limits of sandboxes can be enforced.
type CgroupMode string

// The modes, best first.
const (
	CgroupV2Delegated CgroupMode = "v2-delegated" // a subtree of cgroup v2 is the caller's
	CgroupV2None      CgroupMode = "v2-none"      // cgroup v2, but nothing is the caller's
	CgroupHybridRoot  CgroupMode = "hybrid-root"  // v1 controllers beside an empty v2, writable
	CgroupHybridNone  CgroupMode = "hybrid-none"  // the same, not writable
	CgroupV1Root      CgroupMode = "v1-root"      // v1 alone, writable
	CgroupV1None      CgroupMode = "v1-none"      // v1 alone, not writable
	CgroupNone        CgroupMode = "none"         // no cgroups mounted
)

// wantControllers are those that limits need.
var wantControllers = []string{"cpu", "memory", "pids"}

// Cgroups finds out whether limits on memory, processor time and processes can be
// enforced, by making a cgroup where those of sandboxes would go.
func Cgroups() Check { return thisHost().cgroups(tryMakeCgroup) }

// cgroups is Cgroups with the attempt as a parameter: try makes and removes a
// child of an absolute cgroup folder.
func (h host) cgroups(try func(dir string) error) Check {
	const name = "cgroups"
	mountinfo, ok := h.read("/proc/self/mountinfo")
	if !ok {
		return inconclusive(name, "/proc/self/mountinfo cannot be read")
	}
	self, _ := h.read("/proc/self/cgroup")
	tree := parseCgroups(mountinfo, self)
	switch {
	case tree.v1["memory"] != "" || tree.v1["pids"] != "":
		return h.cgroupsV1(name, tree, try)
	case tree.v2 != "":
		return h.cgroupsV2(name, tree, try)
	}
	return no(name, string(CgroupNone)+": no cgroup file system is mounted: limits cannot be enforced",
		h.sudo("mount -t cgroup2 none /sys/fs/cgroup"))
}

// cgroupTree is where this process is in the cgroup file systems.
type cgroupTree struct {
	v2   string            // folder in the cgroup2 file system, empty without one
	root string            // mount point of the cgroup2 file system
	v1   map[string]string // folder by v1 controller
}

// parseCgroups combines /proc/self/mountinfo (proc_pid_mountinfo(5)) and
// /proc/self/cgroup (cgroups(7)).
func parseCgroups(mountinfo, self string) cgroupTree {
	paths := map[string]string{} // by controller; "" is v2's
	for line := range strings.Lines(self) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				paths[c] = f[2]
			}
		}
	}
	tree := cgroupTree{v1: map[string]string{}}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup2":
			if p, ok := paths[""]; ok && tree.v2 == "" {
				tree.root, tree.v2 = f[4], path.Join(f[4], below(f[3], p))
			}
		case "cgroup":
			for c := range strings.SplitSeq(g[2], ",") {
				if p, ok := paths[c]; ok && c != "" && !strings.HasPrefix(c, "name=") {
					tree.v1[c] = path.Join(f[4], below(f[3], p))
				}
			}
		}
	}
	return tree
}

// below is the cgroup path p as seen in a mount whose root is root: they differ
// where a container shows only its own part.
func below(root, p string) string {
	if rest, ok := strings.CutPrefix(p, root); ok && root != "/" {
		return rest
	}
	return p
}

// cgroupsV1 covers hosts whose controllers are v1, with or without an empty v2.
func (h host) cgroupsV1(name string, tree cgroupTree, try func(string) error) Check {
	good, bad := CgroupHybridRoot, CgroupHybridNone
	if tree.v2 == "" {
		good, bad = CgroupV1Root, CgroupV1None
	}
	var missing []string
	var refusal error
	for _, c := range wantControllers {
		dir := tree.v1[c]
		if dir == "" {
			missing = append(missing, c)
		} else if err := try(dir); err != nil {
			missing, refusal = append(missing, c), err
		}
	}
	if len(missing) == 0 {
		return yes(name, fmt.Sprintf("%s: v1 controllers %s", good, strings.Join(wantControllers, " ")))
	}
	detail := fmt.Sprintf("%s: v1 controllers cannot be used (%s)", bad, strings.Join(missing, " "))
	if refusal != nil {
		detail += ": " + refusal.Error()
	}
	return no(name, detail+": limits cannot be enforced, only root may use v1",
		"add systemd.unified_cgroup_hierarchy=1 to the kernel command line and reboot")
}

// cgroupsV2 covers hosts with cgroup v2 alone.
func (h host) cgroupsV2(name string, tree cgroupTree, try func(string) error) Check {
	err := try(tree.v2)
	if err == nil {
		return h.enough(name, tree.v2, h.controllers(tree.v2))
	}
	// Sessions live in scopes that belong to root; systemd's user manager gives
	// away parts of its own subtree to whoever asks.
	manager := fmt.Sprintf("%s/user.slice/user-%d.slice/user@%d.service", tree.root, h.uid, h.uid)
	if controllers := h.controllers(manager); controllers != nil {
		if _, ok := h.userBus(); ok {
			return h.enough(name, "systemd's user manager", controllers)
		}
	}
	return fixable(name, fmt.Sprintf("%s: %v, and no systemd user manager runs for uid %d: limits cannot be enforced",
		CgroupV2None, err, h.uid),
		h.sudo("loginctl enable-linger "+h.user)+" && "+h.sudo(fmt.Sprintf("systemctl start user@%d.service", h.uid)))
}

// enough compares the controllers that a delegated subtree has with those that
// limits need.
func (h host) enough(name, who string, have []string) Check {
	var missing []string
	for _, c := range wantControllers {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if missing == nil {
		return yes(name, fmt.Sprintf("%s: %s delegates %s", CgroupV2Delegated, who, strings.Join(have, " ")))
	}
	dropIn := h.sudo("mkdir -p /etc/systemd/system/user@.service.d") +
		" && printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | " +
		h.sudo("tee /etc/systemd/system/user@.service.d/delegate.conf") + " && " + h.sudo("systemctl daemon-reload")
	return fixable(name, fmt.Sprintf("%s: %s delegates %q without %s: those limits cannot be enforced",
		CgroupV2Delegated, who, have, strings.Join(missing, " ")), dropIn)
}

// controllers lists what the cgroup at dir could enable for children.
func (h host) controllers(dir string) []string {
	text, ok := h.read(path.Join(dir, "cgroup.controllers"))
	if !ok {
		return nil
	}
	return strings.Fields(text)
}

// UserBus is the D-Bus address of the caller's systemd user manager. ok is false when
// there is none.
func UserBus() (address string, ok bool) { return thisHost().userBus() }

// userBus looks where systemd puts it before it believes the session's variable, which
// may name a bus without systemd (dbus-run-session).
func (h host) userBus() (address string, ok bool) {
	for _, dir := range []string{h.env("XDG_RUNTIME_DIR"), "/run/user/" + strconv.Itoa(h.uid)} {
		bus := path.Join(dir, "bus")
		if _, err := fs.Stat(h.root, strings.TrimPrefix(bus, "/")); dir != "" && err == nil {
			return "unix:path=" + bus, true
		}
	}
	address = h.env("DBUS_SESSION_BUS_ADDRESS")
	return address, strings.HasPrefix(address, "unix:")
}

// tryMakeCgroup makes a cgroup in dir and removes it, and asks whether processes
// may be moved within dir.
func tryMakeCgroup(dir string) error {
	child := path.Join(dir, "hutch-probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(child, 0o755); err != nil {
		return err
	}
	if err := os.Remove(child); err != nil {
		return err
	}
	procs := path.Join(dir, "cgroup.procs")
	if err := unix.Faccessat(unix.AT_FDCWD, procs, unix.W_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "write", Path: procs, Err: err}
	}
	return nil
}
