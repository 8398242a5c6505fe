package death_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestOtherBuild: a command of another build replaces an idle daemon; one with
// sandboxes stays and is used, and the command says so.
func TestOtherBuild(t *testing.T) {
	testenv.Suite(t, "slow")
	testenv.Toolchain(t)
	w := world.New(t)
	other := w.Sub(t, "other")
	for _, name := range []string{"hutch-init", "hutch-launch", "hutch-scan"} {
		if out, err := exec.Command("cp", filepath.Join(w.Bin, name), other).CombinedOutput(); err != nil {
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
	ours := w.Bin
	theirs := func() *world.World { o := *w; o.Bin = other; return &o }()
	w.Inside(t, "true")
	first := w.Daemon(t).Monitor

	theirs.Inside(t, "true")
	second := w.Daemon(t).Monitor
	if second == first {
		t.Error("the idle daemon of another build was not replaced")
	}
	sb := theirs.Create(t, "host")
	w.Run(t, "run", "host", "true").Want(t, 0).Says(t, "of build other", "hands them")
	if out := w.Run(t, "ps", "-q"); !strings.Contains(out.Stdout, strings.TrimSpace(sb)) {
		t.Errorf("ps of another build does not list its sandbox: %q", out.Stdout)
	}
	w.OK(t, "run", "--private", "host", "true")
	if now := w.Daemon(t).Monitor; now != second {
		t.Error("the daemon with a sandbox was replaced")
	}
	// An upgrade: the old daemon leaves its sandbox, with a command that runs, to the new.
	sb = strings.TrimSpace(sb)
	const n = 30000
	ex := strings.TrimSpace(theirs.OK(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
	theirs.OK(t, "rpc", "system.shutdown", `{"mode":"keep"}`)
	world.AwaitEnd(t, second, "the old daemon")
	res := world.Decode[api.ExecResult](t, w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, ex)))
	if res.ExitCode != 7 || res.Stdout != counted(n) {
		t.Errorf("under the new daemon the command ended with %d and %d bytes, want 7 and %d", res.ExitCode,
			len(res.Stdout), len(counted(n)))
	}
	w.OK(t, "exec", sb, "--", "true")
	w.OK(t, "rm", "-f", sb)
	w.Inside(t, "true")
	if w.Bin != ours || w.Daemon(t).Monitor == second {
		t.Error("the idle daemon was not replaced")
	}
}
