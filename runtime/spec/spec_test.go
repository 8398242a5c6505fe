package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// base is a sandbox of an ordinary user with a range of ids and no cgroups.
func base() Input {
	return Input{
		Hostname: "hutch-abc",
		Rootfs:   "/run/user/1000/hutch/mnt/daemons/1-1/sandboxes/sb_abc/root",
		PtsDir:   "/run/user/1000/hutch/mnt/daemons/1-1/sandboxes/sb_abc/pts",
		UIDs:     []Extent{{0, 1}, {1, 65536}},
		GIDs:     []Extent{{0, 1}, {1, 65536}},

		Sys: "/m/sys", ShmBytes: 64 << 20,
		NoFileHard: 65536,
	}
}

func TestBuild(t *testing.T) {
	cases := map[string]func(*Input){
		"range": func(*Input) {},
		"single": func(in *Input) {
			in.UIDs, in.GIDs = []Extent{{0, 1}}, []Extent{{0, 1}}
		},
		"cgroup1": func(in *Input) {
			in.UIDs, in.GIDs = []Extent{{0, 65536}}, []Extent{{0, 65536}}
			in.CgroupPath, in.CgroupV1 = "/hutch-1-2/sandboxes/sb_abc", true
		},
		"cgroup2": func(in *Input) {
			in.CgroupPath = "/user.slice/hutch-1-2/sandboxes/sb_abc"
		},
		"browser":   func(in *Input) { in.Browser = true },
		"read_only": func(in *Input) { in.ReadOnly = true },
		"binds": func(in *Input) {
			in.Binds = []Bind{
				{Source: "/m/0", Target: "/workspace"},
				{Source: "/m/1", Target: "/data", ReadOnly: true},
			}
			in.NoFileHard = 512 // below the usual soft limit
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			in := base()
			change(&in)
			got, err := json.MarshalIndent(Build(in), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("config differs from %s; see `git diff` after go test ./runtime/spec -update\ngot:\n%s",
					golden, got)
			}
		})
	}
}

// TestEverySandbox holds what no input may change.
func TestEverySandbox(t *testing.T) {
	c := Build(base())
	if !c.NoNewPrivileges {
		t.Error("no_new_privs is off")
	}
	for _, name := range c.Capabilities.Bounding {
		switch name {
		case "CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_MKNOD", "CAP_SYS_PTRACE", "CAP_SYS_MODULE",
			"CAP_BPF", "CAP_PERFMON":
			t.Errorf("the bounding set holds %s", name)
		}
	}
	if c.Sysctl["user.max_user_namespaces"] != "0" {
		t.Error("user namespaces can be made inside")
	}
	for _, m := range c.Mounts {
		if m.Device == "sysfs" || m.Destination == "/sys" && m.Flags&unix.MS_RDONLY == 0 {
			t.Errorf("/sys is %+v", m)
		}
	}
	if len(c.Namespaces) != 7 {
		t.Errorf("%d namespaces, want 7", len(c.Namespaces))
	}
}

// TestNestKeepsExtents: a map that crosses its parent's extents is refused by the
// kernel.
func TestNestKeepsExtents(t *testing.T) {
	got := nest([]Extent{{0, 1}, {1, 65536}, {65537, 1000}})
	if len(got) != 3 {
		t.Fatalf("%d extents, want 3", len(got))
	}
	for _, m := range got {
		if m.ContainerID != m.HostID {
			t.Errorf("%d maps to %d: not the same", m.ContainerID, m.HostID)
		}
	}
}
