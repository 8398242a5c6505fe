package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// initCgroup is the child of a sandbox's cgroup that holds PID 1.
const initCgroup = "init"

// enterCgroup checks where PID 1 is and moves it to its place. Its cgroup namespace
// is rooted one above by now: rooted in init, cgroups beside it could not be cloned
// into under nsdelegate; and with PID 1 above, their parent could have no
// controllers (cgroups(7), "no internal processes").
func (c *creation) enterCgroup() error {
	p := c.params
	if p.CgroupV2 == "" {
		return nil
	}
	if err := checkCgroup(c.sb.pid, p.CgroupV2); err != nil || p.CgroupMount == "" {
		return err
	}
	dir := filepath.Join(p.CgroupMount, p.CgroupV2, initCgroup)
	// It goes with the sandbox's, which libcontainer removes with all below it.
	if err := unix.Mkdir(dir, 0o755); err != nil {
		return &os.PathError{Op: "make cgroup", Path: dir, Err: err}
	}
	fd, err := unix.Open(filepath.Join(dir, "cgroup.procs"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(strconv.Itoa(c.sb.pid)))
		_ = unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("move PID 1 to cgroup %s: %w", dir, err)
	}
	return checkCgroup(c.sb.pid, filepath.Join(p.CgroupV2, initCgroup))
}

// checkCgroup reads back where a process is, whoever has put it there: a sandbox
// outside its cgroup would escape its network policy.
func checkCgroup(pid int, cgroup string) error {
	path := fmt.Sprintf("/proc/%d/cgroup", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want := filepath.Join("/", cgroup)
	for line := range strings.Lines(string(text)) {
		got, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		if got == want {
			return nil
		}
		return api.Errorf(api.FailedPrecondition, "PID 1 is in cgroup %q, not in %q", got, want).
			WithHint("check that hutch may move processes to its cgroup: `hutch doctor`")
	}
	return api.Errorf(api.FailedPrecondition, "%s names no cgroup v2, want %q", path, want).
		WithHint("mount cgroup2, or create the sandbox without cgroups")
}
