package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// CloneTree makes a detached copy of the mount at path with everything mounted
// below it (open_tree(2), Linux 5.2). It needs CAP_SYS_ADMIN in the user
// namespace of the caller's mount namespace. The caller owns the file; the tree
// is gone when it is closed without AttachTree.
func CloneTree(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// CloneReadOnly makes a detached mount of the folder at path alone: what else is
// mounted below it is not there, ".." ends at it, and writing fails with EROFS
// (open_tree(2), mount_setattr(2), Linux 5.12). The caller owns the file, with
// which the mount is gone.
func CloneReadOnly(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	const attrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attrs}); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// AttachTree mounts a detached tree on target, which is followed when it is a
// symlink (move_mount(2)). tree stays the caller's.
func AttachTree(tree *os.File, target string) error {
	err := unix.MoveMount(int(tree.Fd()), "", unix.AT_FDCWD, target,
		unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_SYMLINKS)
	runtime.KeepAlive(tree)
	if err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// FSOption is one option of a file system to be mounted. Without a Value it is
// a flag.
type FSOption struct {
	Key, Value string
}

// FSOptionMax is the longest value fsconfig(2) takes, in bytes
// (fs/fsopen.c: strndup_user(_value, 256) counts the terminating zero).
const FSOptionMax = 255

// FSMount makes a detached mount of a new instance of fstype (fsopen(2),
// fsconfig(2), fsmount(2), Linux 5.2). attrs are MOUNT_ATTR_ flags. The
// kernel's own explanation of a failure, where it gave one, is part of the
// error. The caller owns the file.
func FSMount(fstype string, options []FSOption, attrs int) (*os.File, error) {
	fd, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsopen %s: %w", fstype, err)
	}
	ctx := os.NewFile(uintptr(fd), fstype)
	defer ctx.Close()
	for _, o := range options {
		if err := setFSOption(fd, o); err != nil {
			return nil, fmt.Errorf("mount %s, option %s=%q: %w", fstype, o.Key, o.Value, withFSLog(fd, err))
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return nil, fmt.Errorf("mount %s: %w", fstype, withFSLog(fd, err))
	}
	mfd, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return nil, fmt.Errorf("fsmount %s: %w", fstype, withFSLog(fd, err))
	}
	return os.NewFile(uintptr(mfd), fstype), nil
}

func setFSOption(fd int, o FSOption) error {
	if o.Value == "" {
		return unix.FsconfigSetFlag(fd, o.Key)
	}
	if len(o.Value) > FSOptionMax {
		return fmt.Errorf("%d bytes, at most %d: %w", len(o.Value), FSOptionMax, unix.ENAMETOOLONG)
	}
	return unix.FsconfigSetString(fd, o.Key, o.Value)
}

// withFSLog adds the messages the kernel left in the file system context, one
// per read, each "e ", "w " or "i " and a text (fs/fs_context.c).
func withFSLog(fd int, err error) error {
	buf := make([]byte, 256)
	for {
		n, rerr := unix.Read(fd, buf)
		if rerr != nil || n <= 2 {
			return err
		}
		if buf[0] == 'e' {
			err = fmt.Errorf("%w (%s)", err, string(buf[2:n]))
		}
	}
}

// Detach unmounts what is on target, at once for every path lookup, finally
// when its last user is gone (umount2(2)). Nothing mounted there is no error.
func Detach(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "umount", Path: target, Err: err}
	}
	return nil
}

// InFolder runs fn with dir as working directory, without changing that of the
// process: fn runs on a thread with a working directory of its own
// (unshare(2), CLONE_FS), which ends with it. fn must not start goroutines that
// rely on the folder.
func InFolder(dir string, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the runtime ends the thread with the goroutine.
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("unshare working directory: %w", err)
			}
			if err := unix.Chdir(dir); err != nil {
				return &os.PathError{Op: "chdir", Path: dir, Err: err}
			}
			return fn()
		}()
	}()
	return <-done
}

// FSReconfigure changes options of the file system that is mounted on path (fspick(2)).
// path must be one that nobody else can change.
func FSReconfigure(path string, options []FSOption) error {
	fd, err := unix.Fspick(unix.AT_FDCWD, path,
		unix.FSPICK_CLOEXEC|unix.FSPICK_SYMLINK_NOFOLLOW|unix.FSPICK_NO_AUTOMOUNT)
	if err != nil {
		return fmt.Errorf("fspick %s: %w", path, err)
	}
	ctx := os.NewFile(uintptr(fd), path)
	defer ctx.Close()
	for _, o := range options {
		if err := setFSOption(fd, o); err != nil {
			return fmt.Errorf("remount %s, option %s=%q: %w", path, o.Key, o.Value, withFSLog(fd, err))
		}
	}
	if err := unix.FsconfigReconfigure(fd); err != nil {
		return fmt.Errorf("remount %s: %w", path, withFSLog(fd, err))
	}
	return nil
}
