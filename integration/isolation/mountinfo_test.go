package isolation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// mountLine is a line of mountinfo: proc(5).
type mountLine struct {
	device, root, point, flags string
	optional                   []string // "shared:1" and the like
	fstype, source, options    string
}

func mountLines(t testing.TB, text string) []mountLine {
	t.Helper()
	var all []mountLine
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		i := slices.Index(f, "-")
		if i < 6 || len(f) != i+4 {
			t.Fatalf("a line of mountinfo: %q", line)
		}
		all = append(all, mountLine{f[2], f[3], f[4], f[5], f[6:i], f[i+1], f[i+2], f[i+3]})
	}
	return all
}

// meant is what may be mounted at a place: regular expressions for the whole of each
// field. What is always there has must.
type meant struct {
	point, root, flags, fstype, source string
	// options, each of which must match one of these, as whole words.
	options string
	must    bool
}

// What file systems say of themselves, and what kernels and their configurations add.
const (
	tmpfsOptions   = `rw|ro|size=\d+k|nr_inodes=\d+|mode=\d+|uid=\d+|gid=\d+|inode64|seclabel`
	overlayOptions = `rw|ro|lowerdir\+?=\d+(:\d+)*|upperdir=\d+|workdir=\d+|redirect_dir=nofollow|index=off|xino=(on|off|auto)|uuid=(on|null|auto|off)|metacopy=off|fsync=volatile|volatile|userxattr|seclabel`
)

// meantMounts is the whole mount table of a sandbox, but for the caller's folders.
var meantMounts = []meant{
	{"/", "/", "rw,nodev,relatime", "overlay", "overlay", overlayOptions, true},
	{"/proc", "/", "rw,nosuid,nodev,noexec,relatime", "proc", "proc", "rw|ro", true},
	{"/dev", "/", "rw,nosuid", "tmpfs", "tmpfs", tmpfsOptions, true},
	{"/dev/pts", "/", "rw,nosuid,noexec,relatime", "devpts", "devpts",
		`rw|gid=\d+|mode=620|ptmxmode=666|seclabel`, true},
	{"/dev/shm", "/", "rw,nosuid,nodev,noexec,relatime", "tmpfs", "shm", tmpfsOptions, true},
	{"/dev/mqueue", "/", "rw,nosuid,nodev,noexec,relatime", "mqueue", "mqueue", "rw|seclabel", true},
	{"/sys", "/sys", "ro,nosuid,nodev,noexec,relatime", "tmpfs", "hutch", tmpfsOptions, true},
	// Where v1 has the controllers, a tmpfs that is read-only hides one that is not.
	{"/sys/fs/cgroup", "/", "(ro|rw),nosuid,nodev,noexec,relatime", "cgroup2|tmpfs", "cgroup|tmpfs",
		"rw|nsdelegate|memory_recursiveprot|memory_hugetlb_accounting|seclabel|" + tmpfsOptions, false},
	{"/sys/fs/cgroup/[a-z_,]+", "/", "ro,nosuid,nodev,noexec,relatime", "cgroup", "cgroup|systemd",
		`rw|seclabel|clone_children|xattr|name=[a-z]+|release_agent=|[a-z_]+`, false},
	{"/usr", "/", "ro,nosuid,nodev,relatime", "overlay", "overlay", overlayOptions, true},
	{"/run/hutch", "/hutch", "ro,nosuid,nodev,noexec,relatime", "tmpfs", "hutch", tmpfsOptions, true},
	{"/proc/sys", "/sys", "ro,nosuid,nodev,noexec,relatime", "proc", "proc", "rw|ro", true},
	{"/proc/sysrq-trigger", "/sysrq-trigger", "ro,nosuid,nodev,noexec,relatime", "proc", "proc", "rw|ro", false},
	// libcontainer binds the host's nodes where it may not make its own.
	{"/dev/(null|zero|full|random|urandom|tty)", "/(null|zero|full|random|urandom|tty)",
		"rw(,nosuid)?(,noexec)?(,relatime|,noatime)?", "(dev)?tmpfs", "(dev)?tmpfs|udev|none", tmpfsOptions, true},
	// Masks: a folder is an empty tmpfs, a file is /dev/null.
	{"/proc/(acpi|asound|bus|driver|fs|irq|pressure|scsi|sys/dev)", "/", "ro,relatime", "tmpfs", "tmpfs",
		tmpfsOptions, true},
	{
		"/proc/(cmdline|sys/kernel/random/boot_id|iomem|ioports|dma|mtrr|consoles|modules|partitions|diskstats|mdstat|swaps|locks|" +
			"interrupts|softirqs|buddyinfo|zoneinfo|timer_list|timer_stats|sched_debug|latency_stats|kcore|kallsyms|keys|key-users)",
		"/null", "rw(,nosuid)?(,noexec)?(,relatime|,noatime)?", "(dev)?tmpfs", "(dev)?tmpfs|udev|none",
		tmpfsOptions, true,
	},
}

func whole(pattern, s string) bool { return regexp.MustCompile("^(?:" + pattern + ")$").MatchString(s) }

// wrong says what of l is not as meant, "" for nothing.
func (l mountLine) wrong(table []meant) string {
	for _, m := range table {
		if !whole(m.point, l.point) {
			continue
		}
		for _, f := range [][3]string{{"root", m.root, l.root}, {"flags", m.flags, l.flags},
			{"type", m.fstype, l.fstype}, {"source", m.source, l.source}} {
			if !whole(f[1], f[2]) {
				return fmt.Sprintf("%s: %s %q, want %s", l.point, f[0], f[2], f[1])
			}
		}
		for o := range strings.SplitSeq(l.options, ",") {
			if !whole(m.options, o) {
				return fmt.Sprintf("%s: option %q", l.point, o)
			}
		}
		switch {
		case len(l.optional) > 0:
			return fmt.Sprintf("%s: propagates: %v", l.point, l.optional)
		case !strings.HasPrefix(l.device, "0:"):
			return fmt.Sprintf("%s: on a device of the host, %s", l.point, l.device)
		}
		return ""
	}
	return l.point + " is not meant to be mounted"
}

// TestMounts compares the whole mount table inside with what is meant to be there, and with
// it /proc/self/mounts, mountstats, cgroup and environ. Nothing names a path, a device or a cgroup of
// the host's but the bind of a folder that was given as it is: the twin, by which the
// same look is seen to find one.
func TestMounts(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	testenv.Smoke(t)
	t.Parallel()
	w := world.New(t)
	shown, hidden := w.Sub(t, "shown-folder"), w.Sub(t, "hidden-folder")
	sb := w.Create(t, "--workspace", shown+":rw", "-v", hidden+":/mnt/copy:overlay", "host")
	inside := func(file string) string { return w.OK(t, "exec", sb, "--", "cat", file) }
	table := append([]meant{
		{"/mnt/copy", "/", "rw,nosuid,nodev,relatime", "overlay", "overlay", overlayOptions, true},
		{"/(bin|sbin|lib|lib32|lib64|libx32|nix/store|gnu/store)", "/", "ro,nosuid,nodev,relatime", "overlay",
			"overlay", overlayOptions, false},
	}, meantMounts...)

	info := inside("/proc/self/mountinfo")
	lines := mountLines(t, info)
	at := map[string]mountLine{}
	for _, l := range lines {
		if _, twice := at[l.point]; twice && (l.point != "/sys/fs/cgroup" || l.fstype != "tmpfs") {
			t.Errorf("two mounts at %s", l.point)
		}
		at[l.point] = l
		why := l.wrong(table)
		if l.point == "/workspace" {
			if why == "" || !strings.HasSuffix(l.root, "/shown-folder") {
				t.Errorf("the twin: a folder's own bind, %+v", l)
			}
			continue
		}
		if why != "" {
			t.Error(why)
		}
	}
	if l, ok := at["/sys/fs/cgroup"]; ok && !strings.HasPrefix(l.flags, "ro,") {
		t.Errorf("what is mounted last at %s is %s", l.point, l.flags)
	}
	// What is meant to be there is, where the host has such a file.
	for _, m := range table {
		if !m.must {
			continue
		}
		for _, point := range points(m.point) {
			if _, err := os.Lstat(point); err != nil && strings.HasPrefix(point, "/proc/") {
				continue
			}
			if _, ok := at[point]; !ok {
				t.Errorf("nothing is mounted at %s", point)
			}
		}
	}

	// The same in other words.
	var short, stats []string
	for _, l := range lines {
		short = append(short, l.source+" "+l.point+" "+l.fstype)
		stats = append(stats, "device "+l.source+" mounted on "+l.point+" with fstype "+l.fstype)
	}
	mounts := inside("/proc/self/mounts")
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if i := slices.Index(short, strings.Join(f[:min(3, len(f))], " ")); i >= 0 {
			short = slices.Delete(short, i, i+1)
		} else {
			t.Errorf("only in mounts: %s", line)
		}
	}
	mountstats := inside("/proc/self/mountstats")
	for line := range strings.Lines(mountstats) {
		if i := slices.Index(stats, strings.TrimSpace(line)); i >= 0 {
			stats = slices.Delete(stats, i, i+1)
		} else {
			t.Errorf("only in mountstats: %s", line)
		}
	}
	if len(short)+len(stats) > 0 {
		t.Errorf("only in mountinfo: %v, %v", short, stats)
	}

	cgroup := inside("/proc/self/cgroup")
	for line := range strings.Lines(cgroup) { // the root of a cgroup namespace, or the exec's in it
		if !whole(`\d+:[a-z_,=]*:/|0::/(ex_[a-z0-9]+)?`, strings.TrimSuffix(line, "\n")) {
			t.Errorf("/proc/self/cgroup: %s", line)
		}
	}
	environ := inside("/proc/self/environ")
	vars := strings.Split(strings.TrimSuffix(environ, "\x00"), "\x00")
	slices.Sort(vars)
	want := []string{
		"HOME=/root", "HOSTNAME=hutch-" + strings.TrimPrefix(sb, "sb_"), "LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	if !slices.Equal(vars, want) {
		t.Errorf("environment %q, want %q", vars, want)
	}

	// And no name that is the host's, in any of them.
	names := []string{w.Dir, w.Root(), filepath.Base(w.Dir), os.TempDir(), "/home/", "hidden-folder", "sandboxes/",
		"daemons/",
		"/dev/vd", "/dev/sd", "/dev/nvme", "/dev/mapper"}
	for file, text := range map[string]string{"mountinfo": info, "mounts": mounts, "mountstats": mountstats,
		"cgroup": cgroup, "environ": environ} {
		for line := range strings.Lines(text) {
			if strings.Contains(line, " /workspace ") {
				continue
			}
			for _, name := range names {
				if strings.Contains(line, name) {
					t.Errorf("%s: %q shows in %s", file, name, line)
				}
			}
		}
	}
}

// points are the places that a pattern a/(b|c) stands for.
func points(pattern string) []string {
	before, rest, found := strings.Cut(pattern, "(")
	if !found {
		return []string{pattern}
	}
	var all []string
	for one := range strings.SplitSeq(strings.TrimSuffix(rest, ")"), "|") {
		all = append(all, before+one)
	}
	return all
}
