package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processes lists the pids of all processes of a sandbox, in ascending order, as hutchd sees them. Each is in the
// sandbox's own cgroup of a v1 hierarchy, or in one below its own of v2: that takes a fraction of a look at all
// processes of the machine.
func (x *Execs) Processes(sandbox string) (pids []int, err error) {
	for _, controller := range []string{"pids", "memory", "cpu"} {
		if mount, ok := x.mounts[controller]; ok && mount != x.mounts[""] {
			pids, err = procsOf(pids, filepath.Join(mount, sandbox))
			return sorted(pids), err
		}
	}
	if x.mounts[""] == "" {
		return nil, errors.ErrUnsupported
	}
	err = filepath.WalkDir(x.dir(sandbox, ""), func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // an exec has ended meanwhile
			return nil
		case err != nil || !e.IsDir():
			return err
		}
		pids, err = procsOf(pids, path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return sorted(pids), err
}

// sorted has each pid once: v1 may list one twice (cgroups(7)).
func sorted(pids []int) []int {
	slices.Sort(pids)
	return slices.Compact(pids)
}

// procsOf adds those of one cgroup.
func procsOf(pids []int, dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return pids, fmt.Errorf("list the processes of a cgroup: %w", err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: of another pid namespace
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
