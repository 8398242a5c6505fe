package isolation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/images/imagetest"
	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/runtime/api"
)

// usrCases are what programs do to /usr of the image host when it can be written to, and
// what of it works.
var usrCases = []struct {
	name, command string
	code          int
	says          string
}{
	{"a new program", `printf '#!/bin/sh\necho mine\n' >/usr/local/bin/prog && chmod +x /usr/local/bin/prog && prog | grep -x mine`, 0, ""},
	{"new folders", "mkdir -p /usr/lib/new/below /usr/new && echo x >/usr/lib/new/below/f && cat /usr/lib/new/below/f",
		0, ""},
	{"removed", "rm /usr/bin/env && test ! -e /usr/bin/env", 0, ""},
	{"replaced", "cp /bin/true /tmp/t && rm /usr/bin/env && mv /tmp/t /usr/bin/env && env --version", 0, ""},
	{"replaced by renaming",
		"printf '#!/bin/sh\nexit 0\n' >/usr/bin/env.new && chmod +x /usr/bin/env.new && mv -f /usr/bin/env.new /usr/bin/env && env false", 0, ""},
	{"a folder removed", "mkdir /usr/d && rmdir /usr/d && rm -r /usr/share/doc && test ! -e /usr/share/doc", 0, ""},
	// A copy of it would belong to the host's root, who has no id here.
	{"in place", "echo x >>/usr/bin/env", 2, "Permission denied"},
	{"no device", "mknod /usr/null c 1 3", 1, ""},
	{"hidden", "test -z \"$(ls -A /usr/local/etc 2>/dev/null)\"", 0, ""},
}

// kernelsOwn are the cases that the kernel decides: of each way one runs in machines of other kernels.
var kernelsOwn = map[string]bool{"removed": true, "replaced by renaming": true, "in place": true, "hidden": true}

// TestWritableUsr: with writable_usr the host's programs can be added to and replaced, the host sees nothing
// of it, and the sandbox's limit holds; without, nothing there can be changed.
func TestWritableUsr(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	before, err := os.Stat("/usr/bin/env")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range usrCases {
		if !kernelsOwn[tt.name] && testenv.InMachine() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			out := w.Run(t, "run", "--writable-usr", "host", "--", "sh", "-c", tt.command)
			if out.Code != tt.code || !strings.Contains(out.Stderr, tt.says) {
				t.Errorf("exit code %d, want %d: %s", out.Code, tt.code, out.Stderr)
			}
		})
	}
	after, err := os.Stat("/usr/bin/env")
	if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() || !before.ModTime().
		Equal(after.ModTime()) {
		t.Errorf("the host's file has changed: %v", err)
	}
	for _, gone := range []string{"/usr/local/bin/prog", "/usr/lib/new", "/usr/new", "/usr/null"} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is there on the host", gone)
		}
	}
	w.Run(t, "run", "host", "--", "touch", "/usr/local/bin/prog").Want(t, 1).Says(t, "Read-only file system")
	if testenv.InMachine() {
		return // the rest no kernel decides
	}
	sb, err := c.CreateSandbox(t.Context(),
		api.CreateParams{Spec: api.Spec{Image: "host", WritableUsr: true,
			Limits: api.Limits{DiskBytes: 16 * world.MiB}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	world.CheckDisk(t, world.Ran(t, c, sb.ID, "head -c 12582912 /dev/zero >/usr/lib/f"), "")
	world.CheckDisk(t, world.Ran(t, c, sb.ID, "dd if=/dev/zero of=/usr/lib/g bs=1M count=1000000"), "disk_bytes")
	if got := w.OK(t, "exec", sb.ID, "--", "cat", "/run/hutch/policy.json"); !strings.Contains(got, `"writable_usr"`) {
		t.Errorf("told: %s", got)
	}
	w.Run(t, "commit", sb.ID, "mine").Want(t, 125).Says(t, "no part of an image")
	w.OK(t, "rm", "-f", sb.ID)
	w.AwaitNoSandbox(t)

	registry := world.Push(t, imagetest.StartRegistry(t), "tiny", world.TinyImage(t))
	w.Run(t, "run", "--writable-usr", registry, "--", "true").Want(t, 125).Says(t, "has a /usr of its own")
}

// TestWritableUsrLife: a sandbox that was launched ahead has one like any other, with mounts below it;
// it is root's there, and it stays when hutchd is killed and goes with the sandbox.
func TestWritableUsrLife(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "given")
	world.Write(t, filepath.Join(dir, "x"), "given\n")
	sb := makeClaimed(t, w, "--writable-usr", "-v", dir+":/usr/local/given:ro", "host").ID
	for command, want := range map[string]string{
		"cat /usr/local/given/x && touch /usr/local/mine":                       "given\n",
		"grep ' /usr ' /proc/self/mountinfo | grep -o 'rw,nosuid,nodev' | uniq": "rw,nosuid,nodev\n",
		"touch /usr/local/given/y 2>&1 | grep -o 'Read-only file system'":       "Read-only file system\n",
	} {
		if res := world.Ran(t, c, sb, command); res.Stdout != want {
			t.Errorf("%s: %q %q, want %q", command, res.Stdout, res.Stderr, want)
		}
	}
	if testenv.CurrentKind() != mustrun.NoSubUID { // there nobody but root exists
		w.Run(t, "exec", "-u", "1000", sb, "--", "touch", "/usr/local/other").Want(t, 1).Says(t, "Permission denied")
	}
	world.KillNow(t, world.Victims[0].PIDs(w.Daemon(t)))
	if got := w.OK(t, "exec", sb, "--", "sh", "-c",
		"ls /usr/local/mine && touch /usr/bin/new && rm /usr/bin/env && test ! -e /usr/bin/env && echo gone"); got != "/usr/local/mine\ngone\n" {
		t.Errorf("with the next hutchd: %q", got)
	}
	// The next one makes a layer of folders of its own.
	if got := w.OK(t, "run", "--writable-usr", "host", "--", "sh", "-c",
		"touch /usr/lib/new && test -e /usr/bin/env && echo whole"); got != "whole\n" {
		t.Errorf("the next sandbox: %q", got)
	}
	w.OK(t, "rm", "-f", sb)
	w.AwaitNoSandbox(t)
}
