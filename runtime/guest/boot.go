package guest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/guest/supervisor"
)

const (
	// filterFD is the second of libcontainer's ExtraFiles: hutch-init's own
	// seccomp filter, an array of struct sock_filter.
	filterFD = 4

	// maxFilter is BPF_MAXINSNS instructions of 8 bytes (linux/bpf_common.h).
	maxFilter = 4096 * sys.SeccompInsnSize

	// memoryLimit is where the Go runtime starts to collect hard, in bytes. Live
	// data is far below it, except while a large request is decoded.
	memoryLimit = 24 << 20
)

// Run is the life of PID 1. It returns when the channel is closed, that is when
// nobody is left to ask for anything: the caller must exit then, upon which the
// kernel kills every process of the pid namespace (pid_namespaces(7)).
func Run() error {
	runtime.GOMAXPROCS(1) // it mostly waits; with more, threads wake each other for nothing
	startThreads(spareThreads)
	debug.SetGCPercent(10)
	debug.SetMemoryLimit(memoryLimit)

	chld, asked, err := harden()
	if err != nil {
		return err
	}
	ch, err := newChannel(guestapi.ChannelFD)
	if err != nil {
		return err
	}
	if asked != nil { // before PID 1 opens a file, which may be put to it
		go asked.Serve(ch.tryPost)
	}
	s, err := newServer(ch)
	if err != nil {
		return err
	}
	if s.asked = asked; asked.Emulates() {
		s.ids.emulate()
	}
	go s.reapLoop(chld)
	return s.serve()
}

// spareThreads is how many threads are made ahead: more than there can be system
// calls that block at once.
const spareThreads = 10

// startThreads makes n threads, which stay idle until the runtime needs them. A
// sandbox that uses up its limit of processes would otherwise end PID 1: the
// runtime aborts when it cannot make a thread.
func startThreads(n int) {
	var ready sync.WaitGroup
	release := make(chan struct{})
	for range n {
		ready.Add(1)
		go func() {
			// A locked goroutine keeps its thread even while it waits.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		}()
	}
	ready.Wait()
	close(release)
}

// harden makes this process safe to share a sandbox with, before any hostile
// code runs in it, and returns the channel on which SIGCHLD arrives, and what tells of
// refused calls where that is possible.
func harden() (<-chan os.Signal, *supervisor.Supervisor, error) {
	if pid := os.Getpid(); pid != 1 {
		return nil, nil, fmt.Errorf("hutch-init is the first process of a sandbox; it cannot run as pid %d", pid)
	}
	nameSelf("hutch-init")
	// Whatever else the launcher left open must reach no command.
	if err := unix.CloseRange(filterFD+1, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("close_range: %w", err)
	}
	// Commands run under the same uid: no ptrace, no /proc/1/{mem,fd,environ}.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, nil, fmt.Errorf("make hutch-init non-dumpable: %w", err)
	}
	chld := make(chan os.Signal, 1)
	signal.Notify(chld, unix.SIGCHLD)
	if err := sys.IgnoreSignals(unix.SIGCHLD, unix.SIGURG); err != nil {
		return nil, nil, err
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("read no_new_privs: %w", err)
	}
	if nnp != 1 {
		return nil, nil, errors.New("no_new_privs is not set: hutch-init refuses to run, because setuid files of the image would be in force")
	}
	var args []string
	if len(os.Args) == 2 {
		args = strings.Split(os.Args[1], guestapi.ArgAnd)
	}
	prog, err := readFilter(os.NewFile(filterFD, "init filter"))
	if err != nil {
		return nil, nil, fmt.Errorf("init filter on fd %d: %w", filterFD, err)
	}
	asked, err := supervisor.Install(prog, supervisor.WatchOf(args))
	return chld, asked, err
}

// nameSelf is for ps and top: a program that was executed by an fd is called
// after its number.
func nameSelf(name string) {
	fd, err := unix.Open("/proc/self/comm", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(name))
	_ = unix.Close(fd)
}

// readFilter reads a BPF program from its start, whatever the file offset, and
// closes f.
func readFilter(f *os.File) ([]byte, error) {
	defer f.Close()
	prog, err := io.ReadAll(io.NewSectionReader(f, 0, maxFilter+1))
	if err != nil {
		return nil, err
	}
	if n := len(prog); n == 0 || n > maxFilter || n%sys.SeccompInsnSize != 0 {
		return nil, fmt.Errorf("%d bytes are no seccomp filter", n)
	}
	return prog, nil
}
