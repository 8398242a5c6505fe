package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Limit sets those limits of a sandbox's cgroup that l has, before its first command and
// while it runs. What this host has no controller for is the caller's to refuse. Some are
// set when it fails.
func (x *Execs) Limit(sandbox string, l api.Limits) error {
	if l.PIDs > 0 {
		l.PIDs += api.InitThreads
	}
	for _, s := range x.settings(l) {
		if err := x.set(sandbox, s); err != nil {
			return err
		}
	}
	switch {
	case l.MemoryBytes == 0 || x.mounts["memory"] == "":
		return nil
	case x.v2("memory"):
		return x.mirror(sandbox, l.MemoryBytes)
	}
	return limitMemory1(filepath.Join(x.mounts["memory"], sandbox), l)
}

func (x *Execs) set(sandbox string, s setting) error {
	mount, ok := x.mounts[s.controller]
	if !ok {
		return fmt.Errorf("%s: the %s controller is not mounted", s.file, s.controller)
	}
	err := write(filepath.Join(mount, sandbox, s.file), s.value)
	if s.file == swapFile && errors.Is(err, fs.ErrNotExist) {
		return nil // no swap, or none that is counted
	}
	return err
}

// v2 says whether a controller is in the v2 hierarchy.
func (x *Execs) v2(controller string) bool {
	mount, ok := x.mounts[controller]
	return ok && (x.mode == V2 || mount == x.mounts[""])
}

// settings are what l is in files, but for v1's memory.
func (x *Execs) settings(l api.Limits) []setting {
	all := limitFiles(l)
	if l.CPUWeight > 0 {
		all = append(all, setting{"cpu", "cpu.weight", strconv.FormatInt(l.CPUWeight, 10)})
	}
	if l.MemoryHighBytes > 0 {
		all = append(all, setting{"memory", "memory.high", strconv.FormatInt(l.MemoryHighBytes, 10)})
	}
	if l.CPUSet != "" {
		all = append(all, setting{"cpuset", "cpuset.cpus", l.CPUSet})
	}
	for _, io := range []struct {
		bps      int64
		key, old string
	}{{l.IOReadBPS, "rbps", "read"}, {l.IOWriteBPS, "wbps", "write"}} {
		switch {
		case io.bps == 0:
		case x.v2("io"):
			all = append(all, setting{"io", "io.max", fmt.Sprintf("%s %s=%s", x.disk, io.key, bound(io.bps))})
		default: // 0 lifts it
			all = append(all, setting{"io", "blkio.throttle." + io.old + "_bps_device",
				fmt.Sprintf("%s %d", x.disk, max(0, io.bps))})
		}
	}
	var got []setting
	for _, s := range all {
		switch {
		case s.controller == "cpu" && !x.v2("cpu"):
			got = append(got, oldCPU(s, l)...)
		case s.controller == "memory" && !x.v2("memory"): // see limitMemory1
		default:
			got = append(got, s)
		}
	}
	return got
}

// oldCPU is a setting of the cpu controller as v1 has it
// (Documentation/scheduler/sched-bwc.rst).
func oldCPU(s setting, l api.Limits) []setting {
	if s.file == "cpu.weight" {
		// Both have 100 as the usual weight; 1024 shares are that.
		return []setting{{"cpu", "cpu.shares", strconv.FormatInt(max(2, l.CPUWeight*1024/100), 10)}}
	}
	quota := int64(-1)
	if l.CPUs > 0 {
		quota = int64(l.CPUs * periodUS)
	}
	return []setting{{"cpu", "cpu.cfs_period_us", strconv.Itoa(periodUS)},
		{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)}}
}

// limitMemory1 sets memory, and memory with swap, of a v1 cgroup, of which the kernel
// keeps the second no smaller than the first at every moment.
func limitMemory1(dir string, l api.Limits) error {
	if l.MemoryBytes == 0 {
		return nil
	}
	total := l.MemoryBytes + l.SwapBytes
	if l.MemoryBytes == api.Unlimited || l.SwapBytes == api.Unlimited {
		total = api.Unlimited
	}
	memory := setting{"memory", "memory.limit_in_bytes", strconv.FormatInt(l.MemoryBytes, 10)}
	both := setting{"memory", "memory.memsw.limit_in_bytes", strconv.FormatInt(total, 10)}
	order := []setting{memory, both}
	if now, err := readFile(filepath.Join(dir, both.file)); err == nil {
		if have, err := strconv.ParseInt(strings.TrimSpace(now), 10, 64); err == nil &&
			(total == api.Unlimited || total > have) {
			order = []setting{both, memory}
		}
	}
	for _, s := range order {
		err := write(filepath.Join(dir, s.file), s.value)
		if s.file == both.file && errors.Is(err, fs.ErrNotExist) {
			continue // swap is not counted
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bound is a limit as v2's files have it.
func bound(n int64) string {
	if n == api.Unlimited {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// DiskOf is the number, "MAJOR:MINOR", of the disk that a folder is on, for limits of its
// use: the whole disk's, since the kernel limits no partitions (block/blk-cgroup.c). Not
// every file system is on one.
func DiskOf(dir string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if unix.Major(st.Dev) == 0 {
		return "", fmt.Errorf("the file system of %s is on no disk of its own", dir)
	}
	number := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	at := filepath.Join("/sys/dev/block", number)
	if _, err := os.Stat(filepath.Join(at, "partition")); err != nil {
		return number, nil
	}
	at, err := filepath.EvalSymlinks(at)
	if err != nil {
		return "", err
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(at), "dev"))
	return strings.TrimSpace(string(whole)), err
}
