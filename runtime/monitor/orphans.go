package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes the monitor the parent of what hutch-launch leaves when it is
// killed: hutchd, which then ends its sandboxes and itself, and a first process of a
// sandbox that libcontainer had not started yet, which would wait for ever.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// killOrphans ends every child that is left. It is called when hutch-launch and
// hutchd have ended: whatever there is was theirs.
func killOrphans() error {
	for {
		_, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for orphans: %w", err)
		}
		for _, pid := range children() {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill orphan %d: %w", pid, err)
			}
			// Its own children are the monitor's after this.
			if _, err := unix.Wait4(pid, nil, 0, nil); err != nil && !errors.Is(err, unix.ECHILD) &&
				!errors.Is(err, unix.EINTR) {
				return fmt.Errorf("wait for orphan %d: %w", pid, err)
			}
		}
	}
}

// children are the pids of this process's children.
func children() []int {
	own := os.Getpid()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if parent, err := parentOf(pid); err == nil && parent == own {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf reads /proc/PID/stat (proc_pid_stat(5)).
func parentOf(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// pid (comm) state ppid ...: the name may hold anything, parentheses too.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, fmt.Errorf("unexpected format of /proc/%d/stat", pid)
	}
	return strconv.Atoi(string(fields[1]))
}
