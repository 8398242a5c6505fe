package sys

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// resolveRetries bounds how often OpenBeneath and OpenInRoot repeat a lookup
// that the kernel gave up on. It does so when a rename or mount anywhere on the
// system coincides with a ".." of the lookup (openat2(2), EAGAIN).
const resolveRetries = 1 << 10

// OpenBeneath opens path below the folder dirfd without following any symlink,
// not even in the middle, and without crossing a mount (openat2(2), Linux 5.6).
// The caller owns the fd, which is close-on-exec. Errors are errnos: ELOOP for
// a symlink, EXDEV for a path that leads out.
func OpenBeneath(dirfd int, path string, flags int, mode uint32) (int, error) {
	return openat2(dirfd, path, flags, mode,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_XDEV)
}

// OpenAcross is OpenBeneath for a path that may cross mounts.
func OpenAcross(dirfd int, path string, flags int) (int, error) {
	return openat2(dirfd, path, flags, 0,
		unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenInRoot opens path as a process would whose root folder is dirfd:
// symlinks are followed, absolute ones start at dirfd, and ".." ends there.
// Links of the kind of /proc/PID/fd are refused with ELOOP. The caller owns
// the fd, which is close-on-exec.
func OpenInRoot(dirfd int, path string, flags int, mode uint32) (int, error) {
	return openat2(dirfd, path, flags, mode, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// OpenPlain opens a path without following any symlink, not even in the middle; it may cross
// mounts. The caller owns the fd, which is close-on-exec. ELOOP is the error for a symlink.
func OpenPlain(path string, flags int) (int, error) {
	return openat2(unix.AT_FDCWD, path, flags, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
}

func openat2(dirfd int, path string, flags int, mode uint32, resolve uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags) | unix.O_CLOEXEC,
		Mode:    uint64(mode),
		Resolve: resolve,
	}
	for range resolveRetries {
		fd, err := unix.Openat2(dirfd, path, &how)
		switch {
		case err == nil:
			return fd, nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS):
			return -1, fmt.Errorf("openat2 (Linux 5.6, or a seccomp filter hides it): %w", err)
		}
		return -1, err
	}
	return -1, unix.EAGAIN
}
