package cgroups

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMirror: the cgroups of execs follow their sandbox's limit of memory, but for those that have their own, and PID
// 1's. The files are plain ones; integration TestSeenLimits has the kernel's.
func TestMirror(t *testing.T) {
	root := t.TempDir()
	x := &Execs{mode: V2, mounts: map[string]string{"": root, "memory": root}}
	defer x.files.forget(func(string) bool { return true })
	file := func(name string) string { return filepath.Join(root, "sb", name) }
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("memory.max", "536870912\n")
	put("cgroup.subtree_control", "")
	for _, name := range []string{"ex_a", "ex_own", InitGroup} {
		put(name+"/memory.max", "777777777")
	}
	want := map[string]string{"ex_a": "536870912", "ex_own": "777777777", InitGroup: "777777777"}
	switch err := unix.Setxattr(file("ex_own"), ownMemory, nil, 0); {
	case errors.Is(err, unix.EOPNOTSUPP): // a tmpfs before Linux 6.6, which cgroup2 is not
		want["ex_own"] = "536870912"
	case err != nil:
		t.Fatal(err)
	}
	if err := x.mirror("sb", 512<<20); err != nil {
		t.Fatal(err)
	}
	for name, want := range want {
		if text, err := os.ReadFile(file(name + "/memory.max")); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %s", name, text, err, want)
		}
	}
	text, err := os.ReadFile(file("cgroup.subtree_control"))
	if err != nil || !strings.Contains(string(text), "+memory") {
		t.Errorf("the controller is not enabled: %q, %v", text, err)
	}
}
