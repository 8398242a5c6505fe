package sys

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStartHeld: what asks to be killed with its parent is when the thread that started it
// ends, and StartHeld keeps that thread.
func TestStartHeld(t *testing.T) {
	asks := func() *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		return cmd
	}
	lost := asks()
	started := make(chan error)
	var start func()
	start = func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			start, over := start, make(chan struct{})
			go func() { start(); close(over) }()
			<-over // the main thread never ends, so this needs another one
			return
		}
		started <- lost.Start()
	}
	go start()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := lost.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("behind the end of its thread: %v", err)
	}

	held := asks()
	release, err := StartHeld(held.Start)
	if err != nil {
		t.Fatal(err)
	}
	pidfd, err := OpenPidfd(held.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer pidfd.Close()
	// As many locked goroutines as find every idle thread, and end them.
	here, gone := make(chan struct{}), make(chan struct{})
	for range 50 {
		go func() {
			runtime.LockOSThread()
			<-here
			gone <- struct{}{}
		}()
	}
	close(here)
	for range 50 {
		<-gone
	}
	if exited, err := HasExited(pidfd); err != nil || exited {
		t.Errorf("exited %v, %v", exited, err)
	}
	if err := held.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := held.Wait(); err == nil || err.Error() != "signal: interrupt" {
		t.Error(err)
	}
	release()
	release()
	if release, err = StartHeld(exec.Command("/nowhere").Start); err == nil {
		t.Error("it started a program that is not there")
	}
	release()
}
