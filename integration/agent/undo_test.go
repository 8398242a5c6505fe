package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestUndoMCP: what a model's calls have done is taken back while its session goes on, whose sandbox it stays.
func TestUndoMCP(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "project")
	world.Write(t, filepath.Join(dir, "main.txt"), "one\n")
	m := dialMCP(t, w, "--undo", "--workspace", dir+":overlay", "host")
	if text := m.InitializeResult().Instructions; !strings.Contains(text, "take back") {
		t.Errorf("%q", text)
	}
	m.call(t, api.ToolNameWriteFile, false, world.Args{"path": "main.txt", "content": "two\n"})
	text := m.call(t, api.ToolNameRunCommand, false, world.Args{"command": "rm main.txt"})
	id := strings.TrimSpace(w.OK(t, "ps", "-q"))
	calls := strings.Fields(w.OK(t, "undo", "ls", "-q", id))
	if len(calls) != 2 || !strings.Contains(text, calls[1]) {
		t.Errorf("%v, %q", calls, text)
	}
	if got := strings.TrimSpace(w.OK(t, "undo", id)); got != calls[1] {
		t.Errorf("%q", got)
	}
	if got := m.call(t, api.ToolNameReadFile, false, world.Args{"path": "main.txt"}); !strings.Contains(got, "two") {
		t.Errorf("%q", got)
	}
	m.call(t, "sandbox_run_code", false, world.Args{"language": "shell", "code": "echo x >code"})
	w.OK(t, "undo", id)
	if got := m.call(t, api.ToolNameListDirectory, false, world.Args{}); strings.Contains(got, "code") {
		t.Errorf("%q", got)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	w.AwaitNoSandbox(t)
	if _, err := os.Stat(filepath.Join(dir, "code")); err == nil {
		t.Error("the folder was changed")
	}
	w.ShelfEmpty(t)
}
