package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestStay: what Hasten does can be done, and the daemon is in the group then that its tree has for it.
func TestStay(t *testing.T) {
	x, sandbox := execsOf(t)
	group := func() string {
		t.Helper()
		path, err := ownV2("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	home := group()
	t.Cleanup(func() {
		if err := write(filepath.Join(x.mounts[""], home, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			t.Error(err)
		}
	})
	want := filepath.Join(filepath.Dir(filepath.Dir(sandbox)), "daemon")
	for range 2 { // the second one changes nothing, as in a daemon
		if err := x.stay(); err != nil {
			t.Fatal(err)
		}
		if got := group(); got != want {
			t.Fatalf("in %s, want %s", got, want)
		}
	}
	x.Hasten()
	if got := group(); got != want {
		t.Errorf("in %s, want %s", got, want)
	}
}
