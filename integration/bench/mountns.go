package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// mountThread is a thread in a mount namespace of its own. Processes that it
// starts are born there, so entering it is no part of what is measured.
type mountThread struct {
	calls chan func()
	ended chan struct{}
}

// startMountThread makes the thread and runs change in its namespace. Needs
// CAP_SYS_ADMIN.
func startMountThread(change func() error) (*mountThread, error) {
	t := &mountThread{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go func() {
		defer close(t.ended)
		// Never unlocked: the runtime ends the thread with this goroutine, and with
		// it the namespace.
		runtime.LockOSThread()
		err := enterMountNamespace(change)
		ready <- err
		if err != nil {
			return
		}
		for call := range t.calls {
			call()
		}
	}()
	if err := <-ready; err != nil {
		<-t.ended
		return nil, err
	}
	return t, nil
}

func enterMountNamespace(change func() error) error {
	// Threads share their root and working directory; a new mount namespace needs
	// its own: unshare(2).
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("stop mounts from reaching the host: %w", err)
	}
	return change()
}

// do runs call on the thread and returns when it has.
func (t *mountThread) do(call func()) {
	done := make(chan struct{})
	t.calls <- func() {
		defer close(done)
		call()
	}
	<-done
}

// stop ends the thread.
func (t *mountThread) stop() error {
	close(t.calls)
	<-t.ended
	return nil
}
