package launch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// ready is a generic sandbox, set up: PID 1 is hutch-init by then.
type ready struct {
	*launchapi.Created
	guest *guestapi.Client
}

// generic makes a sandbox that waits for a claim, from an empty image.
func (d *hutchd) generic(t testing.TB, id string) ready {
	t.Helper()
	netns := newNetns(t)
	defer netns.Close()
	req := d.request(t, id)
	req.Generic = true
	base := filepath.Join(d.folders(id).dir, "base")
	for _, dir := range []string{"lower", "upper", "work"} {
		must(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	req.Overlay.Dir, req.Overlay.Lower = base, []string{"lower"}
	req.Overlay.Upper, req.Overlay.Work = filepath.Join(base, "upper"), filepath.Join(base, "work")
	sb, err := d.client.Create(context.Background(), id, req, netns)
	must(t, err)
	t.Cleanup(func() { sb.Close() })
	fmt.Fprintf(os.Stderr, "%s%d\n", reportPID, sb.PID)
	w := ready{sb, setUp(t, sb.Guest, sb.Filter)}
	t.Cleanup(func() { _ = w.guest.Close() })
	return w
}

// claimOf is what gives id the root that create gives.
func (d *hutchd) claimOf(t testing.TB, id string) launchapi.Claim {
	t.Helper()
	upper := d.folders(id).upper
	for _, dir := range []string{"proc", "dev", "tmp"} {
		must(t, os.MkdirAll(filepath.Join(upper, dir), 0o755))
	}
	return launchapi.Claim{Overlay: d.request(t, id).Overlay, Hostname: id}
}

// share makes a folder of hutchd's with one file, as a mount of its own.
func (d *hutchd) share(t testing.TB, id, name string) string {
	t.Helper()
	at := filepath.Join(d.folders(id).dir, name)
	must(t, os.MkdirAll(at, 0o755))
	must(t, unix.Mount("share", at, "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(at, "file"), []byte(name), 0o644))
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// lines is a file of /proc without what differs from mount to mount: ids, numbers of devices
// and fds; sorted by mount point.
func mountsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	found := map[string]string{}
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/mountinfo", pid))) {
		f := strings.Fields(line)
		if _, twice := found[f[4]]; twice {
			t.Errorf("two mounts at %s", f[4])
		}
		super := f[len(f)-1]
		if strings.Contains(super, "lowerdir") {
			super = "overlay"
		}
		found[f[4]] = strings.Join(append([]string{f[3], f[5]}, append(f[6:len(f)-1], super)...), " ")
	}
	return found
}

// insideClaim claims a generic sandbox and compares it with one that was launched.
func insideClaim(t *testing.T, d *hutchd) {
	direct := d.create(t, "sb_direct")
	claimed := d.generic(t, "sb_claimed")
	claim := d.claimOf(t, "sb_claimed")
	must(t, d.client.Claim(context.Background(), "sb_claimed", claim))

	want, got := mountsOf(t, direct.PID), mountsOf(t, claimed.PID)
	for at, line := range want {
		if got[at] != line {
			t.Errorf("mount %s: %q, launched directly it is %q", at, got[at], line)
		}
		delete(got, at)
	}
	for at, line := range got {
		t.Errorf("mount %s is too much: %q", at, line)
	}
	for _, link := range []string{"root", "cwd"} {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", claimed.PID, link))
		must(t, err)
		for _, task := range tasks {
			if _, err := os.Stat(task + "/layer"); err != nil {
				t.Errorf("%s is not the new root: %v", task, err)
			}
		}
	}
	checkStatus(t, direct.PID, claimed.PID)
	const look = "cat /layer; busybox hostname; busybox ls / /proc/1 /dev; busybox ls /.claim; busybox head -c1 /proc/kcore; " +
		"echo x >/proc/sysrq-trigger; busybox umount /proc; busybox mount -o remount,rw /; busybox mount -t tmpfs x /tmp; id"
	outside := strings.ReplaceAll(d.sh(t, direct.Guest, direct.Filter, look), "sb_direct", "ID")
	if inside := strings.ReplaceAll(run(t, claimed.guest, look), "sb_claimed", "ID"); inside != outside ||
		!strings.HasPrefix(inside, "topID\n") {
		t.Errorf("a command sees\n%s\nlaunched directly\n%s", inside, outside)
	}
	checkInit(t, fmt.Sprintf("/proc/%d/", claimed.PID))
	if err := d.client.Claim(context.Background(), "sb_claimed", claim); api.ErrorCode(err) != api.NotFound {
		t.Errorf("a second claim: %v, want not_found", err)
	}
	if err := d.client.Claim(context.Background(), "sb_direct", claim); api.ErrorCode(err) != api.NotFound {
		t.Errorf("claim of a sandbox that is no generic one: %v, want not_found", err)
	}
	d.destroy(t, "sb_claimed")
	d.destroy(t, "sb_direct")
}

// checkStatus compares what /proc says of two PID 1s.
func checkStatus(t *testing.T, direct, claimed int) {
	t.Helper()
	// A claim waits for its PID 1; one that was launched a moment ago, and that nobody has asked anything yet, may just
	// be beginning.
	testenv.Poll(t, 20*time.Second, "PID 1 has not begun", func() bool {
		return readFile(t, fmt.Sprintf("/proc/%d/comm", direct)) == readFile(t,
			fmt.Sprintf("/proc/%d/comm", claimed)) &&
			statusOf(t, direct) == statusOf(t, claimed)
	})
	for _, file := range []string{"uid_map", "gid_map", "setgroups", "limits", "oom_score_adj", "comm"} {
		want, got := readFile(t, fmt.Sprintf("/proc/%d/%s", direct, file)),
			readFile(t, fmt.Sprintf("/proc/%d/%s", claimed, file))
		if want != got {
			t.Errorf("%s: %q, launched directly it is %q", file, got, want)
		}
	}
	if want, got := statusOf(t, direct), statusOf(t, claimed); want != got {
		t.Errorf("status of PID 1:\n%s\nlaunched directly\n%s", got, want)
	}
}

// statusOf is what does not change of the status of PID 1. What signals are blocked and wait is of the moment: Go
// blocks all while it forks.
func statusOf(t *testing.T, pid int) string {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/status", pid))) {
		for _, field := range []string{"Umask", "Uid", "Gid", "FDSize", "Groups", "Cap", "NoNewPrivs", "Seccomp",
			"SigIgn", "SigCgt", "Speculation", "x86", "Cpus", "Mems"} {
			if strings.HasPrefix(line, field) {
				kept.WriteString(line)
			}
		}
	}
	return kept.String()
}

// insideClaimBinds checks the binds of a claim: what they show, and that what is locked stays so.
func insideClaimBinds(t *testing.T, d *hutchd) {
	const id = "sb_binds"
	sb := d.generic(t, id)
	claim := d.claimOf(t, id)
	claim.Binds = []launchapi.ClaimBind{
		{Source: d.share(t, id, "rw"), Target: "/workspace"},
		{Source: d.share(t, id, "ro"), Target: "/workspace/deep/er", ReadOnly: true},
		{Source: filepath.Join(d.share(t, id, "one"), "file"), Target: "/new/file", ReadOnly: true},
	}
	must(t, d.client.Claim(context.Background(), id, claim))
	mounts := mountsOf(t, sb.PID)
	for at, want := range map[string]string{"/workspace": "rw,nosuid,nodev", "/workspace/deep/er": "ro,nosuid,nodev",
		"/new/file": "ro,nosuid,nodev"} {
		if !strings.HasPrefix(strings.SplitN(mounts[at]+" ", " ", 2)[1], want) ||
			strings.Contains(mounts[at], "master:") || strings.Contains(mounts[at], "shared:") {
			t.Errorf("%s is mounted %q, want it %s and private", at, mounts[at], want)
		}
	}
	got := run(t, sb.guest,
		"cat /workspace/file /workspace/deep/er/file /new/file; echo x >/workspace/new && echo written; echo x >/workspace/deep/er/new")
	if !strings.HasPrefix(got, "rwroonewritten\n") || !strings.Contains(got, "Read-only file system") {
		t.Errorf("a command printed %q", got)
	}
	for _, name := range []string{"rw", "ro", "one"} {
		must(t, unix.Unmount(filepath.Join(d.folders(id).dir, name), unix.MNT_DETACH))
	}
	d.destroy(t, id)
}

// insideClaimHostile claims with images that are made to confuse.
func insideClaimHostile(t *testing.T, d *hutchd) {
	layer := func(name string, links map[string]string, files ...string) string {
		dir := filepath.Join(d.world.Mount, "layers", name)
		must(t, os.MkdirAll(dir, 0o755))
		for at, to := range links {
			must(t, os.Symlink(to, filepath.Join(dir, at)))
		}
		for _, f := range files {
			must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o644))
		}
		return name
	}
	for i, tt := range []struct {
		name, layer string
		workspace   string // where it is to be found; "" when the claim is refused
	}{
		{"links for folders of ours", layer("links", map[string]string{"proc": "etc", "dev": "../../tmp"}),
			"/workspace"},
		{"links into each other", layer("circle", map[string]string{"proc": "dev", "dev": "proc"}), "/workspace"},
		{"files for folders of ours", layer("files", nil, "proc", "dev"), "/workspace"},
		{"workspace is a link inside", layer("inside", map[string]string{"workspace": "etc"}), "/etc"},
		{"workspace is a link out", layer("out", map[string]string{"workspace": "../../../../etc"}), "/etc"},
		{"workspace is a link to nothing", layer("dangling", map[string]string{"workspace": "/nowhere"}), ""},
		{"workspace is a link into proc", layer("toproc", map[string]string{"workspace": "proc/self"}), ""},
		{"workspace is a magic link", layer("magic", map[string]string{"workspace": "proc/1/root/etc"}), ""},
		{"workspace is a link into dev", layer("todev", map[string]string{"workspace": "dev/shm"}), ""},
		{"workspace is a link to dev", layer("dev", map[string]string{"workspace": "dev"}), ""},
		{"workspace is a loop", layer("loop", map[string]string{"workspace": "workspace"}), ""},
		{"workspace is a file", layer("file", nil, "workspace"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprintf("sb_hostile%d", i)
			sb := d.generic(t, id)
			claim := d.claimOf(t, id)
			claim.Overlay.Lower = append([]string{tt.layer}, claim.Overlay.Lower...)
			claim.Binds = []launchapi.ClaimBind{{Source: d.share(t, id, "ws"), Target: "/workspace"}}
			err := d.client.Claim(context.Background(), id, claim)
			if tt.workspace == "" {
				if err == nil {
					t.Fatalf("claimed:\n%v", mountsOf(t, sb.PID))
				}
				_ = unix.Unmount(claim.Binds[0].Source, unix.MNT_DETACH)
				d.checkGone(t, id)
				d.checkNoChildren(t)
				return
			}
			must(t, err)
			mounts := mountsOf(t, sb.PID)
			for at, fs := range map[string]string{"/proc": "proc", "/dev": "tmpfs", tt.workspace: "tmpfs",
				"/": "overlay"} {
				if !strings.Contains(mounts[at], " "+fs+" ") {
					t.Errorf("%s is %q, want %s", at, mounts[at], fs)
				}
			}
			if got := run(t, sb.guest, "cat "+tt.workspace+
				"/file; echo $$ >/dev/null && cat /proc/self/comm"); got != "wscat\n" {
				t.Errorf("a command printed %q", got)
			}
			_ = unix.Unmount(claim.Binds[0].Source, unix.MNT_DETACH)
			d.destroy(t, id)
		})
	}
}

// insideClaimFails fails claims at each step: nothing of the sandbox is left.
func insideClaimFails(t *testing.T, d *hutchd) {
	for i, tt := range []struct {
		name, text string
		change     func(c *launchapi.Claim, sb ready)
	}{
		{"no layer", "lowerdir", func(c *launchapi.Claim, _ ready) { c.Overlay.Lower = []string{"absent"} }},
		{"no host name", "cannot be a name", func(c *launchapi.Claim, _ ready) { c.Hostname = "" }},
		{"relative source", "not absolute", func(c *launchapi.Claim, _ ready) {
			c.Binds = []launchapi.ClaimBind{{Source: "etc", Target: "/workspace"}}
		}},
		{"no source", "clone a mount", func(c *launchapi.Claim, _ ready) {
			c.Binds = []launchapi.ClaimBind{{Source: "/nonexistent", Target: "/workspace"}}
		}},
		{"PID 1 is dead", "join the user namespace", func(_ *launchapi.Claim, sb ready) {
			must(t, unix.Kill(sb.PID, unix.SIGKILL))
			<-d.exitOf("sb_fails4")
		}},
		{"no folder for a move", "move a mount: no such file", func(c *launchapi.Claim, _ ready) {
			must(t, os.Remove(filepath.Join(c.Overlay.Upper, "proc")))
			c.Overlay.Lower = []string{"top"}
		}},
		{"target is the root", "bind: invalid", func(c *launchapi.Claim, _ ready) {
			c.Binds = []launchapi.ClaimBind{{Source: "/", Target: "/"}}
		}},
		{"host name that is too long", "sethostname: invalid",
			func(c *launchapi.Claim, _ ready) { c.Hostname = strings.Repeat("x", 65) }},
		{"names that are too long", "use shorter names",
			func(c *launchapi.Claim, _ ready) { c.Hostname = strings.Repeat("x", 61<<10) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprintf("sb_fails%d", i)
			sb := d.generic(t, id)
			claim := d.claimOf(t, id)
			tt.change(&claim, sb)
			err := d.client.Claim(context.Background(), id, claim)
			var typed *api.Error
			if err == nil || !errors.As(err, &typed) || !strings.Contains(err.Error()+typed.Hint, tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
			d.checkGone(t, id)
			d.checkNoChildren(t)
		})
	}
}

// insideClaimFaults runs in a launcher that fails one step of every claim.
func insideClaimFaults(t *testing.T, d *hutchd) {
	d.generic(t, "sb_fault")
	err := d.client.Claim(context.Background(), "sb_fault", d.claimOf(t, "sb_fault"))
	if err == nil || !strings.Contains(err.Error(), "fault injected") {
		t.Errorf("got %v, want the injected fault", err)
	}
	d.checkGone(t, "sb_fault")
	d.checkNoChildren(t)
}

// insideClaimWaits leaves a generic sandbox behind.
func insideClaimWaits(t *testing.T, d *hutchd) { d.generic(t, "sb_waits") }
