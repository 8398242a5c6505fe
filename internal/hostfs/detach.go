package hostfs

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Owner says as whom the owner and the group of a folder of root's appear in sandboxes.
type Owner struct {
	Base            uint32 // kernel uid and gid of uid 0 there: see api.Info
	api.FolderOwner        // the user who is to work in the folder; at first root, see Lend
}

// check refuses ids that no daemon of root's has: it says them itself, and a sandbox may have taken it over.
func (o Owner) check() error {
	if os.Getuid() == 0 && (o.Base < api.FirstIDBase || o.Base > api.LastIDBase || o.Base%api.IDCount != 0) {
		return api.Errorf(api.Internal, "the daemon says that it has the ids from %d on, which are not hutch's", o.Base)
	}
	return nil
}

// Detach makes a detached mount of s for a daemon that runs under ids of its own. The owner and the group of s, whoever
// they are, appear as those of to. Everybody else depends on what may be written:
//
//   - readOnly, which is also what lies below an overlay: each id below 65536 appears as itself, so that root's sandbox
//     can read what root can. An id that to has taken changes places with the owner.
//   - else an id inside is the daemon's own on disk, as in its images. So a sandbox makes files of the folder's owner,
//     and of nobody else whom the host knows; other owners appear as nobody, and nobody can be given anything.
//
// The mount ignores setuid bits and devices; readOnly makes it refuse writes, also to those who could undo that for a
// mount of their own.
//
// Only the host's root may do this (open_tree(2), mount_setattr(2), Linux 5.12),
// and only a caller that opened s itself: the daemon, which a sandbox may have
// taken over, never gets a host path mapped for the asking. The caller owns the
// result.
func (s *Source) Detach(to Owner, readOnly bool) (*os.File, error) {
	fd, err := unix.OpenTree(int(s.FD.Fd()), "",
		unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	runtime.KeepAlive(s)
	if errors.Is(err, unix.EPERM) {
		return nil, api.Errorf(api.PermissionDenied, "%s cannot be mounted: open_tree: %w", s.Path, err).
			WithHint("root of a container needs CAP_SYS_ADMIN there; or run hutch as an ordinary user")
	}
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", s.Path, err)
	}
	tree := os.NewFile(uintptr(fd), s.Path)
	defer tree.Close()
	if err := s.mapTree(fd, to, readOnly); err != nil {
		return nil, err
	}
	return lock(tree, s.Dir)
}

func (s *Source) mapTree(tree int, to Owner, readOnly bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return fmt.Errorf("stat %s: %w", s.Path, err)
	}
	first := to.Base
	if readOnly {
		first = 0
	}
	uids, gids := idMap(first, to.Base, st.Uid, to.UID), idMap(first, to.Base, st.Gid, to.GID)
	ns, err := userNamespace(uids, gids)
	if err != nil {
		return fmt.Errorf("map %s, of %d:%d, to %d:%d: %w", s.Path, st.Uid, st.Gid, to.UID, to.GID, err)
	}
	defer ns.Close()
	attr := unix.MountAttr{
		Attr_set:  unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Userns_fd: uint64(ns.Fd()),
		// On a host whose mounts are shared the clone is a peer of the host's own: what is mounted on it would be on
		// that as well.
		Propagation: unix.MS_PRIVATE,
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	err = unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr)
	switch {
	case errors.Is(err, unix.EINVAL):
		return api.Errorf(api.Unavailable,
			"the file system of %s, or of a mount below it, cannot be mapped to the sandbox's ids: %w", s.Path, err).
			WithHint("copy the folder to ext4, xfs, btrfs or tmpfs, or run hutch as the ordinary user that owns it")
	case err != nil:
		return fmt.Errorf("mount_setattr %s: %w", s.Path, err)
	}
	return nil
}

// lock returns a mount like tree, which it uses up, whose flags nobody with a user namespace of his own can change:
// mount_setattr(2) lets whoever has CAP_SYS_ADMIN where a detached mount lies make it writable again, and the daemon
// has it in its own namespace. The kernel locks flags when a mount namespace is copied for another user namespace
// (mount_namespaces(7)). So the tree is mounted in a namespace of a thread that ends with it, that is copied for a
// process that never runs, and the copy is taken from there.
func lock(tree *os.File, dir bool) (*os.File, error) {
	type result struct {
		tree *os.File
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: it ends with this goroutine
		locked, err := lockHere(tree, dir)
		if err != nil {
			err = fmt.Errorf("lock the flags of the mount of %s: %w", tree.Name(), err)
		}
		done <- result{locked, err}
	}()
	r := <-done
	return r.tree, r.err
}

func lockHere(tree *os.File, dir bool) (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	at, err := mountPoint(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("move_mount to %s: %w", at, err)
	}
	self := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	ns, err := namespaceOf(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: self, GidMappings: self}, "mnt")
	if err != nil {
		return nil, fmt.Errorf("copy the mount namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return nil, fmt.Errorf("setns: %w", err)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, at, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", at, err)
	}
	return os.NewFile(uintptr(fd), tree.Name()), nil
}

// mountPoint is an empty folder or file on a tmpfs of this mount namespace's own.
func mountPoint(dir bool) (string, error) {
	for _, top := range []string{"/sys", "/mnt", "/tmp", "/run"} {
		err := unix.Mount("hutch", top, "tmpfs", 0, "size=4k,mode=700")
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("mount a tmpfs on %s: %w", top, err)
		}
		at := top + "/tree"
		if dir {
			return at, os.Mkdir(at, 0o700)
		}
		return at, os.WriteFile(at, nil, 0o600)
	}
	return "", errors.New("there is no folder to mount anything on")
}

// idMap maps ids on disk to kernel ids: owner to base+as, and others, from first on, in their order to those from base
// on. Where that id on disk, or that place, is taken, they change places.
func idMap(first, base, owner, as uint32) []syscall.SysProcIDMap {
	line := func(disk, inside, size uint32) syscall.SysProcIDMap {
		return syscall.SysProcIDMap{ContainerID: int(disk), HostID: int(base + inside), Size: int(size)}
	}
	lines, taken := []syscall.SysProcIDMap{line(owner, as, 1)}, []uint32{as}
	if place := owner - first; owner >= first && place < api.IDCount && place != as {
		lines, taken = append(lines, line(first+as, place, 1)), append(taken, place)
	}
	slices.Sort(taken)
	next := uint32(0)
	for _, t := range append(taken, api.IDCount) {
		if t > next {
			lines = append(lines, line(first+next, next, t-next))
		}
		next = t + 1
	}
	return lines
}

// userNamespace makes a user namespace with these maps.
func userNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	// PTRACE_TRACEME makes the thread that forks the tracer; only it may wait.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return namespaceOf(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: uids, GidMappings: gids},
		"user")
}

// namespaceOf opens a namespace of a new process. It takes a process to make one; this one is stopped by ptrace(2)
// before its first instruction and killed. The caller has locked its thread.
func namespaceOf(attr *syscall.SysProcAttr, kind string) (*os.File, error) {
	attr.Ptrace, attr.Pdeathsig = true, syscall.SIGKILL
	p, err := os.StartProcess("/proc/self/exe", []string{"hutch"}, &os.ProcAttr{Sys: attr})
	if err != nil {
		return nil, fmt.Errorf("start a process in a new user namespace: %w", err)
	}
	ns, err := os.Open("/proc/" + strconv.Itoa(p.Pid) + "/ns/" + kind)
	kerr := p.Kill()
	// Killed is how it ends; the error would say nothing else.
	_, _ = p.Wait()
	return ns, errors.Join(err, kerr)
}
