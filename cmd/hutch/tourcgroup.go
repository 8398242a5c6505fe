package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// cgroupWall reads the limits that the kernel holds for PID 1's cgroup. Without
// usable cgroups it repeats the daemon's reason, which is no failure.
func cgroupWall(sb *api.Sandbox, host *hostFacts) wall {
	w := wall{name: "cgroup limits", optional: true}
	if sb.Limits.MemoryBytes == 0 {
		w.found = "this host lets you set none"
		for _, said := range sb.Isolation.Walls {
			if said.Name == w.name && said.Detail != "" {
				w.found = said.Detail
			}
		}
		return w
	}
	w.optional = false // asked for and accepted
	memory, err := cgroupLimit(host.cgroups, "memory", "memory.max", "memory.limit_in_bytes")
	if err != nil {
		w.found = err.Error()
		return w
	}
	pids, err := cgroupLimit(host.cgroups, "pids", "pids.max", "pids.max")
	if err != nil {
		w.found = err.Error()
		return w
	}
	pids -= api.InitThreads
	w.inForce = memory == sb.Limits.MemoryBytes && pids == sb.Limits.PIDs
	w.found = fmt.Sprintf("memory %d MiB, %d processes", memory>>20, pids)
	return w
}

// cgroupLimit is the lowest value of a limit at or above a process's cgroup,
// given /proc/PID/cgroup (cgroups(7)): its v1 controller if there is one, else
// v2. 0 is no limit.
func cgroupLimit(cgroups, controller, fileV2, fileV1 string) (int64, error) {
	const root = "/sys/fs/cgroup"
	dir, file := "", ""
	for line := range strings.Lines(cgroups) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			switch {
			case name == controller:
				dir, file = filepath.Join(root, controller, f[2]), fileV1
			case name == "" && dir == "":
				dir, file = filepath.Join(root, f[2]), fileV2
			}
		}
	}
	if dir == "" {
		return 0, fmt.Errorf("no cgroup with the %s controller", controller)
	}
	lowest := int64(0)
	for ; len(dir) > len(root); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a v2 cgroup whose parent has the controller for itself, or the root
		}
		if err != nil {
			return 0, err
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil &&
			(lowest == 0 || v < lowest) {
			lowest = v
		}
	}
	return lowest, nil
}
