package sys

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ForExec duplicates program, close-on-exec, to a number that os.StartProcess
// with attr.Files = files leaves alone, and returns it with the path to start
// it by. The child moves files to 0, 1, ... before it resolves the path, over
// whatever has those numbers (golang.org/issue/61751), so an fd in their way
// would make it start another file. The duplicate is the caller's, to be closed
// after the start.
func ForExec(program *os.File, files []*os.File) (dup *os.File, path string, err error) {
	above := 0
	for _, f := range files {
		above = max(above, int(f.Fd()))
	}
	// At most one temporary number per file and two for the child's pipe.
	above += len(files) + 3
	fd, err := unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, above)
	runtime.KeepAlive(program)
	if err != nil {
		return nil, "", fmt.Errorf("duplicate fd of %s: %w", program.Name(), err)
	}
	dup = os.NewFile(uintptr(fd), program.Name())
	return dup, FDPath(dup), nil
}

// starting is held while a child is forked, until it runs its program.
var starting sync.Mutex

// StartHeld calls start, of a command whose Pdeathsig is set, on a thread that lives until
// release is called, which must be behind the command's end: the signal comes when the
// thread ends that forked, not the process (prctl(2)), and the runtime ends threads of
// goroutines that end while they are locked to them, whatever else had run there before.
//
// Starts wait for each other: a child with id maps of its own waits, before it runs anything, for its parent on a pipe,
// whose other end a second child of that moment has as well. Were the parent killed then, both would wait for ever.
func StartHeld(start func() error) (release func(), err error) {
	started, released := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		starting.Lock()
		err := start()
		starting.Unlock()
		started <- err
		<-released
	}()
	release = sync.OnceFunc(func() { close(released) })
	if err = <-started; err != nil {
		release()
	}
	return release, err
}

// SetComm gives this process the name, at most 15 bytes, that ps and top show: of
// a program started by fd it is the fd's number. Nothing may depend on it, so
// failing is not told.
func SetComm(name string) {
	if comm, err := os.OpenFile("/proc/self/comm", os.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = comm.WriteString(name)
		_ = comm.Close()
	}
}
