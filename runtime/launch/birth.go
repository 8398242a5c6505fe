package launch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/configs/validate"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Beside cgroup v1 the first process of a sandbox joins its cgroups by itself, in C and before nsexec:
// cmd/hutch-launch/birth.c, which says why. libcontainer would move it, and wait for most of the launch. With v2 alone
// it still does, because it cannot be told to leave a cgroup of v2 alone.

// What birth.c has, too.
const (
	birthFD  = 6         // behind those of PID 1, which does not get it
	maxBirth = 32 * 1024 // bytes of a request
)

// birth is what the first process is told, a line each: see birth.c.
type birth struct {
	lines []string
	ours  *os.File // nil before it is sent
	done  bool     // it has said that it has joined all that it must
}

// bornInside says whether the first process is to join the cgroups of a sandbox by itself.
func bornInside(cg *cgroups.Cgroup) bool {
	return cg != nil && cg.Path != "" && !cgroups.IsCgroup2UnifiedMode()
}

// bear makes the cgroups of created, and gives back the same container without any: what it starts is not moved.
// created removes them when it is destroyed.
func (c *creation) bear(created *libcontainer.Container) (*libcontainer.Container, error) {
	state, err := created.State()
	if err != nil {
		return nil, err
	}
	groups, err := manager.NewWithPaths(c.config.Cgroups, state.CgroupPaths)
	if err != nil {
		return nil, err
	}
	if err := groups.Apply(-1); err != nil { // makes them, and moves nobody
		return nil, fmt.Errorf("make cgroups: %w", err)
	}
	if err := groups.Set(c.config.Cgroups.Resources); err != nil {
		return nil, fmt.Errorf("set up cgroups: %w", err)
	}
	if c.birth.lines, err = births(state.CgroupPaths, c.params.CgroupV2 != ""); err != nil {
		return nil, err
	}
	text, err := json.Marshal(withoutCgroups{State: state})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(c.params.RunDir, c.sb.id, "state.json"), text, 0o600); err != nil { //nolint:forbidigo // hutchd's own folder, that Create has made
		return nil, err
	}
	return libcontainer.Load(c.params.RunDir, c.sb.id)
}

// withoutCgroups is the state of a container that is in no cgroup. Where it says nothing of them, libcontainer looks
// for them.
type withoutCgroups struct {
	*libcontainer.State
	CgroupPaths struct{} `json:"cgroup_paths"`
}

// ungrouped is libcontainer.Create for a container that is in no cgroup, which it would look for a mount of all the
// same: there may be none (thin containers, ip netns exec).
func ungrouped(root, id string, config *configs.Config) (*libcontainer.Container, error) {
	if err := validate.Validate(config); err != nil {
		return nil, err
	}
	text, err := json.Marshal(withoutCgroups{State: &libcontainer.State{BaseState: libcontainer.BaseState{ID: id,
		Config: *config}}})
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(root, id), 0o711); err != nil { //nolint:forbidigo // hutchd's own folder, as Create has it
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(root, id, "state.json"), text, 0o600); err != nil { //nolint:forbidigo // the same
		return nil, err
	}
	return libcontainer.Load(root, id)
}

// births are the lines for cgroups, by the names that libcontainer gives to their hierarchies: "" is v2, in which the
// sandbox must be where v2 says so.
func births(paths map[string]string, v2 bool) ([]string, error) {
	v1 := make([]string, 0, len(paths))
	for name, dir := range paths {
		if strings.Contains(dir, "\n") {
			return nil, fmt.Errorf("the cgroup %q has a line end in its name", dir)
		}
		switch optional := name == "misc" || strings.HasPrefix(name, "name="); {
		case name == "":
		case optional: // libcontainer joins those that it can
			v1 = append(v1, "1?"+dir+"/tasks")
		default:
			v1 = append(v1, "1!"+dir+"/tasks")
		}
	}
	slices.Sort(v1)
	lines := slices.Compact(v1) // two controllers of one hierarchy
	if dir := paths[""]; dir != "" {
		if v2 {
			return append(lines, "2!"+dir), nil
		}
		if _, err := os.Stat(dir); err == nil {
			return append(lines, "2?"+dir), nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return lines, nil
}

// send gives back what the first process gets as its fd birthFD, the caller's.
func (b *birth) send() (theirs *os.File, err error) {
	text := strings.Join(b.lines, "\n") + "\n"
	if len(text) > maxBirth {
		return nil, fmt.Errorf("%d bytes of cgroups for PID 1, at most %d", len(text), maxBirth)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a channel for PID 1's cgroups: %w", err)
	}
	b.ours, theirs = os.NewFile(uintptr(fds[0]), "birth"), os.NewFile(uintptr(fds[1]), "birth")
	if err := unix.Send(fds[0], []byte(text), unix.MSG_NOSIGNAL); err != nil {
		return nil, errors.Join(fmt.Errorf("tell PID 1 its cgroups: %w", err), b.close(), theirs.Close())
	}
	return theirs, nil
}

func (b *birth) close() error { return b.ours.Close() }

// end is called with what a start has ended with, by who waits for its processes. It explains that with what the first
// process has said, and waits for the child that has gone on in that one's place: libcontainer knows of those that this
// one tells of, and not of it.
func (b *birth) end(err error) error {
	var reply [8]byte
	n, _, rerr := unix.Recvfrom(int(b.ours.Fd()), reply[:], unix.MSG_DONTWAIT)
	if rerr != nil || n != len(reply) {
		return err // it had nothing to say, or no time to
	}
	errno, value := unix.Errno(binary.NativeEndian.Uint32(reply[:])), int32(binary.NativeEndian.Uint32(reply[4:]))
	if errno == 0 {
		b.done = true
		if value > 0 {
			reapBorn(int(value), err != nil)
		}
		return err
	}
	what := "hear of its cgroups"
	if value >= 0 && int(value) < len(b.lines) {
		what = "join " + b.lines[value][len("1!"):]
	}
	return fmt.Errorf("PID 1 cannot %s: %w (%w)", what, errno, err)
}

// check refuses a PID 1 that has not said that it joined its cgroups: nobody else has put it there, and it would have
// no limits.
func (b *birth) check() error {
	if len(b.lines) > 0 && !b.done {
		return api.Errorf(api.Internal, "PID 1 has not said that it joined its cgroups").
			WithHint("this is a fault of hutch")
	}
	return nil
}

// reapBorn waits for a child that has started what it had to, or has nobody any more to do that for. It is ours, and no
// one else waits for it: neither call fails.
func reapBorn(pid int, failed bool) {
	if failed {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
