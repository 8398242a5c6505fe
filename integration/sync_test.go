package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestFilesSync: only what differs is copied, whatever it was before, and what is too much goes when asked to.
func TestFilesSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sb := w.create(t, "-w", "/srv", "host")
	dir := w.sub(t, "src")
	for name, text := range map[string]string{"a": "one", "sub/b": "two", "sub/deep/c": "three", "gone": "x", "kind": "file"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), text)
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sync := func(says string, flags ...string) {
		t.Helper()
		w.run(t, append(append([]string{"cp", "--sync"}, flags...), dir, sb+":copy/of")...).want(t, 0).says(t, says)
	}
	shows := func(want string) {
		t.Helper()
		if got := w.ok(t, "exec", sb, "sh", "-c", "cd copy/of; find . -type f -o -type l | sort | while read f; do echo $f $(cat $f); done"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	sync("0 the same, 8 to copy, 0 removed")
	shows("./a one\n./gone x\n./kind file\n./link one\n./sub/b two\n./sub/deep/c three\n")
	sync("8 the same, 0 to copy, 0 removed")

	// Changed here with the same size, changed there, removed here, another kind, and what is only there.
	write(t, filepath.Join(dir, "a"), "ONE")
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "kind")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "kind"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "kind/f"), "in")
	w.ok(t, "exec", sb, "sh", "-euc", "cd copy/of; echo theirs >sub/b; rm link; mkdir link; echo x >link/x; mkdir own; echo y >own/y; ln -s /etc sub/etc")
	sync("5 to copy, 2 removed")
	shows("./a ONE\n./gone x\n./kind/f in\n./link ONE\n./own/y y\n./sub/b two\n./sub/deep/c three\n./sub/etc\n")
	sync("3 removed", "--delete")
	shows("./a ONE\n./kind/f in\n./link ONE\n./sub/b two\n./sub/deep/c three\n")
	w.ok(t, "exec", sb, "test", "-e", "/etc/passwd")
	sync("0 to copy, 0 removed", "--delete")

	w.run(t, "cp", "--sync", filepath.Join(dir, "a"), sb+":x").want(t, 125).says(t, "no folder")
	w.run(t, "cp", "--delete", dir, sb+":x").want(t, 125).says(t, "--sync")
	w.run(t, "cp", "--sync", sb+":copy", dir).want(t, 125).says(t, "into a sandbox")
}

// TestUploads: files given at creation are there at once, and a creation that can not have them leaves nothing.
func TestUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
	spec := api.Spec{Image: "host", Workdir: "/srv", Scope: &api.Scope{Kind: api.ScopeSession, Key: "u"}, Uploads: []api.Upload{
		{Name: "data.csv", Data: "a,b\n"}, {Name: "sub/run.sh", Data: "ZWNobyByYW4K", Encoding: api.Base64, Mode: "0755"},
	}}
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: spec}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.ok(t, "exec", sb.ID, "sh", "-c", "cat user-uploads/data.csv; ./user-uploads/sub/run.sh"); got != "a,b\nran\n" {
		t.Errorf("%q", got)
	}
	spec.Uploads = []api.Upload{{Name: "later", Data: "x"}}
	if again, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: spec}, nil, nil); err != nil || again.ID != sb.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if got := w.ok(t, "exec", sb.ID, "ls", "user-uploads"); got != "data.csv\nlater\nsub\n" {
		t.Errorf("%q", got)
	}
	before := w.ok(t, "ps", "-aq")
	bad := api.Spec{Image: "host", Workdir: "/proc", Uploads: []api.Upload{{Name: "x", Data: "x"}}}
	if _, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: bad}, nil, nil); err == nil || !strings.Contains(err.Error(), "user-uploads") {
		t.Errorf("%v", err)
	}
	if after := w.ok(t, "ps", "-aq"); after != before {
		t.Errorf("left:\n%s", after)
	}
}
