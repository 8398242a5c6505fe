package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// reapAll waits until no child is left, adopted ones included. Those that have
// not ended when ctx does are killed, and named in the error.
//
// It takes the exit status of every child, so nothing else may wait for one.
func reapAll(ctx context.Context) error {
	var late atomic.Bool
	killed := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		late.Store(true)
		killed <- killChildren()
	})
	var errs []error
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			if !stop() {
				errs = append(errs, <-killed)
			}
			return errors.Join(errs...)
		case err != nil && !errors.Is(err, unix.EINTR):
			return errors.Join(append(errs, fmt.Errorf("wait for children: %w", err))...)
		case late.Load():
			// Children of the one that has just died are ours now.
			errs = append(errs, killChildren())
		}
	}
}

// killChildren kills all children and returns an error that names them.
func killChildren() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			errs = append(errs, killChild(pid))
		}
	}
	return errors.Join(errs...)
}

// killChild kills pid if it is a living child of this process. The pidfd comes
// first: what /proc says afterwards is about the same process, or about one
// that reused the number and is not our child.
func killChild(pid int) error {
	fd, err := sys.OpenPidfd(pid)
	if err != nil {
		return nil // has just ended
	}
	defer fd.Close()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil // has just ended
	}
	comm, state, ppid, ok := parseStat(string(stat))
	if !ok || ppid != os.Getpid() || state == "Z" {
		return nil
	}
	return errors.Join(fmt.Errorf("process %d (%s) was left behind and is killed", pid, comm), sys.KillPidfd(fd))
}

// parseStat takes the command, the state and the parent from a line of
// /proc/PID/stat (proc_pid_stat(5)). The command is in parentheses and may itself
// hold parentheses and spaces.
func parseStat(line string) (comm, state string, ppid int, ok bool) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return "", "", 0, false
	}
	fields := strings.Fields(line[to+1:])
	if len(fields) < 2 {
		return "", "", 0, false
	}
	ppid, err := strconv.Atoi(fields[1])
	return line[from+1 : to], fields[0], ppid, err == nil
}
