package sandbox

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Linux is the Kernel of every daemon.
type Linux struct{}

// Tmpfs mounts it nowhere.
func (Linux) Tmpfs(options []sys.FSOption, attributes int) (*os.File, error) {
	return sys.FSMount("tmpfs", options, attributes)
}

// Attach mounts what Tmpfs has made.
func (Linux) Attach(mnt *os.File, at string) error { return sys.AttachTree(mnt, at) }

// Reconfigure changes options of what is mounted at a folder.
func (Linux) Reconfigure(at string, options []sys.FSOption) error {
	return sys.FSReconfigure(at, options)
}

// Unmount detaches: an open file of a killed process can keep a mount busy for a moment, and nobody can reach it any
// more.
func (Linux) Unmount(at string) error { return unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }

// Proc is where proc(5) is mounted.
func (Linux) Proc(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// Channel is a socket.
func (Linux) Channel(conn *os.File) (guestapi.Conn, error) { return guestapi.NewSocket(conn) }

// Kill sends SIGKILL.
func (Linux) Kill(pidfd *os.File) error { return sys.KillPidfd(pidfd) }

// Exited looks, and does not wait.
func (Linux) Exited(pidfd *os.File) (bool, error) { return sys.HasExited(pidfd) }

// AwaitExit waits until the pidfd is readable, which is when its process has ended, or until it is closed.
func (Linux) AwaitExit(pidfd *os.File) {
	_ = sys.AwaitExit(pidfd)
}
