// Package bpftest is what tests of the eBPF programs share: cgroups of their own, and
// processes with exactly the rights that hutch-netd has.
package bpftest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// Nobody is a uid without rights.
const Nobody = 65534

// Rights is for a child that has CAP_BPF and CAP_NET_ADMIN and nothing else, as a file with
// those capabilities gives an ordinary user.
func Rights() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: Nobody, Gid: Nobody},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_BPF},
	}
}

// CheckRights fails unless this process has exactly these rights.
func CheckRights(t testing.TB) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	const want = "CapEff:\t0000008000001000\n" // bits 12 and 39 (linux/capability.h)
	if !bytes.Contains(status, []byte(want)) {
		t.Fatalf("no %q in\n%s", want, status)
	}
}

// Cgroup makes a cgroup in the test's own, with its uid as owner, and removes it at the end
// of the test. The test is skipped where it may not load programs or has no cgroup2.
func Cgroup(t testing.TB, uid int) (dir string) {
	t.Helper()
	testenv.Require(t, probe.EBPF())
	own, ok := self()
	if !ok {
		testenv.Require(t, probe.Check{Name: "cgroup2", Status: probe.No, Detail: "not mounted",
			Remedy: "mount -t cgroup2 none /mnt"})
	}
	dir, err := os.MkdirTemp(own, "hutch-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(t, dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Remove removes a cgroup and those below it, whose processes have ended: the kernel may
// still be about to take them out.
func Remove(t testing.TB, dir string) {
	t.Helper()
	testenv.Unpopulated(t, dir, 20*time.Second)
	below, err := filepath.Glob(filepath.Join(dir, "*", ""))
	if err != nil {
		t.Error(err)
	}
	for _, one := range below {
		if st, err := os.Stat(one); err == nil && st.IsDir() {
			Remove(t, one)
		}
	}
	if err := unix.Rmdir(dir); err != nil {
		t.Errorf("rmdir %s: %v", dir, err)
	}
}

// Open opens a cgroup's folder for as long as the test runs.
func Open(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// self is the folder of this process's cgroup2.
func self() (string, bool) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if len(f) < 5 || !strings.HasPrefix(right, "cgroup2 ") {
			continue
		}
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
				return filepath.Join(f[4], path), true
			}
		}
	}
	return "", false
}
