package launch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// insideFailing checks that a create that fails says why and leaves nothing, and
// that the same request without the fault succeeds.
func insideFailing(t *testing.T, d *hutchd) {
	config := func(change func(*configs.Config)) func(*testing.T, *launchapi.Create) {
		return func(t *testing.T, c *launchapi.Create) {
			var cfg configs.Config
			err := json.Unmarshal(c.Config, &cfg)
			change(&cfg)
			raw, err2 := json.Marshal(&cfg)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			c.Config = raw
		}
	}
	// mount binds what is at source, in a root with the file /etc/passwd.
	mount := func(source, target string) func(*testing.T, *launchapi.Create) {
		return func(t *testing.T, c *launchapi.Create) {
			etc := filepath.Join(c.Overlay.Upper, "etc")
			must(t, os.MkdirAll(etc, 0o755))
			must(t, os.WriteFile(filepath.Join(etc, "passwd"), nil, 0o644))
			config(func(c *configs.Config) {
				c.Mounts = append(c.Mounts, &configs.Mount{Source: source, Destination: target, Device: "bind",
					Flags: unix.MS_BIND})
			})(t, c)
		}
	}
	tests := []struct {
		name   string
		change func(t *testing.T, c *launchapi.Create)
		code   api.Code
		text   string
	}{
		{"missing layer", func(_ *testing.T, c *launchapi.Create) { c.Overlay.Lower[0] = "absent" },
			api.FailedPrecondition, `lowerdir+="absent": no such file`},
		{"no layer", func(_ *testing.T, c *launchapi.Create) { c.Overlay.Lower = nil }, api.InvalidArgument,
			"no lower folder"},
		{"missing store", func(_ *testing.T, c *launchapi.Create) { c.Overlay.Dir = "/nonexistent" },
			api.FailedPrecondition, "open /nonexistent"},
		{"missing work folder", func(t *testing.T, c *launchapi.Create) { must(t, os.RemoveAll(c.Overlay.Work)) },
			api.FailedPrecondition, "workdir"},
		{"missing target", func(t *testing.T, c *launchapi.Create) { must(t, os.RemoveAll(c.Overlay.Target)) },
			api.FailedPrecondition, "no such file"},
		{"missing pts folder", func(t *testing.T, c *launchapi.Create) { must(t, os.RemoveAll(c.PtsDir)) },
			api.FailedPrecondition, "pts: "},
		{"config is no config", func(_ *testing.T, c *launchapi.Create) { c.Config = json.RawMessage(`{"mounts": 1}`) },
			api.InvalidArgument, "config of the sandbox"},
		{"config with seccomp", config(func(c *configs.Config) { c.Seccomp = &configs.Seccomp{} }), api.InvalidArgument,
			"seccomp section"},
		{"config without no_new_privs", config(func(c *configs.Config) { c.NoNewPrivileges = false }),
			api.InvalidArgument, "no_new_privs"},
		{"config with another root", config(func(c *configs.Config) { c.Rootfs = "/" }), api.InvalidArgument,
			"is not the overlay's target"},
		{"bind of nothing", config(func(c *configs.Config) {
			c.Mounts = append(c.Mounts, &configs.Mount{Source: "/nonexistent", Destination: "/tmp", Device: "bind",
				Flags: unix.MS_BIND})
		}), api.FailedPrecondition, "/nonexistent"},
		{"a folder over a file", mount("/proc", "/etc/passwd"), api.InvalidArgument,
			"mount at /etc/passwd: a folder cannot be mounted over a file"},
		{"a file over a folder", mount("/proc/version", "/etc"), api.InvalidArgument,
			"mount at /etc: a file cannot be mounted over a folder"},
		{"a target below a file", mount("/proc/version", "/etc/passwd/x"), api.InvalidArgument,
			"mount at /etc/passwd/x: a part of this path is a file"},
		{"a target behind links in a circle", func(t *testing.T, c *launchapi.Create) {
			must(t, os.Symlink("loop", filepath.Join(c.Overlay.Upper, "loop")))
			mount("/proc", "/loop/x")(t, c)
		}, api.InvalidArgument, "mount at /loop/x: symbolic links of the image lead there in a circle"},
		{"ids that are not ours", config(func(c *configs.Config) {
			c.UIDMappings = []configs.IDMap{{ContainerID: 0, HostID: 3000000, Size: 1}}
		}), api.Internal, "libcontainer_start"},
		{"wrong cgroup", func(_ *testing.T, c *launchapi.Create) { c.CgroupV2 = "/hutch-test/none" },
			api.FailedPrecondition, `not in "/hutch-test/none"`},
		{"unknown seccomp profile", func(_ *testing.T, c *launchapi.Create) { c.Seccomp = "lax" }, api.InvalidArgument,
			`"lax"`},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprintf("sb_fail%d", i)
			req := d.request(t, id)
			tt.change(t, &req)
			netns := newNetns(t)
			defer netns.Close()
			sb, err := d.client.Create(context.Background(), id, req, netns)
			if err == nil {
				sb.Close()
				t.Fatal("created")
			}
			if api.ErrorCode(err) != tt.code || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %s: %v; want %s with %q", api.ErrorCode(err), err, tt.code, tt.text)
			}
			var typed *api.Error
			if errors.As(err, &typed); typed.Hint == "" && typed.Code != api.InvalidArgument {
				t.Errorf("no hint in %v", err)
			}
			must(t, os.MkdirAll(req.RunDir, 0o700))
			d.checkGone(t, id)
			d.checkNoChildren(t)
			// The allowed twin, under the same id.
			d.create(t, id)
			d.destroy(t, id)
		})
	}
	t.Run("no network namespace", func(t *testing.T) {
		null, err := os.Open(os.DevNull)
		must(t, err)
		defer null.Close()
		if _, err := d.client.Create(context.Background(), "sb_nonet", d.request(t, "sb_nonet"), null); err == nil {
			t.Error("created with /dev/null as network namespace")
		}
		if _, err := d.client.Create(context.Background(), "sb_nonet", launchapi.Create{},
			nil); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("without network namespace: %v", err)
		}
		d.checkGone(t, "sb_nonet")
		d.checkNoChildren(t)
	})
	t.Run("existing id", func(t *testing.T) {
		d.create(t, "sb_twice")
		netns := newNetns(t)
		defer netns.Close()
		if _, err := d.client.Create(context.Background(), "sb_twice", d.request(t, "sb_twice"),
			netns); api.ErrorCode(err) != api.AlreadyExists {
			t.Errorf("got %v, want already_exists", err)
		}
		d.destroy(t, "sb_twice")
	})
	t.Run("absent id", func(t *testing.T) {
		if err := d.client.Kill(context.Background(), "sb_absent"); api.ErrorCode(err) != api.NotFound {
			t.Errorf("kill: %v, want not_found", err)
		}
		if err := d.client.Destroy(context.Background(), "sb_absent"); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	t.Run("right cgroup", func(t *testing.T) {
		req := d.request(t, "sb_cgroup")
		for line := range strings.Lines(readFile(t, "/proc/self/cgroup")) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				req.CgroupV2 = path
			}
		}
		netns := newNetns(t)
		defer netns.Close()
		sb, err := d.client.Create(context.Background(), "sb_cgroup", req, netns)
		must(t, err)
		sb.Close()
		d.destroy(t, "sb_cgroup")
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkNoChildren expects hutch-launch to have no child but us.
func (d *hutchd) checkNoChildren(t testing.TB) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	parent := fmt.Sprint(os.Getppid())
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if fields[1] == parent && filepath.Base(filepath.Dir(path)) != fmt.Sprint(os.Getpid()) {
			t.Errorf("hutch-launch has another child: %s", stat)
		}
	}
}

// insideFaults runs in a launcher that fails one step of every create.
func insideFaults(t *testing.T, d *hutchd) {
	netns := newNetns(t)
	defer netns.Close()
	_, err := d.client.Create(context.Background(), "sb_fault", d.request(t, "sb_fault"), netns)
	if err == nil || !strings.Contains(err.Error(), "fault injected") {
		t.Errorf("got %v, want the injected fault", err)
	}
	d.checkGone(t, "sb_fault")
	d.checkNoChildren(t)
}

// insideParallel makes many sandboxes at once.
func insideParallel(t *testing.T, d *hutchd) {
	const n = 20
	pids := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprintf("sb_%d", i)
			sb := d.create(t, id)
			pids[i] = sb.PID
			if name := readFile(t, fmt.Sprintf("/proc/%d/root/etc/", sb.PID)+"../layer"); name != "top" {
				t.Errorf("%s: /layer holds %q", id, name)
			}
			d.destroy(t, id)
		})
	}
	wg.Wait()
	slices.Sort(pids)
	if len(slices.Compact(pids)) != n {
		t.Errorf("pids are not distinct: %v", pids)
	}
	d.checkNoChildren(t)
	if left := readFile(t, "/proc/self/mountinfo"); strings.Contains(left, "/sandboxes/") {
		t.Errorf("mounts left:\n%s", left)
	}
}

// insideKilled ends PID 1 in two ways and expects the event.
func insideKilled(t *testing.T, d *hutchd) {
	for id, kill := range map[string]func(*launchapi.Created) error{
		"sb_outside": func(sb *launchapi.Created) error { return unix.Kill(sb.PID, unix.SIGKILL) },
		"sb_client":  func(*launchapi.Created) error { return d.client.Kill(context.Background(), "sb_client") },
	} {
		t.Run(id, func(t *testing.T) {
			sb := d.create(t, id)
			must(t, kill(sb))
			if ws := unix.WaitStatus(<-d.exitOf(id)); !ws.Signaled() || ws.Signal() != unix.SIGKILL {
				t.Errorf("wait status %#x, want death by SIGKILL", int(ws))
			}
			// Ending what has ended is no error.
			must(t, d.client.Kill(context.Background(), id))
			d.destroy(t, id)
			must(t, d.client.Destroy(context.Background(), id))
		})
	}
}

// insideCanceled gives up creates before, while and after they are done.
func insideCanceled(t *testing.T, d *hutchd) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			id := fmt.Sprintf("sb_%d", i)
			netns := newNetns(t)
			defer netns.Close()
			sb, err := d.client.Create(canceled, id, d.request(t, id), netns)
			if sb != nil || api.ErrorCode(err) != api.Canceled {
				t.Errorf("%s: got %v, want canceled", id, err)
			}
			d.checkGone(t, id)
			d.create(t, id) // the id is free again
			d.destroy(t, id)
		})
	}
	wg.Wait()
	d.checkNoChildren(t)
}

// insideBadInit runs with a hutch-init that cannot be executed.
func insideBadInit(t *testing.T, d *hutchd) {
	d.create(t, "sb_bad")
	if ws := unix.WaitStatus(<-d.exitOf("sb_bad")); !ws.Exited() || ws.ExitStatus() == 0 {
		t.Errorf("wait status %#x, want a failure", int(ws))
	}
	d.destroy(t, "sb_bad")
}
