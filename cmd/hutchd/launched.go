package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is what starttime in /proc/pid/stat counts (USER_HZ, proc_pid_stat(5)).
const tick = 10 * time.Millisecond

// startOf is when a process was started, and no earlier.
func startOf(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name, in parentheses, may be anything; starttime is the 20th field behind it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return time.Time{}, fmt.Errorf("unexpected format of /proc/%d/stat", pid)
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, fmt.Errorf("clock_gettime(CLOCK_BOOTTIME): %w", err)
	}
	age := time.Duration(boot.Nano()) - time.Duration(ticks+1)*tick
	return time.Now().Add(-age).UTC().Round(0), nil
}
