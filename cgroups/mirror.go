package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// A program asks for its limit of memory in its own cgroup, which is that of its exec. A JVM before 24 does not look
// above it (JDK-8322420), takes the host's memory for its own, and is killed. So with v2's memory controller the
// cgroups of execs have their sandbox's limit, too. It is the sandbox's that is met: what it counts is all that an
// exec's does, and PID 1.

// ownMemory is an attribute of an exec's cgroup whose memory.max is the exec's own, and not its sandbox's. The value is
// empty. Attributes of this kind are in cgroup2 since Linux 5.7 (kernfs, KERNFS_ROOT_SUPPORT_USER_XATTR).
const ownMemory = "user.hutch.memory"

const memoryMax = "memory.max"

// unlimited is how a v2 file has no limit, which is what a new cgroup has.
const unlimited = "max"

// mirror gives those cgroups of a sandbox's execs its limit of memory that have none of their own, after the sandbox's
// was set to bytes.
func (x *Execs) mirror(sandbox string, bytes int64) error {
	if !x.Enabled() {
		return nil
	}
	if bytes > 0 { // now, and not with the first exec: with processes in them the kernel may wait for all CPUs
		if err := x.enable(sandbox, api.Limits{MemoryBytes: bytes}); err != nil {
			return err
		}
	}
	x.mirroring.Lock()
	defer x.mirroring.Unlock()
	names, err := x.below(sandbox)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, x.mirrorInto(sandbox, x.dir(sandbox, name), ""))
	}
	return errors.Join(errs...)
}

// mirrorInto gives the cgroup of an exec its sandbox's limit of memory, unless it has one of its own. before is what it
// has, "" if that is not known. The caller holds mirroring.
func (x *Execs) mirrorInto(sandbox, dir, before string) error {
	if _, err := unix.Getxattr(dir, ownMemory, nil); err == nil {
		return nil
	}
	text, err := x.files.read(x.dir(sandbox, ""), memoryMax)
	if err != nil {
		return nil // the sandbox has ended, or nothing limits its memory
	}
	now := strings.TrimSpace(text)
	if now == before {
		return nil
	}
	err = write(filepath.Join(dir, memoryMax), now)
	if errors.Is(err, fs.ErrNotExist) { // without the controller, or gone
		if _, err := os.Stat(dir); err != nil || now == unlimited {
			return nil
		}
		if err = x.enable(sandbox, api.Limits{MemoryBytes: 1}); err == nil {
			err = write(filepath.Join(dir, memoryMax), now)
		}
	}
	if errors.Is(err, unix.ENODEV) { // removed since it was listed
		return nil
	}
	return err
}
