package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestApplyInteractive: at a terminal files and parts of files are chosen, and nothing else is applied.
func TestApplyInteractive(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "choose")
	lines := func(first, last string) string { return first + "\n" + strings.Repeat("l\n", 40) + last + "\n" }
	world.Write(t, filepath.Join(dir, "a.txt"), lines("one", "two"))
	world.Write(t, filepath.Join(dir, "b.txt"), "b\n")
	sb := w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", sb, "sh", "-euc",
		"sed -i 's/one/ONE/; s/two/TWO/' a.txt; rm b.txt; mkdir new; echo n >new/n; printf '\\033]0;x\\007\\n' >z; chmod 700 a.txt")

	args := []string{"workspace", "apply", "-i"}
	if os.Getuid() == 0 {
		args = append(args, "--folder", dir)
	}
	p, cmd := w.Terminal(t, append(args, "box")...)
	p.Sees("[1/4] modified a.txt")
	p.Sees("apply it?")
	p.Write("h\n")
	p.Sees("part 1 of 2")
	p.Write("n\n")
	p.Sees("part 2 of 2")
	p.Write("y\n")
	p.Sees("deleted b.txt")
	p.Write("n\n")
	p.Sees("added new/n")
	p.Write("y\n")
	p.Sees("added z")
	p.Write("q\n")
	if code := world.Await(t, cmd); code != 0 {
		t.Errorf("exit code %d: %s", code, p.Rest())
	}
	if strings.Contains(p.Rest(), "\x1b]0;") {
		t.Error("the terminal was given what the sandbox wrote")
	}
	if got, want := world.Read(t, filepath.Join(dir, "a.txt")), lines("one", "TWO"); got != want {
		t.Errorf("a.txt: %q", got)
	}
	if st, err := os.Stat(filepath.Join(dir, "a.txt")); err != nil || st.Mode().Perm() == 0o700 {
		t.Errorf("a part brought the mode: %v, %v", st, err)
	}
	if got := world.Read(t, filepath.Join(dir, "b.txt")) + world.Read(t, filepath.Join(dir, "new/n")); got != "b\nn\n" {
		t.Errorf("b.txt and new/n: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "z")); err == nil {
		t.Error("z was applied")
	}
	// What was left is still there to be applied, and what the part changed in the folder is nobody else's change.
	world.Apply(t, w, dir, 0, "box")
	if got, want := world.Read(t, filepath.Join(dir, "a.txt")), lines("ONE", "TWO"); got != want {
		t.Errorf("a.txt in the end: %q", got)
	}
	w.Run(t, "workspace", "apply", "-i", "box").Want(t, 125).Says(t, "-i asks at a terminal")
	c := w.Connect(t)
	w.OK(t, "exec", sb, "sh", "-euc", "sed -i s/ONE/1/ a.txt")
	for _, p := range []api.WorkspaceApplyParams{
		{Hunks: map[string][]int{"new/n": {1}}}, {Hunks: map[string][]int{"a.txt": nil}},
		{Hunks: map[string][]int{"../a.txt": {1}}},
	} {
		p.Sandbox = sb
		if _, err := c.ApplyWorkspace(t.Context(), p); api.ErrorCode(err) != api.InvalidArgument {
			t.Errorf("%+v: %v", p.Hunks, err)
		}
	}
}
