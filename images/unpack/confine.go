package unpack

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/harden"
)

// confine makes the folder dir the root of everything this process can see and
// takes away the system calls it does not need: calls and those of the Go runtime stay.
// attr are attributes that its mount gets beside the usual ones. The process is alone in new
// namespaces of every kind; it keeps the capabilities of its user namespace,
// which reach only files of the mapped ids, and of those only what is below
// dir. The caller owns the folder it returns.
//
// Of the daemon's user it has the uid and nothing else: it cannot name the
// daemon's processes (pid namespace), trace them (its user namespace is a
// descendant), open its files (root folder) or talk to it but by the two pipes.
func confine(dir string, attr uint64, calls []uint32) (*os.File, error) {
	steps := []struct {
		what string
		do   func() error
	}{
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		// pivot_root(2) wants a mount as the new root.
		{"bind the folder", func() error { return unix.Mount(dir, dir, "", unix.MS_BIND, "") }},
		{"restrict its mount", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, dir, 0, &unix.MountAttr{
				Attr_set: attr | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
			})
		}},
		{"enter it", func() error { return unix.Chdir(dir) }},
		// The old root is stacked over the new one and then leaves with all
		// that is below it (pivot_root(2), "new_root and put_old may be the same").
		{"pivot", func() error { return unix.PivotRoot(".", ".") }},
		{"leave the host's files", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
		{"enter the root", func() error { return unix.Chdir("/") }},
		{"forbid dumps", func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return nil, fmt.Errorf("confine the worker to %s: %s: %w", dir, s.what, err)
		}
	}
	root, err := os.Open("/")
	if err != nil {
		return nil, err
	}
	if err := harden.Only(calls); err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// unpacking and packing are the system calls of the two that harden.Only does not leave anyway;
// decompressing has no more.
var (
	unpacking = append(slices.Clone(files),
		unix.SYS_FTRUNCATE, unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_SYMLINKAT, unix.SYS_LINKAT, unix.SYS_UNLINKAT,
		unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_UTIMENSAT, unix.SYS_FSETXATTR,
		unix.SYS_GETEUID, unix.SYS_GETEGID, // whose its files are without a chown
		unix.SYS_GETRUSAGE,
	)
	packing = append(slices.Clone(files), unix.SYS_PREAD64)
)

// files are the system calls of reading files, by fds and names below them.
var files = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_LSEEK,
	unix.SYS_FSTAT, sysFstatat, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FGETXATTR, unix.SYS_FLISTXATTR,
}
