package sys

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SeccompNotification is struct seccomp_notif (linux/seccomp.h): a call that a filter puts
// to its listener. The arguments are numbers only: what they point to may change at any moment.
type SeccompNotification struct {
	ID    uint64
	PID   uint32 // the calling thread, as the listener's pid namespace has it
	Flags uint32
	NR    uint32
	Arch  uint32 // AUDIT_ARCH_*
	IP    uint64
	Args  [6]uint64
}

// seccompAnswer is struct seccomp_notif_resp.
type seccompAnswer struct {
	id    uint64
	value int64
	errno int32 // negative
	flags uint32
}

// InstallSeccompListener is InstallSeccomp for all threads of the process, with a listener
// for calls that prog answers with SECCOMP_RET_USER_NOTIF. The file is the caller's; when the
// last of it is closed such calls fail with ENOSYS.
//
// It fails with EBUSY where a filter above has a listener already, and with EINVAL before
// Linux 5.7 (SECCOMP_FILTER_FLAG_TSYNC_ESRCH). With killable, once the listener has received a
// call only a signal that kills interrupts it: a call that goes on then is not seen to fail with EINTR. Before Linux
// 5.19, which has no such flag, that is EINVAL too.
func InstallSeccompListener(prog []byte, killable bool) (*os.File, error) {
	n := len(prog) / SeccompInsnSize
	if n == 0 || n > SeccompMaxInsns || len(prog)%SeccompInsnSize != 0 {
		return nil, fmt.Errorf("install seccomp filter: %d bytes are no program: %w", len(prog), unix.EINVAL)
	}
	fprog := sockFprog{len: uint16(n), filter: &prog[0]}
	flags := unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	if killable {
		flags |= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags),
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return nil, fmt.Errorf("install seccomp filter of %d instructions with a listener: %w", n, errno)
	}
	return os.NewFile(fd, "seccomp listener"), nil
}

// ReceiveSeccomp waits for a call that is put to the listener. ENOENT and EINTR mean that
// there is none any more, and that the next one may be waited for.
func ReceiveSeccomp(fd int) (n SeccompNotification, err error) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
		uintptr(unsafe.Pointer(&n))); errno != 0 {
		return n, errno
	}
	return n, nil
}

// RefuseSeccomp makes a call fail with errno. ENOENT means that its process is gone.
func RefuseSeccomp(fd int, id uint64, errno unix.Errno) error {
	return answerSeccomp(fd, &seccompAnswer{id: id, errno: -int32(errno)})
}

// ContinueSeccomp lets a call go on, as if nobody had been asked. What it was asked about is no
// decision then: the process can have changed its arguments meanwhile.
func ContinueSeccomp(fd int, id uint64) error {
	return answerSeccomp(fd, &seccompAnswer{id: id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

// answerSeccomp answers once: a signal before that only delays it.
func answerSeccomp(fd int, answer *seccompAnswer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND,
			uintptr(unsafe.Pointer(answer)))
		switch {
		case errno == 0:
			return nil
		case !errors.Is(errno, unix.EINTR):
			return errno
		}
	}
}
