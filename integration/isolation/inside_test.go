package isolation_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestInside: folders in memory, a root that is read-only, hosts and dropped capabilities, each beside a sandbox
// without them.
func TestInside(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	plain := c.SandboxOf(nil)
	run := w.Sub(t, "shown-as-run")
	for _, tt := range []struct {
		name     string
		spec     world.Params
		command  string
		out      string // of both, and why it failed
		ordinary string // of a sandbox without
	}{
		{"shm", world.Params{"limits": world.Params{"shm_bytes": 1 << 20}},
			"head -c 2097152 /dev/zero > /dev/shm/x", "No space left on device", ""},
		{"shm of memory", world.Params{"limits": world.Params{"memory_bytes": 64 << 20, "best_effort": true}},
			"df -B1 --output=size /dev/shm | tail -1", "33554432", ""},
		{"tmpfs", world.Params{"mounts": []world.Params{{"target": "/t", "mode": "tmpfs", "size_bytes": 1 << 20,
			"no_exec": true, "permissions": "0700"}}},
			"stat -f -c %T /t && stat -c %a /t && cp /bin/true /t && /t/true", "tmpfs\n700\nPermission denied",
			"cannot"},
		{"read-only", world.Params{"read_only": true},
			"touch /tmp/x /var/tmp/x /run/x && cat /run/hutch/policy.txt > /dev/null && touch /etc/x /root/x",
			"Read-only file system", ""},
		{"hosts", world.Params{"hosts": []world.Params{{"name": "db.example", "address": "192.0.2.7"}}},
			"grep db.example /etc/hosts", "192.0.2.7\tdb.example", ""},
		{"capabilities", world.Params{"cap_drop": []string{"all"}},
			"grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | sort -u -k2 | wc -l; touch /tmp/x; chmod 0 /tmp/x; cat /tmp/x", "1\nPermission denied", "1"},
		{"one capability", world.Params{"cap_drop": []string{"CAP_DAC_OVERRIDE"}},
			"touch /tmp/y; chmod 0 /tmp/y; cat /tmp/y", "Permission denied", ""},
		// What a sandbox is told about itself is there, and read-only, also where /run is a folder of its own or the
		// host's; other folders may lie in one in memory.
		{"run", world.Params{"mounts": []world.Params{{"target": "/run", "mode": "tmpfs"},
			{"target": "/run/a", "mode": "tmpfs"}}},
			"stat -f -c %T /run/a; touch /run/x && cat /run/hutch/policy.txt && touch /run/hutch/policy.txt",
			"You are in a sandbox\nRead-only file system", "stat"},
	} {
		res := c.Exec(c.SandboxOf(tt.spec), tt.command)
		for line := range strings.Lines(tt.out) {
			if got := res.Stdout + res.Stderr; !strings.Contains(got, strings.TrimSpace(line)) {
				t.Errorf("%s: %q, want %q", tt.name, got, line)
			}
		}
		if res := c.Exec(plain, tt.command); strings.Contains(res.Stdout+res.Stderr, tt.out) ||
			!strings.Contains(res.Stdout+res.Stderr, tt.ordinary) {
			t.Errorf("%s, in a sandbox without: %q", tt.name, res.Stdout+res.Stderr)
		}
	}
	w.OK(t, "run", "--read-only", "-v", run+":/run", "--", "sh", "-c", "touch /run/x && ! touch /etc/x")
	if entries, err := os.ReadDir(run); err != nil || len(entries) > 1 { // x
		t.Errorf("in a folder of the host's at /run: %v, %v", entries, err)
	}
	for field, spec := range map[string]world.Params{
		"mounts[0]":             {"mounts": []world.Params{{"target": "/t", "mode": "tmpfs", "source": "/tmp"}}},
		"mounts[0].permissions": {"mounts": []world.Params{{"target": "/t", "mode": "tmpfs", "permissions": "9"}}},
		"mounts[0].size_bytes":  {"mounts": []world.Params{{"target": "/t", "mode": "tmpfs", "size_bytes": -1}}},
		"mounts[0].target":      {"mounts": []world.Params{{"target": "/proc/t", "mode": "tmpfs"}}},
		"hosts[0].name":         {"hosts": []world.Params{{"name": "localhost", "address": "192.0.2.7"}}},
		"hosts[0].address":      {"hosts": []world.Params{{"name": "x", "address": "192.0.2.7\n127.0.0.1"}}},
		"cap_drop":              {"cap_drop": []string{"NOBODY"}},
		"limits.shm_bytes":      {"limits": world.Params{"shm_bytes": 1 << 60}},
		"undo":                  {"undo": true, "read_only": true},
		"mounts[1].target":      {"mounts": []world.Params{{"target": "/a", "mode": "tmpfs"}, {"mode": "tmpfs"}}},
		"mounts":                {"mounts": slices.Repeat([]world.Params{{"target": "/a", "mode": "tmpfs"}}, 65)},
	} {
		spec["image"] = "host"
		if e := c.Refused("invalid_argument", "sandbox.create", spec); e.Data.Field != field || e.Data.Hint == "" {
			t.Errorf("%v: %+v", spec, e)
		}
	}
	c.Refused("invalid_argument", "sandbox.update",
		world.Params{"sandbox": plain, "limits": world.Params{"shm_bytes": 1 << 20}})
}
