package testenv

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// Axis is something outside the product on which the outcome of a test depends. The test runner repeats a test along
// the axes that it declares, and no others: see docs/testing.md.
type Axis string

const (
	// User is who runs hutch: root, or an ordinary user with or without subordinate ids.
	User Axis = "user"
	// Privilege is whether that is root or an ordinary user: who may make cgroups, load eBPF and read all files. The
	// plan chooses which of the two ordinary users it is, by the name of the test. What maps ids or leaves files of
	// theirs depends on User.
	Privilege Axis = "privilege"
	// Kernel is the version of the kernel: mounts, namespaces, seccomp, Landlock, nftables, eBPF.
	Kernel Axis = "kernel"
	// Cgroup is who gives out cgroups: a hybrid hierarchy's root, systemd's delegation, a login session, nobody.
	Cgroup Axis = "cgroup"
	// EBPF is whether hutch-netd enforces policies in the kernel for an ordinary user.
	EBPF Axis = "ebpf"
)

// Axes declares the axes of t. It must be the first statement of the test, with the constants above spelled out: the
// runner reads the sources (internal/build/testplan), so that it knows the matrix before anything runs. At run time it
// does nothing.
func Axes(testing.TB, ...Axis) {}

// PackageAxes declares the axes of every test of a package that does not declare its own:
//
//	var _ = testenv.PackageAxes(testenv.User)
func PackageAxes(...Axis) struct{} { return struct{}{} }

// Suite declares that t belongs to a suite of .ci/budget, which says how often it runs. As with Axes, the runner reads
// it from the sources; it must stand among the first statements of the test.
func Suite(testing.TB, string) {}

// Smoke declares that t runs in a machine that repeats it also when nothing changed that the machine is about. Of two
// machines that run the same tests on two kernels one runs it then.
func Smoke(testing.TB) {}

// InMachine reports whether this runs in a machine of integration/vm, where a test need not repeat what does not depend
// on the machine.
func InMachine() bool { return strings.HasPrefix(os.Getenv(KindVar), mustrun.VM) }

// Machine skips t unless it runs in one of the named machines of integration/vm ("delegation", "6.12"). The host's run
// leaves such tests out; as with Axes, the runner reads the names from the sources.
func Machine(t testing.TB, names ...string) {
	t.Helper()
	kind := os.Getenv(KindVar)
	for _, name := range names {
		if kind == mustrun.VM+name {
			return
		}
	}
	Require(t, probe.Check{
		Name: "virtual machine", Status: probe.No, Detail: fmt.Sprintf("this test is for %q, this is %q", names, kind),
		Remedy: "make test-vm",
	})
}
