package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestDiffShown: on a terminal a diff has colours, what a terminal obeys is shown by its name, and what is longer than
// the screen goes to a pager. Elsewhere it is as git writes it.
func TestDiffShown(t *testing.T) {
	t.Parallel()
	paged := filepath.Join(t.TempDir(), "paged")
	w := world.New(t, "HUTCH_PAGER=tee "+paged, "TERM=xterm", "NO_COLOR=")
	dir := w.Sub(t, "work")
	world.Write(t, filepath.Join(dir, "file"), "one\ntwo\n")
	w.Create(t, "--name", "box", "--workspace", dir+":overlay", "host")
	w.OK(t, "exec", "box", "sh", "-c", `printf 'one\n\033[2Jthree\n' >file; chmod +x file; printf 'a\0b' >bin`)
	if got := w.OK(t, "workspace", "diff", "box"); !strings.Contains(got, "\n+\x1b[2Jthree\n") ||
		!strings.Contains(got, "\nnew mode 100755\n") {
		t.Errorf("in a pipe: %q", got)
	}
	if got := w.OK(t, "workspace", "diff", "--stat", "box"); !strings.Contains(got,
		"2 files changed, 1 line added, 1 line removed\n") ||
		!strings.Contains(got, "mode 100755") || !strings.Contains(got, "Bin") {
		t.Errorf("stat: %q", got)
	}
	p, cmd := w.Terminal(t, "workspace", "diff", "box")
	p.Sees("\x1b[31m-two\x1b[0m")
	p.Sees("\x1b[32m+^[[2Jthree\x1b[0m")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(paged); err == nil {
		t.Error("a short diff goes to a pager")
	}
	w.OK(t, "exec", "box", "sh", "-c", "seq 100 >long")
	p, cmd = w.Terminal(t, "workspace", "diff", "box")
	p.Sees("\x1b[32m+100\x1b[0m")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := world.Read(t, paged); !strings.Contains(got, "+^[[2Jthree") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("the pager got %q", got)
	}
	w.OK(t, "rm", "-f", "box")
}
