package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
)

func TestElapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, due := time.Now(), false
		time.AfterFunc(time.Hour, func() { due = true })
		Elapse(time.Hour)
		if passed := time.Since(begun); passed != time.Hour || !due {
			t.Errorf("%v passed, what was due by then has happened: %v", passed, due)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("it waits where time is real")
		}
	}()
	Elapse(0)
}

// TestMoments: a random moment is not behind the end of the operation.
func TestMoments(t *testing.T) {
	begun := time.Now()
	Moment(time.Millisecond)
	if passed := time.Since(begun); passed < time.Millisecond {
		t.Errorf("a moment after %v", passed)
	}
	done := make(chan int)
	close(done)
	RandomMomentOf(done, 1000*time.Hour)
	RandomMomentOf(make(chan int), time.Millisecond)
}

// TestAged: what is changed afterwards is younger, by no less than was asked.
func TestAged(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	write(t, name, "a")
	for _, age := range []time.Duration{0, 0, 0, 30 * time.Millisecond} {
		before, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if age == 0 {
			NextTick(t, dir)
		} else {
			Aged(t, dir, age)
		}
		write(t, name, "b")
		after, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if d := after.ModTime().Sub(before.ModTime()); d <= age {
			t.Errorf("%v younger, want more than %v", d, age)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBounds: what comes is waited for, and what does not come fails the test.
func TestBounds(t *testing.T) {
	const long, short = time.Minute, 10 * time.Millisecond
	gone := filepath.Join(t.TempDir(), "gone")
	there := filepath.Join(t.TempDir(), "there")
	write(t, there, "")
	asked := 0
	for name, tt := range map[string]struct {
		wait func(t testing.TB)
		want string
	}{
		"Within": {func(t testing.TB) {
			ch := make(chan int)
			go func() { ch <- 7 }()
			if v := Within(t, ch, long, "nothing"); v != 7 {
				t.Errorf("%d", v)
			}
		}, ""},
		"Within, late": {func(t testing.TB) { Within(t, make(chan int), short, "no word") },
			"fatal: after 10ms: no word"},
		"Poll": {func(t testing.TB) { Poll(t, long, "no", func() bool { asked++; return asked == 3 }) }, ""},
		"Poll, late": {func(t testing.TB) { Poll(t, short, "no", func() bool { return false }) },
			"fatal: after 10ms: no"},
		"Removed":       {func(t testing.TB) { Removed(t, gone, long) }, ""},
		"Removed, more": {func(t testing.TB) { Removed(t, filepath.Join(gone, "below"), long) }, ""},
		"Removed, late": {func(t testing.TB) { Removed(t, there, short) }, "fatal: " + there +
			" is still there after 10ms"},
		"Unpopulated": {func(t testing.TB) { Unpopulated(t, gone, long) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			if tt.wait(r); r.ended != tt.want {
				t.Errorf("ended by %q, want %q", r.ended, tt.want)
			}
			if late := slices.Contains(r.attrs, LateAttr+"=true"); late != (tt.want != "") {
				t.Errorf("late: %v", late)
			}
		})
	}
}

// TestRemoved: the removal is an event.
func TestRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"f", "d"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			RandomMoment(5 * time.Millisecond)
			done <- os.Remove(path)
		}()
		Removed(t, path, time.Minute)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestUnpopulated: the end of a cgroup's last process is an event.
func TestUnpopulated(t *testing.T) {
	Root(t)
	runtime.LockOSThread() // the process dies with the thread that has started it
	defer runtime.UnlockOSThread()
	group, cmd := populated(t)
	r := &recorder{TB: t}
	if Unpopulated(r, group, 10*time.Millisecond); r.ended == "" {
		t.Error("a cgroup with a process is said to have none")
	}
	go func() {
		RandomMoment(5 * time.Millisecond)
		_ = cmd.Process.Kill()
	}()
	Unpopulated(t, group, time.Minute)
	_ = cmd.Wait()
	if err := os.Remove(group); err != nil {
		t.Error(err)
	}
}

// populated is a cgroup with one process, which nobody else has.
func populated(t *testing.T) (group string, cmd *exec.Cmd) {
	t.Helper()
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.subtree_control")); err != nil {
			continue
		}
		group, err := os.MkdirTemp(mount, "hutch-test-")
		if err != nil {
			t.Fatal(err)
		}
		dir, err := os.Open(group)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return group, cmd
	}
	Require(t, probe.Check{Name: "cgroup2", Status: probe.No, Detail: "not mounted where it usually is"})
	return "", nil
}
