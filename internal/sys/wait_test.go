package sys

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// sleeper starts a child that lives until it is killed, for the test to reap.
func sleeper(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process
}

func TestPidfd(t *testing.T) {
	p := sleeper(t)
	pidfd, err := OpenPidfd(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	if gone, err := HasExited(pidfd); err != nil || gone {
		t.Errorf("running: exited %v, %v", gone, err)
	}
	if pid, err := ExitedChild(); err != nil || pid != 0 {
		t.Errorf("exited child %d, %v; want none", pid, err)
	}
	if _, err := Reap(p.Pid); err == nil {
		t.Error("a running child was reaped")
	}
	if err := KillPidfd(pidfd); err != nil {
		t.Fatal(err)
	}
	if err := AwaitExit(pidfd); err != nil {
		t.Fatal(err)
	}
	if gone, err := HasExited(pidfd); err != nil || !gone {
		t.Errorf("killed: exited %v, %v", gone, err)
	}
	for range 2 { // looking does not reap
		if pid, err := ExitedChild(); err != nil || pid != p.Pid {
			t.Errorf("exited child %d, %v; want %d", pid, err, p.Pid)
		}
	}
	ws, err := Reap(p.Pid)
	if err != nil || !ws.Signaled() || ws.Signal() != unix.SIGKILL {
		t.Errorf("status %#x, %v; want death by SIGKILL", int(ws), err)
	}
	if err := KillPidfd(pidfd); err != nil {
		t.Errorf("kill what is gone: %v", err)
	}
	if pid, err := ExitedChild(); err != nil || pid != 0 {
		t.Errorf("exited child %d, %v; want none", pid, err)
	}
}

// AwaitExit must end when its file is closed, or a waiter could never be
// stopped.
func TestAwaitExitClosed(t *testing.T) {
	p := sleeper(t)
	defer func() {
		_ = p.Kill()
		_, _ = p.Wait()
	}()
	pidfd, err := OpenPidfd(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- AwaitExit(pidfd) }()
	pidfd.Close()
	if err := <-done; err == nil {
		t.Error("a closed pidfd reported the exit")
	}
}

func TestForExec(t *testing.T) {
	self, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	// As many low fds as one likes: the program must still be what is executed.
	files := []*os.File{nil, nil, nil}
	for range 40 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append([]*os.File{f}, files...)
	}
	files = files[:40]
	dup, path, err := ForExec(self, files)
	if err != nil {
		t.Fatal(err)
	}
	defer dup.Close()
	p, err := os.StartProcess(path, []string{"true"}, &os.ProcAttr{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("%v, %v", state, err)
	}
}

func TestSealedMemfd(t *testing.T) {
	src, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if IsSealed(src) {
		t.Error("a file is sealed")
	}
	for kind, runs := range map[MemfdKind]bool{MemfdData: false, MemfdProgram: true} {
		if _, err := src.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		f, err := SealedMemfd("sealed-test", src, kind)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if !IsSealed(f) {
			t.Error("not sealed")
		}
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("write: %v, want EPERM", err)
		}
		if err := f.Truncate(0); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate: %v, want EPERM", err)
		}
		ro, err := ReopenReadOnly(f)
		if err != nil {
			t.Fatal(err)
		}
		defer ro.Close()
		if err := exec.Command(FDPath(ro)).Run(); (err == nil) != runs {
			// Before Linux 6.3 there is no way to forbid it.
			t.Logf("kind %d: run: %v", kind, err)
			if runs {
				t.Fail()
			}
		}
	}
}

// TestReady: what is ready is told at once, also beside signals, which make poll(2) fail without a wait.
func TestReady(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	fd := int(r.Fd())
	if now, err := Ready(fd, unix.POLLIN); err != nil || now != 0 {
		t.Errorf("an empty pipe: %#x, %v", now, err)
	}
	if _, err := w.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid, over := unix.Gettid(), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG) // the Go runtime's own, which it ignores otherwise
			}
		}
	})
	for range 100_000 {
		if now, err := Ready(fd, unix.POLLIN); err != nil || now != unix.POLLIN {
			t.Fatalf("%#x, %v", now, err)
		}
	}
	interrupted := 0
	none := []unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLIN}} // never ready
	for range 100_000 {
		if _, err := unix.Poll(none, 0); errors.Is(err, unix.EINTR) {
			interrupted++
		}
	}
	close(over)
	done.Wait()
	t.Logf("%d of 100,000 calls of poll(2) were interrupted", interrupted)
	w.Close()
	if now, err := Ready(fd, 0); err != nil || now&unix.POLLHUP == 0 {
		t.Errorf("the other end is closed: %#x, %v", now, err)
	}
}
