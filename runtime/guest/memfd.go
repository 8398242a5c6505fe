package guest

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// memfdKind is whether a memfd may be executed. Kernels before 6.3 know neither
// flag and make every memfd executable (memfd_create(2)).
type memfdKind int

const (
	memfdData memfdKind = unix.MFD_NOEXEC_SEAL
	memfdExec memfdKind = unix.MFD_EXEC
)

// minMemfd keeps memfds clear of the fds that a child gets, 0 to 6: Go's fork
// would overwrite one that has such a number before it is executed.
const minMemfd = 16

// memfd makes a sealed memfd with data in it, close-on-exec.
func memfd(name string, data []byte, kind memfdKind) (int, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|int(kind))
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return -1, fmt.Errorf("memfd_create %s: %w", name, err)
	}
	if err := fill(fd, data); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("memfd %s of %d bytes: %w", name, len(data), err)
	}
	return outOfTheWay(name, fd)
}

// openSelf opens the program that this process runs.
func openSelf() (int, error) {
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open hutch-init itself: %w", err)
	}
	return outOfTheWay("hutch-init", fd)
}

// outOfTheWay gives fd a number that no child needs.
func outOfTheWay(name string, fd int) (int, error) {
	if fd >= minMemfd {
		return fd, nil
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minMemfd)
	_ = unix.Close(fd)
	if err != nil {
		return -1, fmt.Errorf("memfd %s: %w", name, err)
	}
	return high, nil
}

func fill(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		data = data[max(n, 0):]
	}
	return sys.SealMemfd(fd)
}
