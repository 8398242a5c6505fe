package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf is the CPU time that the threads of a process have had. It is the scheduler's
// count in nanoseconds (/proc/PID/task/TID/schedstat): that of proc_pid_stat(5) has ticks of
// 10 ms. Threads that have ended are not in it.
func cpuOf(pid int) (sum time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	if len(files) == 0 {
		return 0, fmt.Errorf("process %d has no schedstat", pid)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// cpuOfGroup is that of all processes of a process group but those of one name.
func cpuOfGroup(group int, but string) (sum time.Duration, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if got, err := unix.Getpgid(pid); err != nil || got != group ||
			field(fmt.Sprintf("/proc/%d/status", pid), "Name", ":") == but {
			continue
		}
		cpu, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		sum += cpu
	}
	return sum, nil
}

// hutchdOf is the process of the daemon whose sandbox has that PID 1: both are children of
// hutch-launch.
func hutchdOf(pid int) (int, error) {
	launch, err := parent(pid)
	if err != nil {
		return 0, err
	}
	return childOf(launch, "hutchd")
}
