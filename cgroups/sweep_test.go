package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// strayTree makes what a killed monitor leaves below a folder of the v2 hierarchy, and another that is none of hutch's.
func strayTree(t *testing.T) (mount, parent, stray string) {
	t.Helper()
	testenv.Root(t)
	hs, err := mounted("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(hs, func(h hierarchy) bool { return h.v2 })
	if at < 0 {
		testenv.Require(t, probe.Check{Name: "cgroup2", Status: probe.No, Detail: "not mounted",
			Remedy: "mount -t cgroup2 none /mnt"})
	}
	mount = hs[at].mount
	namespace, err := pidNamespace()
	if err != nil {
		t.Fatal(err)
	}
	// The monitor was this process, at a time when it had not begun.
	parent = filepath.Join(mount, fmt.Sprintf("sweep-test-%d", os.Getpid()))
	stray = filepath.Join(parent, "a", fmt.Sprintf("hutch-%d-%d-1", namespace, os.Getpid()))
	for _, dir := range []string{"sandboxes/box/exec", "daemon"} {
		if err := os.MkdirAll(filepath.Join(stray, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(parent, "b", "own"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeEmptied(parent); err != nil {
			t.Error(err)
		}
	})
	return mount, parent, stray
}

// TestBelow: what a daemon of an ordinary user's has left beside the caller's cgroup is found, and no more than that is
// removed.
func TestBelow(t *testing.T) {
	mount, parent, stray := strayTree(t)
	own := filepath.Join(parent, "b", "own")
	if got := below(mount, own, "hutch-*-*-*"); !slices.Equal(got, []string{stray}) {
		t.Errorf("found %q, want %q", got, stray)
	}
	if err := os.Chown(parent, 1<<31-1<<16, -1); err != nil { // somebody else's: theirs is not looked into
		t.Fatal(err)
	}
	if got := below(mount, own, "hutch-*-*-*"); len(got) != 0 {
		t.Errorf("found %q beside what is the caller's", got)
	}
	if got := below(mount, "/sys/fs/elsewhere", "*"); len(got) != 0 {
		t.Errorf("found %q outside of the hierarchy", got)
	}
	if monitorLives(filepath.Base(stray)) {
		t.Errorf("the monitor of %s lives", stray)
	}
	if gone, err := removeStray(t.Context(), stray); !gone || err != nil {
		t.Fatal(gone, err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error(err)
	}
}

// TestStrayDying: the last process of a dead daemon's tree is waited for, for a while.
func TestStrayDying(t *testing.T) {
	_, _, stray := strayTree(t)
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(stray, "sandboxes/box/exec/cgroup.procs"),
		strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if gone, err := removeStray(now, stray); gone || err != nil {
		t.Errorf("removed with a process in it: %v, %v", gone, err)
	}
	if _, err := os.Stat(filepath.Join(stray, "daemon")); err != nil {
		t.Errorf("half of what holds a process is removed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		gone, err := removeStray(ctx, stray)
		if !gone {
			err = errors.Join(err, errors.New("it is left"))
		}
		done <- err
	}()
	_ = stdin.Close()
	if err := errors.Join(cmd.Wait(), <-done); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its last process has ended: %v", err)
	}
}
