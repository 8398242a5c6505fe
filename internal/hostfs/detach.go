package hostfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Detach makes a detached mount of s in which uid and gid 0 of the disk appear
// as id, a kernel uid and gid: root's folder as the property of a daemon that
// runs under ids of its own. Every other owner appears as nobody, and nobody can
// be given anything. The mount ignores setuid bits and devices; readOnly makes it
// refuse writes, also to those who could undo that for a mount of their own.
//
// Only the host's root may do this (open_tree(2), mount_setattr(2), Linux 5.12),
// and only a caller that opened s itself: the daemon, which a sandbox may have
// taken over, never gets a host path mapped for the asking. The caller owns the
// result.
func (s *Source) Detach(id uint32, readOnly bool) (*os.File, error) {
	fd, err := unix.OpenTree(int(s.FD.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	runtime.KeepAlive(s)
	if errors.Is(err, unix.EPERM) {
		return nil, api.Errorf(api.PermissionDenied, "%s can not be mounted: open_tree: %w", s.Path, err).
			WithHint("root of a container needs CAP_SYS_ADMIN there; or run hutch as an ordinary user")
	}
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", s.Path, err)
	}
	tree := os.NewFile(uintptr(fd), s.Path)
	if err := s.mapTree(fd, id, readOnly); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}

func (s *Source) mapTree(tree int, id uint32, readOnly bool) error {
	ns, err := userNamespace(id)
	if err != nil {
		return fmt.Errorf("id map 0 -> %d: %w", id, err)
	}
	defer ns.Close()
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns.Fd()),
		// On a host whose mounts are shared the clone is a peer of the host's own: what is mounted on it would be on that as well.
		Propagation: unix.MS_PRIVATE,
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	switch {
	case errors.Is(err, unix.EINVAL):
		return api.Errorf(api.Unavailable, "the file system of %s, or of a mount below it, can not be mapped to the sandbox's ids: %w", s.Path, err).
			WithHint("copy the folder to ext4, xfs, btrfs or tmpfs, or run hutch as the ordinary user that owns it")
	case err != nil:
		return fmt.Errorf("mount_setattr %s with the id map 0 -> %d: %w", s.Path, id, err)
	}
	return nil
}

// userNamespace makes a user namespace that maps its uid and gid 0 to id. It
// takes a process to make one; this one is stopped by ptrace(2) before its first
// instruction and killed.
func userNamespace(id uint32) (*os.File, error) {
	// PTRACE_TRACEME makes the thread that forks the tracer; only it may wait.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(id), Size: 1}}
	cmd := exec.Command("/proc/self/exe")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: ids, GidMappings: ids,
		Ptrace:    true,
		Pdeathsig: syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process in a new user namespace: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/user")
	kerr := cmd.Process.Kill()
	// Killed is how it ends; the error would say nothing else.
	_ = cmd.Wait()
	return ns, errors.Join(err, kerr)
}
