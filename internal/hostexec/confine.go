package hostexec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/harden"
	"github.com/hutch-sh/hutch/internal/sys"
)

// Confines says whether the kernel can hold a command to ReadOnly.
func Confines() bool {
	abi, err := sys.LandlockABI()
	return err == nil && abi >= sys.MinLandlock
}

const (
	readFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE
	readTree  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
	programs  = readTree | unix.LANDLOCK_ACCESS_FS_EXECUTE
	device    = readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	allRights = programs | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// readable is what a confined command may open beside what is below its folder, each with a reason. A scan has found
// that the command reads nothing elsewhere; this holds it to that where the scan was wrong, or a name in the folder is
// a link out of it.
var readable = []struct {
	path   string
	rights uint64
}{
	// programs and their libraries
	{"/usr", programs}, {"/bin", programs}, {"/sbin", programs}, {"/lib", programs}, {"/lib32", programs},
	{"/lib64", programs},
	{"/nix/store", programs}, {"/gnu/store", programs}, // the same, elsewhere
	{"/etc/ld.so.cache", readFile}, {"/etc/ld.so.preload", readFile}, // where libraries are
	{"/etc/passwd", readFile}, {"/etc/group", readFile}, {"/etc/nsswitch.conf", readFile}, // names of users: ls -l, id
	{"/etc/localtime", readFile}, {"/etc/timezone", readFile}, {"/etc/locale.alias", readFile},
	{"/etc/magic", readFile},
	{"/etc/ssl/openssl.cnf", readFile}, // node ends where it is there and cannot be read
	{"/proc/filesystems", readFile}, {"/proc/cpuinfo", readFile}, {"/proc/meminfo", readFile}, {"/proc/stat", readFile},
	{"/proc/uptime", readFile}, {"/proc/loadavg", readFile},
	{"/sys/devices/system", readTree}, // how many processors: nproc
	{"/dev/null", device}, {"/dev/zero", device}, {"/dev/full", device}, {"/dev/random", device},
	{"/dev/urandom", device},
	// pagers set it up; what could type is refused by harden.Command
	{"/dev/tty", device | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
}

// confine puts the calling thread, and what it starts, where it can write no file and read those below dir, and of
// readable. What is open already is not affected: stdio. Landlock does that, and a filter of system calls what it
// leaves: sockets of all kinds, modes, owners and times of files, programs in memory, what a terminal's reader would
// take for its user's (harden.Command). It signals nobody outside, where the kernel can tell (ABI 6, Linux 6.12), and
// nobody at all where it cannot.
func confine(dir string) error {
	abi, err := sys.LandlockABI()
	if err != nil {
		return err
	}
	if abi < sys.MinLandlock {
		return fmt.Errorf("this kernel has Landlock ABI %d, and at least %d is needed", abi, sys.MinLandlock)
	}
	set := unix.LandlockRulesetAttr{Handled_access_fs: allRights}
	if abi >= 4 {
		set.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 5 {
		set.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= scopes {
		set.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	var rules []unix.LandlockPathBeneathAttr
	defer func() {
		for _, r := range rules {
			_ = unix.Close(int(r.Parent_fd))
		}
	}()
	add := func(path string, rights uint64) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: path, Err: err}
		}
		rules = append(rules, unix.LandlockPathBeneathAttr{Allowed_access: rights & set.Handled_access_fs,
			Parent_fd: int32(fd)})
		return nil
	}
	if err := add(dir, readTree); err != nil {
		return err
	}
	for _, r := range readable {
		if err := add(r.path, r.rights); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new rights: %w", err)
	}
	if err := sys.LandlockRestrict(&set, rules); err != nil {
		return err
	}
	return harden.Command(abi < scopes)
}

// scopes is the ABI of Landlock that knows signals and abstract sockets.
const scopes = 6
