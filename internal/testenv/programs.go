package testenv

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
)

// remedy installs every program that tests use.
const remedy = "make deps"

// Programs skips t unless all the named programs are in PATH.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Require(t, probe.Check{Name: name, Status: probe.No, Detail: "not installed", Remedy: remedy})
		}
	}
}

// StaticBusybox returns the path of a busybox that runs in an empty root, and
// skips t where there is none.
func StaticBusybox(t testing.TB) string {
	t.Helper()
	Programs(t, "busybox")
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	static, err := isStatic(path)
	if err != nil {
		t.Fatal(err)
	}
	if !static {
		Require(t, probe.Check{Name: "busybox", Status: probe.No, Detail: path + " needs shared libraries",
			Remedy: "install a static busybox"})
	}
	return path
}

// Toolchain skips t unless PATH holds a Go that builds this module without a fetch:
// that of the user who called make.
func Toolchain(t testing.TB) {
	t.Helper()
	cmd := exec.Command("go", "list", ".")
	// An older one does not even read go.mod.
	cmd.Env = append(os.Environ(), "GOTOOLCHAIN=local", "GOPROXY=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		Require(t, probe.Check{
			Name: "go toolchain", Status: probe.No, Detail: strings.TrimSpace(fmt.Sprintf("go list: %v %s", err, out)),
			Remedy: "make test, as the user whose checkout it is",
		})
	}
}

// isStatic reports whether no dynamic loader is needed to run path.
func isStatic(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}

// Root skips t unless root runs it.
func Root(t testing.TB) {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		Require(t, probe.Check{Name: "root", Status: probe.No, Detail: fmt.Sprintf("uid %d", uid),
			Remedy: "sudo make test"})
	}
}

// NotRoot skips t if root runs it: for what the kernel refuses to everybody else.
func NotRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		Require(t, probe.Check{Name: "ordinary user", Status: probe.No, Detail: "uid 0",
			Remedy: "make test, as yourself"})
	}
}

// Arch skips t on other architectures than these, named as in GOARCH.
func Arch(t testing.TB, names ...string) {
	t.Helper()
	if !slices.Contains(names, runtime.GOARCH) {
		Require(t, probe.Check{
			Name: "architecture", Status: probe.No, Detail: runtime.GOARCH, Remedy: "a machine with " +
				strings.Join(names, " or "),
		})
	}
}

// Short skips t where nobody wants to wait for it (go test -short): why says what takes
// long.
func Short(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		Require(t, probe.Check{Name: "time", Status: probe.No, Detail: "-short: " + why,
			Remedy: "go test without -short"})
	}
}
