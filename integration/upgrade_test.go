package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestOtherBuild: a command of another build replaces an idle daemon; one with
// sandboxes stays, and the command says what to do.
func TestOtherBuild(t *testing.T) {
	testenv.Toolchain(t)
	w := newWorld(t)
	other := w.sub(t, "other")
	for _, name := range []string{"hutch-init", "hutch-launch", "hutch-scan"} {
		if out, err := exec.Command("cp", filepath.Join(w.bin, name), other).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hutch", "hutchd"} {
		cmd := exec.Command("go", "build", "-buildvcs=false", "-tags", "containers_image_openpgp",
			"-ldflags", "-X github.com/hutch-sh/hutch/internal/version.BuildID=other", "-o", other, "./cmd/"+name)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v: %s", name, err, out)
		}
	}
	ours := w.bin
	theirs := func() *world { o := *w; o.bin = other; return &o }()
	w.inside(t, "true")
	first := w.daemon(t).monitor

	theirs.inside(t, "true")
	second := w.daemon(t).monitor
	if second == first {
		t.Error("the idle daemon of another build was not replaced")
	}
	sb := theirs.create(t, "host")
	w.run(t, "run", "host", "true").want(t, 125).says(t, "other", "try:")
	w.ok(t, "run", "--private", "host", "true")
	if now := w.daemon(t).monitor; now != second {
		t.Error("the daemon with a sandbox was replaced")
	}
	// An upgrade: the old daemon leaves its sandbox, with a command that runs, to the new.
	sb = strings.TrimSpace(sb)
	const n = 30000
	ex := strings.TrimSpace(theirs.ok(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
	theirs.ok(t, "rpc", "system.shutdown", `{"mode":"keep"}`)
	if !ended(second, patience) {
		t.Error("the old daemon does not end")
	}
	res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex)))
	if res.ExitCode != 7 || res.Stdout != counted(n) {
		t.Errorf("under the new daemon the command ended with %d and %d bytes, want 7 and %d", res.ExitCode, len(res.Stdout), len(counted(n)))
	}
	w.ok(t, "exec", sb, "--", "true")
	w.ok(t, "rm", "-f", sb)
	w.inside(t, "true")
	if w.bin != ours || w.daemon(t).monitor == second {
		t.Error("the idle daemon was not replaced")
	}
}
