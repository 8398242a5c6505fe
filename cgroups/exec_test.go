package cgroups

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// execsOf delegates a tree to this very process and makes a sandbox's cgroup in it.
func execsOf(t *testing.T) (x *Execs, sandbox string) {
	t.Helper()
	testenv.Root(t)
	tree, err := Delegate(0, 0, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Remove(); err != nil {
			t.Error(err)
		}
	})
	if x, err = OpenExecs(tree, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	if !x.Enabled() {
		t.Fatalf("no cgroup v2: %+v", tree)
	}
	sandbox = filepath.Join(tree.Path, "sb_x")
	if err := os.Mkdir(x.dir(sandbox, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	return x, sandbox
}

// into starts a command in a cgroup, by a mount and a name as PID 1 does.
func into(t *testing.T, mount *os.File, name string, argv ...string) *exec.Cmd {
	t.Helper()
	fd, err := unix.Openat(int(mount.Fd()), name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// awaitRemoved waits until a cgroup is gone.
func awaitRemoved(t *testing.T, dir string) {
	t.Helper()
	testenv.Removed(t, dir, 20*time.Second)
}

func TestExecs(t *testing.T) {
	x, sandbox := execsOf(t)
	mount, err := x.Mount(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	defer mount.Close()

	t.Run("mount", func(t *testing.T) {
		// It leads nowhere else, and nothing can be written through it.
		var above, self unix.Stat_t
		if err := errors.Join(unix.Fstatat(int(mount.Fd()), "../../..", &above, 0),
			unix.Fstat(int(mount.Fd()), &self)); err != nil || above.Ino != self.Ino {
			t.Errorf("../../.. is inode %d, not %d (%v)", above.Ino, self.Ino, err)
		}
		if _, err := unix.Openat(int(mount.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0); !errors.Is(err,
			unix.EROFS) {
			t.Errorf("open for writing: %v", err)
		}
		if fd, err := unix.Openat(int(mount.Fd()), "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Errorf("open for reading: %v", err)
		} else {
			_ = unix.Close(fd)
		}
	})
	t.Run("usage", func(t *testing.T) {
		if err := x.Make(sandbox, "ex_a", api.Limits{}); err != nil {
			t.Fatal(err)
		}
		if err := into(t, mount, "ex_a", "sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done").
			Wait(); err != nil {
			t.Fatal(err)
		}
		if !x.Reusable(sandbox, "ex_a") {
			t.Error("an empty cgroup cannot be used again")
		}
		if cpu, _, err := x.Usage(sandbox, "ex_a"); err != nil || cpu <= 0 {
			t.Errorf("%v, %v", cpu, err)
		}
		x.Retire(sandbox, "ex_a")
		awaitRemoved(t, x.dir(sandbox, "ex_a"))
		if _, err := x.Kill(t.Context(), sandbox, "ex_a"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("kill what is gone: %v", err)
		}
	})
	t.Run("processes", func(t *testing.T) {
		if err := x.Make(sandbox, "ex_p", api.Limits{}); err != nil {
			t.Fatal(err)
		}
		cmd := into(t, mount, "ex_p", "sleep", "4242")
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		hosts := []map[string]string{{"": x.mounts[""]}} // with v2 alone
		if mount := x.mounts["pids"]; mount != "" && mount != x.mounts[""] {
			hosts = append(hosts, map[string]string{"": x.mounts[""], "pids": mount})
			dir := filepath.Join(mount, sandbox)
			if err := errors.Join(os.Mkdir(dir, 0o755),
				write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid))); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(dir)
		}
		for _, mounts := range hosts {
			its := &Execs{mode: x.mode, mounts: mounts}
			if pids, err := its.Processes(sandbox); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
				t.Errorf("in %v: %v, %v, want %d", mounts, pids, err, cmd.Process.Pid)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, mounts := range hosts {
			its := &Execs{mode: x.mode, mounts: mounts}
			if pids, err := its.Processes(sandbox); err != nil || len(pids) > 0 {
				t.Errorf("in %v: %v, %v", mounts, pids, err)
			}
			if pids, _ := its.Processes(sandbox + "y"); len(pids) > 0 {
				t.Errorf("of no sandbox: %v", pids)
			}
		}
		x.Retire(sandbox, "ex_p")
		awaitRemoved(t, x.dir(sandbox, "ex_p"))
	})
	t.Run("kill", func(t *testing.T) {
		if err := x.Make(sandbox, "ex_b", api.Limits{}); err != nil {
			t.Fatal(err)
		}
		cmd := into(t, mount, "ex_b", "sh", "-c", "setsid sleep 4242 & echo $!; exec sleep 4242")
		if x.Reusable(sandbox, "ex_b") {
			t.Error("a cgroup can be used again while it holds processes")
		}
		x.Retire(sandbox, "ex_b") // it holds processes: nothing happens yet
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		pids, err := x.Kill(ctx, sandbox, "ex_b")
		if err != nil || !slices.Contains(pids, cmd.Process.Pid) {
			t.Errorf("killed %v, %v; the leader is %d", pids, err, cmd.Process.Pid)
		}
		_ = cmd.Wait()
		awaitRemoved(t, x.dir(sandbox, "ex_b"))
	})
	t.Run("retire", func(t *testing.T) {
		if err := x.Make(sandbox, "ex_c", api.Limits{}); err != nil {
			t.Fatal(err)
		}
		cmd := into(t, mount, "ex_c", "sleep", "4242")
		x.Retire(sandbox, "ex_c")
		x.Retire(sandbox, "ex_c")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		awaitRemoved(t, x.dir(sandbox, "ex_c"))
	})
	t.Run("forget", func(t *testing.T) {
		if err := x.Make(sandbox, "ex_d", api.Limits{}); err != nil {
			t.Fatal(err)
		}
		cmd := into(t, mount, "ex_d", "sleep", "4242")
		x.Retire(sandbox, "ex_d")
		x.Forget(sandbox)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := removeTree(x.dir(sandbox, "")); err != nil {
			t.Error(err)
		}
	})
}

func TestFlatKey(t *testing.T) {
	const text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\nmax x\n"
	if n, ok := flatKey(text, "oom_kill"); n != 3 || !ok {
		t.Errorf("%d, %v", n, ok)
	}
	for _, key := range []string{"max", "none", ""} {
		if n, ok := flatKey(text, key); n != 0 || ok {
			t.Errorf("%q: %d, %v", key, n, ok)
		}
	}
}

func TestLimitFiles(t *testing.T) {
	got := limitFiles(api.Limits{CPUs: 0.5, MemoryBytes: 64 << 20, PIDs: 9})
	want := []setting{{"memory", "memory.max", "67108864"}, {"memory", "memory.swap.max", "0"},
		{"cpu", "cpu.max", "50000 100000"}, {"pids", "pids.max", "9"}}
	if !slices.Equal(got, want) || limitFiles(api.Limits{TimeoutS: 3, CPUTimeS: 4}) != nil {
		t.Errorf("%v", got)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add("Name:\ta\\nNSpid: 9\nPid:\t7\nNSpid:\t7\t3\n", "oom_kill")
	f.Add("populated 1\nfrozen 0\n", "populated")
	f.Add("NSpid:\n", "")
	f.Fuzz(func(t *testing.T, text, key string) {
		cost.Input(t, text, func(text string) {
			if n, ok := flatKey(text, key); n != 0 && !ok {
				t.Errorf("%q: %d of nothing", text, n)
			}
			innermost(text)
		})
	})
}

func TestInnermost(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tsh\nPid:\t700\nNSpid:\t700\t31\t2\n": 2, "NSpid:\t9\n": 9, "NSpid:\n": 0, "Pid:\t3\n": 0, "": 0,
	} {
		if got := innermost(status); got != want {
			t.Errorf("%q: %d, want %d", status, got, want)
		}
	}
}
