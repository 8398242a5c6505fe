package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// children collects the exit statuses of all child processes. Some have a
// waiter: hutchd and each sandbox's PID 1. libcontainer waits for the processes
// between. What is left are orphans, such as helpers of a dead hutchd, which
// come to hutch-launch because it is a subreaper.
//
// One rule keeps them apart: an orphan is reaped only while nobody is starting
// anything, and when it is not watched.
type children struct {
	mu       sync.Mutex
	starting int              // starts under way
	watched  map[int]struct{} // pids with a waiter
}

func newChildren() *children {
	c := &children{watched: map[int]struct{}{}}
	died := make(chan os.Signal, 1) // one pending signal stands for many exits
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		for range died { // for the life of the process
			c.reapOrphans()
		}
	}()
	return c
}

// start runs fn, which starts processes and waits for all of them but the one it
// returns: that one is the caller's, to be waited for with wait.
func (c *children) start(fn func() (pid int, err error)) (int, error) {
	c.mu.Lock()
	c.starting++
	c.mu.Unlock()
	pid, err := fn()
	c.mu.Lock()
	c.starting--
	if err == nil {
		c.watched[pid] = struct{}{}
	}
	c.mu.Unlock()
	c.reapOrphans()
	return pid, err
}

// run runs fn, which starts processes and waits for all of them.
func (c *children) run(fn func() error) error {
	c.mu.Lock()
	c.starting++
	c.mu.Unlock()
	err := fn()
	c.mu.Lock()
	c.starting--
	c.mu.Unlock()
	c.reapOrphans()
	return err
}

// wait waits for the exit of a watched pid, whose pidfd stays the caller's, and
// returns its status.
func (c *children) wait(pid int, pidfd *os.File) unix.WaitStatus {
	// Both fail only for a pid that is not our child or a pidfd that is closed:
	// programming errors, for which the status of a killed process is as good.
	ws := unix.WaitStatus(unix.SIGKILL)
	if err := sys.AwaitExit(pidfd); err == nil {
		if got, err := sys.Reap(pid); err == nil {
			ws = got
		}
	}
	c.mu.Lock()
	delete(c.watched, pid)
	c.mu.Unlock()
	c.reapOrphans() // one may have hidden behind pid
	return ws
}

// reapOrphans reaps exited children that nobody waits for. It stops at one that
// is watched, whose waiter calls it again.
func (c *children) reapOrphans() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.starting == 0 {
		pid, err := sys.ExitedChild()
		if err != nil || pid == 0 {
			return
		}
		if _, ok := c.watched[pid]; ok {
			return
		}
		if _, err := sys.Reap(pid); err != nil {
			return
		}
	}
}

// killAll ends every child, and every process that becomes one because its
// parent has ended, until there is none. Nothing may be starting.
func (c *children) killAll() error {
	for {
		pids, err := childPIDs()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			// The number is safe: only this function waits for these.
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill %d: %w", pid, err)
			}
		}
		for _, pid := range pids {
			if _, err := unix.Wait4(pid, nil, 0, nil); err != nil && !errors.Is(err, unix.EINTR) &&
				!errors.Is(err, unix.ECHILD) {
				return fmt.Errorf("wait for %d: %w", pid, err)
			}
		}
	}
}

// childPIDs finds our children, zombies included. /proc/PID/task/TID/children
// would do, but is a kernel option.
func childPIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // gone
		}
		// pid (comm) state ppid: comm may hold anything, so from its last bracket.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) > 1 && bytes.Equal(fields[1], self) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
