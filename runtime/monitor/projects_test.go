package monitor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// TestLimitProjectHostile: whatever a hutchd that was taken over says, it names nothing
// outside of the data folder.
func TestLimitProjectHostile(t *testing.T) {
	testenv.Root(t)
	m := &monitor{opts: Options{Paths: paths.Paths{State: t.TempDir()}}}
	boxes := filepath.Join(m.dataDir(), "daemons/1-2/sandboxes")
	outside := t.TempDir()
	for _, dir := range []string{boxes, filepath.Join(boxes, "sb_a"), filepath.Join(boxes, "sb_real/fs"),
		filepath.Join(outside, "fs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"sb_link": outside, "sb_a/fs": outside,
		"../../3-4": filepath.Join(m.dataDir(), "daemons/1-2")} {
		if err := os.Symlink(to, filepath.Join(boxes, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []monitorapi.Project{
		{Home: "..", Sandbox: "sb_real"}, {Home: "", Sandbox: "sb_real"}, {Home: "1-2/../1-2", Sandbox: "sb_real"},
		{Home: "1-2", Sandbox: ".."}, {Home: "1-2", Sandbox: ""}, {Home: "1-2", Sandbox: "sb_real/../sb_real"},
		{Home: "1-2", Sandbox: "sb_a\n"},
		{Home: "1-2", Sandbox: "sb_real", Bytes: -1}, {Home: "1-2", Sandbox: "sb_real", Inodes: -1},
	} {
		if err := m.limitProject(&p); err == nil || !strings.Contains(err.Error(), "cannot be") {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []monitorapi.Project{{Home: "1-2", Sandbox: "sb_link"}, {Home: "1-2", Sandbox: "sb_a"},
		{Home: "3-4", Sandbox: "sb_real"}} {
		if err := m.limitProject(&p); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%+v: %v, want ELOOP", p, err)
		}
	}
	if err := m.limitProject(&monitorapi.Project{Home: "1-2", Sandbox: "sb_none"}); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
	// The allowed one is found; whether it can be a project is the file system's choice.
	if err := m.limitProject(&monitorapi.Project{Home: "1-2", Sandbox: "sb_real"}); err != nil &&
		!strings.Contains(err.Error(), "project of") {
		t.Error(err)
	}
}
