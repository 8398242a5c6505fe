package probe

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// fixture is a host whose files are given; uid 1000 is called dev.
func fixture(files map[string]string) host {
	root := fstest.MapFS{}
	for name, text := range files {
		root[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return host{
		root: root, uid: 1000, user: "dev", exe: "/home/dev/.local/bin/hutch", env: func(string) string { return "" },
		dumpable: func(int) (bool, error) { return false, nil },
	}
}

func TestSubIDs(t *testing.T) {
	const both = "dev:165536:65536\n"
	for _, tt := range []struct {
		name, subuid, subgid string
		want                 Status
		remedy               string
	}{
		{"none", "", "", No, "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 dev"},
		{"both", both, both, Yes, ""},
		{"by uid", "1000:100000:65536\n", both, Yes, ""},
		{"only uids", both, "", No, "--add-subuids 231072-296607"},
		{"too few", "dev:100000:1000\n", both, No, "usermod"},
		{"others' ranges", "amy:100000:65536\n", "bob:300000:65536\n", No, "365536-431071"},
		{"garbage", "dev:x:65536\n:::\n#dev:1:65536\ndev:4294967295:65536\n", both, No, "usermod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fixture(map[string]string{"/etc/subuid": tt.subuid, "/etc/subgid": tt.subgid}).subIDs()
			if c.Status != tt.want || !strings.Contains(c.Remedy, tt.remedy) {
				t.Errorf("got %+v, want %s with remedy %q", c, tt.want, tt.remedy)
			}
		})
	}
	t.Run("no account", func(t *testing.T) {
		h := fixture(nil)
		h.user = ""
		if c := h.subIDs(); c.Status != No || c.Remedy != "" || !strings.Contains(c.Detail, "no account") {
			t.Errorf("got %+v", c)
		}
	})
}

func FuzzParseIDRanges(f *testing.F) {
	f.Add("dev:100000:65536\n1000:1:1")
	f.Add("a::\n:1:2\nx:4294967295:4294967295")
	f.Fuzz(func(t *testing.T, text string) {
		var ranges []idRange
		cost.Input(t, text, func(text string) { ranges = parseIDRanges(text) })
		for _, r := range ranges {
			if r.owner == "" || r.first < 0 || r.count < 0 || r.first+r.count > 1<<32-1 {
				t.Errorf("%q gives %+v", text, r)
			}
		}
	})
}

// TestDaemon: what a status file says of a daemon's walls.
func TestDaemon(t *testing.T) {
	const walls = "Name:\thutchd\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	bare := strings.NewReplacer("\t1", "\t0", "\t2", "\t0").Replace(walls)
	for _, tt := range []struct {
		pid             int
		hutchd, monitor string
		dumpable        bool
		err             error
		want            Status
		detail          string
	}{
		{7, walls, walls, false, nil, Yes,
			"hutchd, process 7, and the monitor, process 6, have no_new_privs and a seccomp filter; hutchd's memory goes into no core file"},
		{7, walls, walls, false, errors.ErrUnsupported, Yes, "does not tell"},
		{7, walls, walls, false, syscall.ESRCH, Yes, "is not known: no such process"},
		{7, walls, walls, true, nil, No, "hutchd, process 7, dumpable"},
		{7, strings.Replace(walls, "\t1", "\t0", 1), walls, false, nil, No,
			"there is hutchd, process 7, without no_new_privs"},
		{7, strings.Replace(walls, "\t2", "\t0", 1), walls, false, nil, No,
			"there is hutchd, process 7, without a seccomp filter"},
		{7, walls, bare, false, nil, No,
			"there is the monitor, process 6, without no_new_privs and the monitor, process 6, without a seccomp filter"},
		{8, walls, walls, false, nil, Inconclusive, "hutchd is not process 8"},
		{0, walls, walls, false, nil, Inconclusive, "no daemon runs"},
	} {
		h := fixture(map[string]string{"/proc/7/status": tt.hutchd, "/proc/6/status": tt.monitor})
		h.dumpable = func(int) (bool, error) { return tt.dumpable, tt.err }
		if c := h.daemon(tt.pid, 6); c.Status != tt.want || !strings.Contains(c.Detail, tt.detail) {
			t.Errorf("%+v: %+v", tt, c)
		}
	}
}

// TestNoUserNamespace: the same errno has several causes.
func TestNoUserNamespace(t *testing.T) {
	const mountinfo = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	refused := &fs.PathError{Op: "fork/exec", Path: "/proc/self/exe", Err: syscall.EPERM}
	for _, tt := range []struct {
		name           string
		err            error
		files          map[string]string
		want           Status
		detail, remedy string
	}{
		{"limit", syscall.ENOSPC, map[string]string{"/proc/sys/user/max_user_namespaces": "0\n"}, No, "is 0",
			"sudo sysctl -w user.max_user_namespaces="},
		{"debian's sysctl", refused, map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, No, "is 0",
			"sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{"apparmor", refused, map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, No,
			"AppArmor", "sudo apparmor_parser -r /etc/apparmor.d/hutch"},
		{"apparmor by profile", refused, map[string]string{"/proc/self/attr/current": "restricted (enforce)",
			"/proc/self/mountinfo": mountinfo}, No, "AppArmor", "userns,"},
		{"no profile", refused, map[string]string{"/proc/self/attr/current": "unconfined",
			"/proc/self/mountinfo": mountinfo}, No, "", ""},
		{"apparmor by errno", syscall.EACCES, nil, No, "AppArmor", "userns,"},
		{"container", refused, map[string]string{"/proc/self/mountinfo": mountinfo,
			"/proc/self/status": "Name:\tx\nSeccomp:\t2\n"}, No, "seccomp filter", ContainerFlags},
		{"chroot", refused, map[string]string{"/proc/self/mountinfo": "22 1 8:1 / /proc rw - proc proc rw\n"}, No,
			"chroot", "pivot_root"},
		{"kernel", syscall.EINVAL, nil, No, "CONFIG_USER_NS", ""},
		{"memory", syscall.ENOMEM, nil, Inconclusive, "cannot allocate memory", ""},
		{"not an errno", errors.New("odd"), nil, Inconclusive, "odd", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fixture(tt.files).noUserNamespace("user_namespaces", tt.err)
			if c.Status != tt.want || !strings.Contains(c.Detail, tt.detail) || !strings.Contains(c.Remedy, tt.remedy) {
				t.Errorf("got %+v, want %s, detail %q, remedy %q", c, tt.want, tt.detail, tt.remedy)
			}
		})
	}
}

// TestNoCapabilities is Ubuntu 24.04: the namespace is made, its use is refused.
func TestNoCapabilities(t *testing.T) {
	a := attempt{Errno: syscall.EACCES, Step: "mount(/, MS_SLAVE|MS_REC)"}
	c := fixture(map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}).
		noCapabilities("user_namespaces", a)
	if c.Status != No || !strings.Contains(c.Detail, "EACCES") ||
		!strings.Contains(c.Remedy, `"/home/dev/.local/{bin,libexec/hutch}/hutch{,d,-launch}"`) {
		t.Errorf("got %+v", c)
	}
	c = fixture(map[string]string{"/.dockerenv": ""}).noCapabilities("user_namespaces", a)
	if c.Status != No || !strings.Contains(c.Remedy, "apparmor=unconfined") {
		t.Errorf("in a container: got %+v", c)
	}
}

func TestAppArmorProfile(t *testing.T) {
	for exe, want := range map[string]string{
		"/opt/hutch":      `profile hutch "/opt/hutch{,d,-launch}"`,
		"/usr/bin/hutch":  `profile hutch "/usr/{bin,libexec/hutch}/hutch{,d,-launch}"`,
		"/a b*/{x}/hutch": `profile hutch "/a b\*/\{x\}/hutch{,d,-launch}"`,
	} {
		if got := AppArmorProfile(exe); !strings.Contains(got, want) {
			t.Errorf("for %s:\n%s\nwant %s", exe, got, want)
		}
	}
}

func TestContainer(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string
		env   string
		want  string
	}{
		"host":    {map[string]string{"/proc/1/cgroup": "0::/init.scope\n"}, "", ""},
		"docker":  {map[string]string{"/.dockerenv": ""}, "", "docker"},
		"podman":  {map[string]string{"/run/.containerenv": ""}, "podman", "podman"},
		"nspawn":  {map[string]string{"/run/systemd/container": "systemd-nspawn\n"}, "", "systemd-nspawn"},
		"lxc":     {nil, "lxc", "lxc"},
		"kubelet": {map[string]string{"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, "", "kubepods"},
	} {
		h := fixture(tt.files)
		h.env = func(string) string { return tt.env }
		if got := h.container(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
