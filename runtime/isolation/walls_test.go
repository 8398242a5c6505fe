package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// proc is a folder as proc(5) has one, of a PID 1 around which everything stands, and its network namespace.
func proc(t *testing.T) (dir string, netns *os.File) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "net")
	write(t, path, "")
	write(t, filepath.Join(dir, "status"), good)
	if err := os.Mkdir(filepath.Join(dir, "ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"user", "pid", "mnt", "ipc", "uts", "cgroup"} {
		link(t, ns+":[1]", filepath.Join(dir, "ns", ns))
	}
	link(t, path, filepath.Join(dir, "ns/net"))
	netns, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Close() })
	return dir, netns
}

const good = "CapBnd:\t00000000000000c0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

type network struct{}

func (network) State() (string, string, string) { return "proxy", "tproxy", "by the proxy" }

// TestOf: what every sandbox has is read back from the kernel; a launch that has lost a layer is an error.
func TestOf(t *testing.T) {
	h := &Host{UserMap: "range", CgroupMode: "v2", CgroupMount: "/c", Controllers: []string{"cpu"}, InMemory: true,
		EBPF: EBPF{On: true, Errnos: true}}
	dir, netns := proc(t)
	iso, err := Of(dir, h, api.SeccompDefault, netns, network{})
	if err != nil || iso.Enforcement != "proxy" || len(iso.Walls) != 15 {
		t.Errorf("%+v, %v", iso, err)
	}
	if iso, err := Of(dir, h, api.SeccompBrowser, netns, nil); err != nil || iso.Enforcement != "none" {
		t.Errorf("mode none: %+v, %v", iso, err)
	}
	for what, lose := range map[string]func(t *testing.T, dir string){
		"seccomp":      func(t *testing.T, dir string) { replace(t, dir, "Seccomp:\t2", "Seccomp:\t0") },
		"no_new_privs": func(t *testing.T, dir string) { replace(t, dir, "NoNewPrivs:\t1", "NoNewPrivs:\t0") },
		"capabilities": func(t *testing.T, dir string) { replace(t, dir, "00c0", "ffffffff") },
		"status":       func(t *testing.T, dir string) { replace(t, dir, "00c0", "zz") },
		"namespace": func(t *testing.T, dir string) {
			own, err := os.Readlink("/proc/self/ns/pid")
			if err != nil || os.Remove(filepath.Join(dir, "ns/pid")) != nil {
				t.Fatal(err)
			}
			link(t, own, filepath.Join(dir, "ns/pid"))
		},
		"proc": func(t *testing.T, dir string) { _ = os.Remove(filepath.Join(dir, "status")) },
		"network": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "ns/net")); err != nil {
				t.Fatal(err)
			}
			link(t, "/dev/null", filepath.Join(dir, "ns/net"))
		},
	} {
		dir, netns := proc(t)
		lose(t, dir)
		if _, err := Of(dir, h, api.SeccompDefault, netns, nil); err == nil {
			t.Errorf("without %s: no error", what)
		}
	}
}

func replace(t *testing.T, dir, old, text string) {
	t.Helper()
	write(t, filepath.Join(dir, "status"), strings.Replace(good, old, text, 1))
}

// TestEnforcement: the errno that a refused connection gets, by who refuses it.
func TestEnforcement(t *testing.T) {
	for _, c := range []struct {
		ebpf  EBPF
		n     Network
		p     api.NetPolicy
		errno string
	}{
		{EBPF{}, nil, api.NetPolicy{}, "ENETUNREACH"},
		{EBPF{}, network{}, api.NetPolicy{Mode: api.NetAllow}, "EACCES"},
		{EBPF{}, network{}, api.NetPolicy{Mode: api.NetOpen}, "EHOSTUNREACH"},
		{EBPF{On: true}, nil, api.NetPolicy{}, "EPERM"},
		{EBPF{On: true, Errnos: true}, network{}, api.NetPolicy{Mode: api.NetAllow}, "EACCES"},
	} {
		h := &Host{EBPF: c.ebpf}
		e := h.Enforcement(c.p, c.n)
		if e.Errno != c.errno || (e.EBPF == "on") != c.ebpf.On || (e.Proxy == "") != (c.n == nil) {
			t.Errorf("%+v: %+v", c, e)
		}
		if check := h.EnforcementCheck(); (check.Status == "yes") != c.ebpf.On {
			t.Errorf("%+v: %+v", c, check)
		}
	}
}

// TestIDs: ids that are emulated, or not, where there is only one.
func TestIDs(t *testing.T) {
	single, many := &Host{UserMap: "single"}, &Host{UserMap: "range"}
	if api.ErrorCode(many.CheckIDs(api.IDsEmulate)) != api.Unavailable || single.CheckIDs(api.IDsEmulate) != nil {
		t.Error("ids are emulated where there are real ones, or not where there are none")
	}
	for _, c := range []struct {
		want   api.IDs
		can    bool
		detail string // of the wall; "" is an error
	}{
		{api.IDsAuto, true, "emulated"}, {api.IDsEmulate, true, "emulated"}, {api.IDsEmulate, false, ""},
		{api.IDsReal, true, "only root, as was asked for"}, {api.IDsAuto, false, "only root: to emulate"},
	} {
		var iso api.Isolation
		err := single.AddIDs(&iso, c.want, c.can)
		if (err != nil) != (c.detail == "") || err == nil && !strings.HasPrefix(iso.Walls[0].Detail, c.detail) {
			t.Errorf("%+v: %+v, %v", c, iso, err)
		}
	}
	var iso api.Isolation
	if err := many.AddIDs(&iso, api.IDsAuto, false); err != nil || len(iso.Walls) > 0 {
		t.Errorf("%+v, %v", iso, err)
	}
	if h := single.Isolation("no subids"); h.Walls[0].Status != "no" || h.Walls[0].Detail != "no subids" {
		t.Errorf("%+v", h)
	}
}

// TestAddLabel: the label of PID 1 is what its folder of proc(5) says.
func TestAddLabel(t *testing.T) {
	dir, h := t.TempDir(), &Host{AppArmor: "hutch"}
	var iso api.Isolation
	if err := h.AddLabel(&iso, LabelsOf(dir), api.AppArmorOn); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("without a module: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "attr/apparmor"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "attr/current"), "system_u:system_r:container_t:s0\x00")
	if err := h.AddLabel(&iso, LabelsOf(dir), ""); err != nil || len(iso.Walls) != 1 || iso.Walls[0].Name != "SELinux" {
		t.Errorf("%+v, %v", iso, err)
	}
	write(t, filepath.Join(dir, "attr/apparmor/current"), "hutch (complain)\n")
	if err := h.AddLabel(&iso, LabelsOf(dir), api.AppArmorOn); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("of one that complains: %v", err)
	}
	write(t, filepath.Join(dir, "attr/apparmor/current"), "hutch (enforce)\n")
	if err := h.AddLabel(&iso, LabelsOf(dir), api.AppArmorOn); err != nil || iso.Walls[1].Status != "yes" {
		t.Errorf("%+v, %v", iso, err)
	}
}
