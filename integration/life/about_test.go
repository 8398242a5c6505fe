package life_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestAbout: a sandbox is told what it may do, also when that changes and when the daemon was
// killed in between; it cannot change what it is told, and learns nothing of the host.
func TestAbout(t *testing.T) {
	w := world.New(t)
	folder := w.Sub(t, "project")
	sb := w.Create(t, "--workspace", folder+":ro", "--allow", "a.test", "--disk", "77m", "host")
	about := func() api.About {
		t.Helper()
		return world.Decode[api.About](t, w.OK(t, "exec", sb, "--", "cat", "/run/hutch/policy.json"))
	}
	a := about()
	if a.Version != 1 || a.Sandbox != sb || a.Network.Mode != api.NetAllow ||
		fmt.Sprint(a.Network.Allow) != "[a.test]" ||
		len(a.Folders) != 1 || a.Folders[0].Path != "/workspace" || a.Folders[0].Mode != api.ModeRO ||
		a.Folders[0].Guarded != nil || a.Limits.DiskBytes != 77<<20 {
		t.Errorf("%+v", a)
	}
	if text := w.OK(t, "exec", sb, "--", "cat", "/run/hutch/policy.txt"); text != a.Text+"\n" ||
		!strings.Contains(text, "Allowed: a.test.") ||
		!strings.Contains(text, "/workspace is a folder of the user's, which you can only read.") {
		t.Errorf("the text: %q", text)
	}
	for _, command := range []string{"echo x >/run/hutch/policy.txt", "rm /run/hutch/policy.json",
		"mv /run/hutch/policy.json /run/hutch/x", "chmod 777 /run/hutch"} {
		if r := w.Run(t, "exec", sb, "--", "sh", "-c", command); r.Code == 0 ||
			!strings.Contains(r.Stderr, "Read-only file system") {
			t.Errorf("%s: exit %d: %s", command, r.Code, r.Stderr)
		}
	}
	w.OK(t, "exec", sb, "--", "sh", "-c", "echo x >/run/beside") // the twin

	w.OK(t, "network", "update", "--allow", "b.test", sb)
	if a := about(); !strings.Contains(a.Text, "b.test") {
		t.Errorf("after an update: %s", a.Text)
	}
	world.Kill(t, w.Daemon(t).Hutchd)
	names := []string{"--allow", "c.test"}
	for i := range 1000 {
		names = append(names, "--allow", fmt.Sprintf("%d.many.test", i))
	}
	w.OK(t, append(append([]string{"network", "update"}, names...), sb)...)
	if a := about(); len(a.Network.Allow) < 1001 || !strings.Contains(a.Text, "entries, which policy.json lists") {
		t.Errorf("after the daemon's death: %d entries, %s", len(a.Network.Allow), a.Text)
	}
	if text := w.OK(t, "exec", sb, "--", "sh", "-c",
		"cat /run/hutch/*; grep /run/hutch /proc/self/mountinfo"); strings.Contains(text, w.Dir) ||
		strings.Contains(text, folder) {
		t.Errorf("the host's path shows: %s", text)
	}

	// Whatever is mounted at /run, nothing is made in a folder of the caller's.
	run := w.Sub(t, "mine")
	w.OK(t, "run", "-v", run+":/run", "host", "--", "true")
	if list, err := os.ReadDir(run); err != nil || len(list) != 0 {
		t.Errorf("in the caller's folder: %v, %v", list, err)
	}
	if r := w.Run(t, "run", "-v", run+":/run/hutch", "host", "--", "true"); r.Code != 125 ||
		!strings.Contains(r.Stderr, "hutch's own") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}
