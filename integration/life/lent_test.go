package life_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestLent: nobody has to name the folders of a sandbox a second time. Root's daemon cannot open them: the command line
// does, by its own note and nobody else's word, and only where the same folders are still there.
func TestLent(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	dir, data := w.Sub(t, "project"), w.Sub(t, "data")
	id := w.Create(t, "--name", "box", "--workspace", dir+":overlay", "-v", data+":/data:rw", "host")
	again := func(ref string) {
		t.Helper()
		if got := w.OK(t, "exec", ref, "sh", "-c", "cat /data/x; ls"); got != "x\na\n" {
			t.Errorf("%s has %q", ref, got)
		}
	}
	w.OK(t, "exec", "box", "sh", "-c", "echo x >/data/x; touch a")
	for _, ref := range []string{"box", id} {
		w.OK(t, "stop", "-t", "0", ref)
		w.OK(t, "start", ref)
		again(ref)
	}
	snapshot := w.OK(t, "snapshot", "create", "--name", "snap", "box")
	for _, ref := range []string{"snap", strings.TrimSpace(snapshot)} {
		w.OK(t, "exec", "box", "rm", "a")
		w.OK(t, "snapshot", "restore", ref)
		again("box")
	}
	fork := strings.TrimSpace(w.OK(t, "fork", "--name", "other", "box"))
	w.OK(t, "stop", "-t", "0", fork)
	w.OK(t, "start", "other")
	again(fork)
	w.OK(t, "workspace", "apply", "box")
	if _, err := os.Stat(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	t.Run("another folder", func(t *testing.T) {
		w.OK(t, "stop", "-t", "0", "box")
		if err := os.Rename(data, data+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(w.Sub(t, "secret"), data); err != nil {
			t.Fatal(err)
		}
		w.Run(t, "start", "box").Want(t, 125).Says(t, "is another folder than the one that", "put the old one back")
		if err := os.Remove(data); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(data+".old", data); err != nil {
			t.Fatal(err)
		}
		w.OK(t, "start", "box")
		again("box")
	})
	w.OK(t, "rm", "-f", "box", "other")
	if notes, err := filepath.Glob(filepath.Join(w.Root(), "lent", "*")); err != nil || len(notes) > 0 {
		t.Errorf("notes of removed sandboxes: %q, %v", notes, err)
	}
}

// TestLentStale: a note is of one sandbox. A new one of the same name has what it was made with, and a snapshot's name
// is no sandbox's.
func TestLentStale(t *testing.T) {
	testenv.Root(t) // nobody else needs notes
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	old := w.Create(t, "--name", "box", "--workspace", dir+":ro", "host")
	w.OK(t, "snapshot", "create", "--name", "other", "box")
	w.Run(t, "workspace", "apply", "box").Want(t, 125) // not what was lent, and never for writing
	w.OK(t, "rpc", "sandbox.remove", `{"sandbox":"`+old+`"}`)
	w.Create(t, "--name", "box", "host")
	w.OK(t, "stop", "-t", "0", "box")
	w.OK(t, "start", "box")
	w.Create(t, "--name", "other", "host")
	w.OK(t, "stop", "-t", "0", "other")
	w.OK(t, "start", "other")
	w.OK(t, "rm", "-f", "box", "other")
	if notes, err := filepath.Glob(filepath.Join(w.Root(), "lent", "*")); err != nil || len(notes) > 0 {
		t.Errorf("notes of removed sandboxes: %q, %v", notes, err)
	}
}
