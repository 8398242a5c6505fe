package probe

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// Lines of /proc/self/mountinfo as the three kinds of host show them.
const (
	mountV2     = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	mountHybrid = `31 23 0:27 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:28 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
33 31 0:29 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
34 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct
35 31 0:31 / /sys/fs/cgroup/memory rw,nosuid shared:13 - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/pids rw,nosuid shared:14 - cgroup cgroup rw,pids
`
	selfV2     = "0::/user.slice/user-1000.slice/session-3.scope\n"
	selfHybrid = "5:pids:/a\n4:memory:/a\n3:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/a\n"
	// A container sees its own part of the hierarchy as the mount's root.
	mountContainer = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	selfContainer  = "0::/docker/abc/inner\n"

	sessionDir = "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope"
	managerDir = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
)

func allow(string) error { return nil }
func refuse(dir string) error {
	return &fs.PathError{Op: "mkdir", Path: dir + "/hutch-probe", Err: syscall.EACCES}
}

func TestCgroups(t *testing.T) {
	for _, tt := range []struct {
		name           string
		files          map[string]string
		try            func(string) error
		want           Status
		detail, remedy string
	}{
		{"delegated", map[string]string{"/proc/self/mountinfo": mountV2, "/proc/self/cgroup": selfV2, sessionDir +
			"/cgroup.controllers": "cpu memory pids\n"},
			allow, Yes, "v2-delegated: " + sessionDir, ""},
		{"delegated, too little", map[string]string{"/proc/self/mountinfo": mountV2, "/proc/self/cgroup": selfV2,
			sessionDir + "/cgroup.controllers": "memory pids\n"},
			allow, No, "without cpu", "Delegate=cpu"},
		{"user manager", map[string]string{"/proc/self/mountinfo": mountV2, "/proc/self/cgroup": selfV2, managerDir +
			"/cgroup.controllers": "cpu memory pids", "/run/user/1000/bus": ""},
			refuse, Yes, "user manager delegates cpu memory pids", ""},
		{"no user manager", map[string]string{"/proc/self/mountinfo": mountV2, "/proc/self/cgroup": selfV2, managerDir +
			"/cgroup.controllers": "cpu memory pids"},
			refuse, No, "v2-none", "loginctl enable-linger dev"},
		{"container", map[string]string{"/proc/self/mountinfo": mountContainer, "/proc/self/cgroup": selfContainer,
			"/sys/fs/cgroup/inner/cgroup.controllers": "cpu memory pids"},
			allow, Yes, "v2-delegated: /sys/fs/cgroup/inner", ""},
		{"hybrid as root", map[string]string{"/proc/self/mountinfo": mountHybrid, "/proc/self/cgroup": selfHybrid},
			allow, Yes, "hybrid-root", ""},
		{"hybrid as user", map[string]string{"/proc/self/mountinfo": mountHybrid, "/proc/self/cgroup": selfHybrid},
			refuse, No, "hybrid-none", "systemd.unified_cgroup_hierarchy=1"},
		{"v1 alone", map[string]string{"/proc/self/mountinfo": strings.ReplaceAll(mountHybrid, "cgroup2", "tmpfs"),
			"/proc/self/cgroup": selfHybrid}, allow, Yes, "v1-root", ""},
		{"none", map[string]string{"/proc/self/mountinfo": "", "/proc/self/cgroup": ""}, allow, No, "none:",
			"mount -t cgroup2"},
		{"unreadable", nil, allow, Inconclusive, "mountinfo", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fixture(tt.files).cgroups(tt.try)
			if c.Status != tt.want || !strings.Contains(c.Detail, tt.detail) || !strings.Contains(c.Remedy, tt.remedy) {
				t.Errorf("got %+v, want %s, detail %q, remedy %q", c, tt.want, tt.detail, tt.remedy)
			}
		})
	}
}

func TestParseCgroups(t *testing.T) {
	tree := parseCgroups(mountHybrid, selfHybrid)
	if tree.v2 != "/sys/fs/cgroup/unified/a" || tree.v1["memory"] != "/sys/fs/cgroup/memory/a" ||
		tree.v1["cpu"] != "/sys/fs/cgroup/cpu,cpuacct/a" {
		t.Errorf("got %+v", tree)
	}
	if dir, ok := tree.v1["name=systemd"]; ok {
		t.Errorf("name=systemd is no controller, got %s", dir)
	}
}

func FuzzParseCgroups(f *testing.F) {
	f.Add(mountHybrid, selfHybrid)
	f.Add(mountContainer, selfContainer)
	f.Fuzz(func(t *testing.T, mountinfo, self string) {
		var tree cgroupTree
		cost.Input(t, mountinfo, func(mountinfo string) { tree = parseCgroups(mountinfo, self) })
		if tree.v1 == nil || (tree.v2 == "") != (tree.root == "") && tree.v2 == "" {
			t.Errorf("%+v", tree)
		}
	})
}
