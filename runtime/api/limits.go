package api

import (
	"math"
	"strconv"
	"strings"
)

// MinMemoryBytes is the least that a sandbox's PID 1 and one small command need: below it
// the kernel kills what should have said so.
const MinMemoryBytes = 6 << 20

// MaxCPUs and MaxPIDs are the most that any kernel has.
const (
	MaxCPUs = 4096
	MaxPIDs = 1 << 22
)

// Validate refuses impossible limits; field is their place in the request.
func (l *Limits) Validate(field string) error {
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	switch {
	case l.CPUs != Unlimited && (!finite(l.CPUs) || l.CPUs < 0 || (l.CPUs > 0 && l.CPUs < 0.01) || l.CPUs > MaxCPUs):
		return invalid(field+".cpus", "%g is not possible", l.CPUs).
			WithHint("use 0.01 to %d cores, 0 for the default, %d for no limit", MaxCPUs, Unlimited)
	case l.MemoryBytes < Unlimited:
		return invalid(field+".memory_bytes", "%d is negative", l.MemoryBytes).
			WithHint("use at least %d, 0 for the default, %d for no limit", MinMemoryBytes, Unlimited)
	case l.MemoryBytes > 0 && l.MemoryBytes < MinMemoryBytes:
		return invalid(field+".memory_bytes", "%d is too small to start anything", l.MemoryBytes).
			WithHint("use at least 6 MiB, %d bytes", MinMemoryBytes)
	case l.ShmBytes != 0 && l.ShmBytes < MinShmBytes:
		return invalid(field+".shm_bytes", "%d is too small", l.ShmBytes).
			WithHint("use at least 64 KiB, %d bytes, or 0 for the default", MinShmBytes)
	case l.DiskBytes < Unlimited:
		return invalid(field+".disk_bytes", "%d is negative", l.DiskBytes).
			WithHint("use 0 for the default, %d for no limit", Unlimited)
	case l.DiskBytes > 0 && l.DiskBytes < MinDiskBytes:
		return invalid(field+".disk_bytes", "%d is too small for the sandbox's own files", l.DiskBytes).
			WithHint("use at least 1 MiB, %d bytes", MinDiskBytes)
	case l.Inodes < Unlimited || l.Inodes > 0 && l.Inodes < MinInodes:
		return invalid(field+".inodes", "%d is not possible", l.Inodes).
			WithHint("use at least %d, 0 for the default, %d for no limit", MinInodes, Unlimited)
	case l.PIDs < Unlimited || l.PIDs > MaxPIDs:
		return invalid(field+".pids", "%d is not possible", l.PIDs).
			WithHint("use 1 to %d, 0 for the default, %d for no limit", MaxPIDs, Unlimited)
	case !finite(l.TimeoutS) || l.TimeoutS < 0 || l.TimeoutS > MaxSeconds:
		return invalid(field+".timeout_s", "%g is not possible", l.TimeoutS).
			WithHint("use at most %d seconds", MaxSeconds)
	case !finite(l.CPUTimeS) || l.CPUTimeS < 0 || l.CPUTimeS > MaxSeconds:
		return invalid(field+".cpu_time_s", "%g is not possible", l.CPUTimeS).
			WithHint("use at most %d seconds", MaxSeconds)
	case l.OutputBytes < 0:
		return invalid(field+".output_bytes", "%d is negative", l.OutputBytes)
	}
	if err := l.validateMore(field); err != nil {
		return err
	}
	return l.Rlimits.validate(field + ".rlimits")
}

// validateMore looks at the limits that few ask for.
func (l *Limits) validateMore(field string) error {
	switch {
	case l.SwapBytes < Unlimited:
		return invalid(field+".swap_bytes", "%d is negative", l.SwapBytes).
			WithHint("use 0 for no swap, %d for no limit", Unlimited)
	case l.SwapBytes != 0 && l.MemoryBytes == Unlimited:
		return invalid(field+".swap_bytes", "given with memory that has no limit").
			WithHint("give memory_bytes, or leave it out")
	case l.MemoryHighBytes < 0 || l.MemoryHighBytes > 0 && l.MemoryHighBytes < MinMemoryBytes:
		return invalid(field+".memory_high_bytes", "%d is not possible", l.MemoryHighBytes).
			WithHint("use at least 6 MiB, %d bytes", MinMemoryBytes)
	case l.MemoryBytes > 0 && l.MemoryHighBytes > l.MemoryBytes:
		return invalid(field+".memory_high_bytes", "%d is above memory_bytes, %d", l.MemoryHighBytes, l.MemoryBytes).
			WithHint("use less, or leave it out")
	case l.OOMGroup && l.MemoryBytes <= 0:
		return invalid(field+".oom_group", "given without memory_bytes").WithHint("give both, or leave it out")
	case l.CPUWeight < 0 || l.CPUWeight > 10000:
		return invalid(field+".cpu_weight", "%d is not possible", l.CPUWeight).WithHint("use 1 to 10000; 100 is usual")
	case l.IOReadBPS < Unlimited || l.IOWriteBPS < Unlimited:
		return invalid(field+".io_write_bps", "%d and io_read_bps %d: neither can be negative", l.IOWriteBPS,
			l.IOReadBPS).
			WithHint("use bytes a second, %d for no limit", Unlimited)
	}
	if _, ok := ParseCPUSet(l.CPUSet); l.CPUSet != "" && !ok {
		return invalid(field+".cpuset", "%q is no list of CPUs", l.CPUSet).
			WithHint(`use numbers and ranges, as in "0-1,3"`)
	}
	return nil
}

// ParseCPUSet reads a list of CPUs as cpuset(7) has it, such as 0-3,8. They come in order, each once.
func ParseCPUSet(list string) (cpus []int, ok bool) {
	if len(list) > 1024 {
		return nil, false
	}
	var has [MaxCPUs]bool
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.ParseUint(from, 10, 16)
		b, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || a > b || b >= MaxCPUs {
			return nil, false
		}
		for cpu := a; cpu <= b; cpu++ {
			has[cpu] = true
		}
	}
	for cpu, in := range has {
		if in {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, true
}

func checkSpecLimits(s *Spec) error {
	if s.Limits.OOMGroup {
		return invalid("limits.oom_group",
			"a sandbox cannot have it: it would end with its first process that is out of memory").
			WithHint("give it to an exec, with memory_bytes")
	}
	return s.Limits.Validate("limits")
}
