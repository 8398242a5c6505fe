package state_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestSnapshotDiff: what is other than in a snapshot is listed, of the root and of folders in mode overlay, with names
// of any kind; and the same between two snapshots, also when their sandbox is stopped or gone.
func TestSnapshotDiff(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "file"), "mine\n")
	world.Write(t, filepath.Join(dir, "other"), "mine\n")
	origin := w.Create(t, "host")
	w.OK(t, "exec", origin, "sh", "-euc", "mkdir -p /d/low; echo low >/d/low/f; echo low >/d/low/g")
	w.OK(t, "snapshot", "create", "--name", "origin", origin)
	// A fork has layers between its own files and the image.
	if _, err := c.Fork(t.Context(), api.ForkParams{Sandbox: origin, Name: "plainfork"}); err != nil {
		t.Fatal(err)
	}
	w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	fill := `mkdir -p /d/sub/deep; echo one >/d/mod; echo x >/d/mode; echo x >/d/gone; echo x >/d/kind; ln -s a /d/link; echo 1 >/d/sub/deep/f; echo same >/d/same; echo w >>/workspace/file`
	change := `cd /d; echo two >mod; chmod 700 mode; rm gone; rm kind; mkdir kind; echo in >kind/f; ln -sfn b link; rm -r sub; echo new >"$(printf 'new\n\033[31m\377')"
touch same; cp same s2; mv s2 same; rm /etc/hosts 2>/dev/null || :; echo w >/workspace/new; rm /workspace/other; mkdir /opaque; rm -rf low; mkdir -p low; echo g >low/g; mkfifo pipe; ln -s /etc/shadow shadow`
	w.OK(t, "exec", "box", "sh", "-euc", fill)
	w.OK(t, "snapshot", "create", "--name", "before", "box")
	if got := w.OK(t, "snapshot", "diff", "before"); got != "" {
		t.Errorf("nothing has changed: %s", got)
	}
	w.OK(t, "exec", "box", "sh", "-euc", change)
	const want = "A /d/kind/f\nA /d/low/\nA /d/low/g\nA /d/pipe\nA /d/shadow\nA /opaque/\nA /workspace/new\nD /d/gone\nD /d/sub/\nD /d/sub/deep/\nD /d/sub/deep/f\n" +
		"D /workspace/other\nM /d/link\nM /d/mod\nP /d/mode\nT /d/kind/"
	check := func(out string) {
		t.Helper()
		var odd, rest []string
		for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
			switch {
			case strings.HasPrefix(line, `A "/d/new\n\x1b[31m`):
				odd = append(odd, line)
			case !strings.Contains(line, " /etc/") && !strings.HasPrefix(line, "D /tmp") &&
				!strings.HasPrefix(line, "P /d/"+"\n"):
				rest = append(rest, line)
			}
		}
		slices.Sort(rest)
		if got := strings.Join(rest, "\n"); got != want || len(odd) != 1 {
			t.Errorf("%s\n%q\nwant\n%s", got, odd, want)
		}
	}
	check(w.OK(t, "snapshot", "diff", "before"))
	text := w.OK(t, "snapshot", "diff", "--unified", "before")
	for _, part := range []string{"--- a/d/mod\n+++ b/d/mod\n@@ -1 +1 @@\n-one\n+two\n",
		"deleted file mode 100644\n--- a/d/gone\n", "old mode 100644\nnew mode 100755\n", "+++ b/workspace/new\n",
		"new file mode 120000\n--- /dev/null\n+++ b/d/shadow\n@@ -0,0 +1 @@\n+/etc/shadow\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	w.OK(t, "snapshot", "create", "--name", "after", "box")
	check(w.OK(t, "snapshot", "diff", "before", "after"))
	if got := w.OK(t, "snapshot", "diff", "after", "before"); !strings.Contains(got, "A /d/gone\n") ||
		!strings.Contains(got, "D /d/pipe\n") {
		t.Error(got)
	}

	t.Run("pages", func(t *testing.T) {
		w.OK(t, "exec", "box", "sh", "-euc", "mkdir /many; cd /many; for i in $(seq 100 349); do : >$i; done")
		var names []string
		for p := (api.SnapshotDiffParams{Snapshot: "after", Limit: 100}); ; {
			d, err := c.DiffSnapshot(t.Context(), p)
			if err != nil || len(d.Changes) > 100 {
				t.Fatalf("%d changes, %v", len(d.Changes), err)
			}
			for _, x := range d.Changes {
				names = append(names, x.Path)
			}
			if p.Offset = d.NextOffset; p.Offset == 0 {
				break
			}
		}
		if len(names) != 251 || names[0] != "/many" || names[1] != "/many/100" || names[250] != "/many/349" {
			t.Errorf("%d names", len(names))
		}
	})
	t.Run("fork", func(t *testing.T) {
		w.OK(t, "snapshot", "create", "--name", "forked", "plainfork")
		w.OK(t, "exec", "plainfork", "sh", "-euc", "rm -r /d/low; mkdir /d/low; echo f >/d/low/f; chmod 755 /d/low")
		if got := w.OK(t, "snapshot", "diff", "forked"); got != "M /d/low/f\nD /d/low/g\n" {
			t.Errorf("%q", got)
		}
		w.Run(t, "snapshot", "diff", "forked", "before").Want(t, 125).Says(t, "hutch snapshot ls")
	})
	t.Run("stopped", func(t *testing.T) {
		w.OK(t, "stop", "-t", "0", "box")
		r := w.Run(t, "snapshot", "diff", "before").Want(t, 0)
		r.Says(t, "not looked at: /workspace")
		if !strings.Contains(r.Stdout, "M /d/mod\n") || strings.Contains(r.Stdout, "/workspace") {
			t.Errorf("%+v", r)
		}
		w.OK(t, "rm", "-f", "box")
		w.Run(t, "snapshot", "diff", "before").Want(t, 125).Says(t, "is gone")
		if got := w.OK(t, "snapshot", "diff", "before", "after"); !strings.Contains(got, "M /d/mod\n") {
			t.Error(got)
		}
	})
	for field, p := range map[string]api.SnapshotDiffParams{
		"snapshot": {Snapshot: "none"}, "to": {Snapshot: "before", To: "none"},
		"offset":    {Snapshot: "before", Offset: -1},
		"limit":     {Snapshot: "before", Limit: api.MaxSnapshotChanges + 1},
		"max_bytes": {Snapshot: "before", MaxBytes: -1},
	} {
		_, err := c.DiffSnapshot(t.Context(), p)
		var e *api.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, fmt.Sprint(err))
		}
	}
}
