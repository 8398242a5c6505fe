package procs

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDescendants: a child's child is one, and those that have ended are not.
func TestDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the child is there
		t.Fatal(err)
	}
	pids, known := Descendants(os.Getpid())
	if !known {
		t.Fatal("this kernel does not list children")
	}
	below, _ := Descendants(cmd.Process.Pid)
	if len(below) != 1 || len(pids) < 2 {
		t.Errorf("%v of the shell, %v of this process", below, pids)
	}
	for _, pid := range append(below, cmd.Process.Pid) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Wait()
	if _, known := Descendants(cmd.Process.Pid); known {
		t.Error("of a process that has ended")
	}
}

// TestProcessesOfThreads: children that any thread of PID 1 has made are listed.
func TestProcessesOfThreads(t *testing.T) {
	const n = 4
	want := map[int]bool{}
	for range n {
		started := make(chan *exec.Cmd)
		go func() {
			runtime.LockOSThread() // never unlocked: the next one gets another thread
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Error(err)
			}
			started <- cmd
			<-t.Context().Done()
		}()
		cmd := <-started
		if t.Failed() {
			return
		}
		want[cmd.Process.Pid] = true
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	pids, known := Descendants(os.Getpid())
	for _, pid := range pids {
		delete(want, pid)
	}
	if !known || len(want) > 0 {
		t.Errorf("known %v; %v are missing in %v", known, want, pids)
	}
}

// BenchmarkDescendants is of this process and one child.
func BenchmarkDescendants(b *testing.B) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	b.Run("walk", func(b *testing.B) {
		for b.Loop() {
			Descendants(os.Getpid())
		}
	})
	b.Run("search", func(b *testing.B) {
		for b.Loop() {
			IDs(os.Getpid())
		}
	})
}
