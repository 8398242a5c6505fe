package launch

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// sandbox is one sandbox. Its fields below created are set before created is
// closed, and only when its creation succeeded.
type sandbox struct {
	id      string
	created chan struct{} // closed when its creation is over, one way or the other
	generic bool          // is nobody's yet; guarded by server.mu
	claimed bool          // has been given its root, or it was tried; guarded by server.mu

	pid    int
	pidfd  *os.File
	exited chan struct{}   // closed when PID 1 was reaped
	status unix.WaitStatus // valid after exited
	guest  *os.File        // our end of the guest channel; undo closes it
	execs  execs
	moves  []string // mount points that go along when it gets another root
	// undo releases everything but the process, once.
	undo func() error

	// rooting is held while a claim mounts the root, and while undo unmounts it: hutchd gives up a claim
	// whose client is gone, and destroys, while that is under way here. gone says that undo was called.
	rooting sync.Mutex
	gone    bool

	once sync.Once
	err  error // of once
}

func newSandbox(id string) *sandbox {
	return &sandbox{
		id: id, created: make(chan struct{}), exited: make(chan struct{}),
		execs: execs{byID: map[string]*heldExec{}},
	}
}

// destroyed stands for a sandbox that is gone, or never was: ending it does
// nothing.
func destroyed(id string) *sandbox {
	sb := newSandbox(id)
	close(sb.created)
	return sb
}

// kill ends PID 1, and with it, because the kernel takes a pid namespace down
// with its init, every process of the sandbox. It returns when all are gone.
func (sb *sandbox) kill() error {
	<-sb.created
	if sb.undo == nil {
		return nil // its creation failed and left nothing
	}
	select {
	case <-sb.exited:
		return nil // and perhaps destroyed: the pidfd is closed
	default:
	}
	if err := sys.KillPidfd(sb.pidfd); err != nil {
		select {
		case <-sb.exited:
		default:
			return err
		}
	}
	<-sb.exited
	return nil
}

// destroy kills and releases everything. Later calls wait for the first and
// return what it returned.
func (sb *sandbox) destroy() error {
	sb.once.Do(func() {
		sb.err = sb.kill()
		sb.execs.close()
		if sb.err == nil && sb.undo != nil {
			sb.rooting.Lock()
			defer sb.rooting.Unlock()
			sb.gone = true
			sb.err = sb.undo()
		}
	})
	return sb.err
}
