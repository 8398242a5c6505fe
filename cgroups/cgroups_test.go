package cgroups

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

const (
	hybrid = `26 25 0:24 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
27 26 0:25 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct
28 26 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
29 26 0:27 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
30 26 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
31 26 0:26 /docker/x /mnt/part\040of\040memory rw,relatime - cgroup cgroup rw,memory
`
	pure = `26 25 0:24 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
)

func TestParseMounts(t *testing.T) {
	controllers := func(string) []string { return []string{"cpu", "memory"} }
	hs, err := parseMounts(strings.NewReader(hybrid), controllers)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range hs {
		got = append(got, h.mount+"="+strings.Join(h.controllers, "+"))
	}
	want := []string{
		"/sys/fs/cgroup/cpu=cpu+cpuacct", "/sys/fs/cgroup/memory=memory",
		"/sys/fs/cgroup/systemd=name=systemd", "/sys/fs/cgroup/unified=cpu+memory",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	hs, err = parseMounts(strings.NewReader(pure), controllers)
	if err != nil || len(hs) != 1 || !hs[0].v2 {
		t.Errorf("pure v2: %+v, %v", hs, err)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(hybrid)
	f.Add(pure)
	f.Fuzz(func(t *testing.T, text string) {
		var hs []hierarchy
		var err error
		cost.Input(t, text, func(text string) {
			hs, err = parseMounts(strings.NewReader(text), func(string) []string { return nil })
		})
		if err != nil {
			return
		}
		for _, h := range hs {
			if h.mount == "" {
				t.Errorf("a hierarchy without a mount from %q", text)
			}
		}
	})
}

func TestMonitorLives(t *testing.T) {
	name, err := groupName(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !monitorLives(name) {
		t.Errorf("%s: this process is said to be dead", name)
	}
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead, err := groupName(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	input.Close() // cat ends
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if monitorLives(dead) {
		t.Errorf("%s: a dead process is said to live", dead)
	}
	for _, name := range []string{"hutch-of-somebody-else", "hutch-1-2147483647-1"} {
		if !monitorLives(name) {
			t.Errorf("%s, of another namespace, is taken for a dead monitor's", name)
		}
	}
}

// TestDelegateRoot makes a real tree on this host's hierarchies, hands it to
// another uid, and removes it.
func TestDelegateRoot(t *testing.T) {
	testenv.Root(t)
	const uid = 1<<31 - 1<<16
	tree, err := Delegate(0, uid, uid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Mode == None {
		testenv.Require(t, probe.Check{Name: "cgroups", Status: probe.No, Detail: tree.Reason})
	}
	removed := false
	defer func() {
		if !removed {
			_ = tree.Remove()
		}
	}()
	for _, h := range tree.hierarchies {
		dir := filepath.Join(h.mount, tree.Path)
		st, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s can be written by others: %v", dir, st.Mode())
		}
		// The limits of the parent stay the caller's.
		for _, limit := range []string{"memory.limit_in_bytes", "pids.max", "memory.max", "cpu.cfs_quota_us"} {
			if st, err := os.Stat(filepath.Join(dir, limit)); err == nil && !ownedByMe(st) {
				t.Errorf("%s/%s was given away", dir, limit)
			}
		}
	}
	// A process can be moved in, which an empty v1 cpuset would refuse.
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, h := range tree.hierarchies {
		if err := write(filepath.Join(h.mount, tree.Path, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Error(err)
		}
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	sweepSpares(t, tree)
	if err := tree.Remove(); err != nil {
		t.Error(err)
	}
	removed = true
	for _, h := range tree.hierarchies {
		if _, err := os.Stat(filepath.Join(h.mount, tree.group)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", tree.group, err)
		}
	}
}

// sweepSpares sweeps as a process in another pid namespace would, which finds no
// monitor of the tree's name: the lock alone protects it, and only while it is held.
func sweepSpares(t *testing.T, tree *Tree) {
	t.Helper()
	for _, h := range tree.hierarchies {
		dir := filepath.Join(h.mount, tree.group)
		if f, err := tryLock(dir); f != nil || err != nil {
			t.Errorf("%s: locked twice (%v)", dir, err)
		}
	}
	if _, _, err := Sweep(0); err != nil {
		t.Error(err)
	}
	for _, h := range tree.hierarchies {
		if _, err := os.Stat(filepath.Join(h.mount, tree.Path)); err != nil {
			t.Errorf("swept: %v", err)
		}
	}
}

// TestDelegateUser: without delegation the answer is a reason and a remedy, never
// an error and never a tree.
func TestDelegateUser(t *testing.T) {
	hs, err := parseMounts(strings.NewReader(hybrid), func(string) []string { return nil })
	if err != nil {
		t.Fatal(err)
	}
	tree, err := delegateUser(hs, "hutch-1-1",
		func() error { t.Error("asked for a cgroup that could not be used"); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if tree.Mode != None || tree.Reason == "" || tree.Remedy == "" || tree.Path != "" {
		t.Errorf("hybrid as an ordinary user: %+v", tree)
	}
}
