package guest

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/supervisor"
)

// makeCwd creates the missing folders of dir, an absolute path, and gives them
// to the user. Existing ones, also behind symlinks, are left as they are.
//
// It runs with the rights of the sandbox's root among processes that may have
// fewer: a folder that was swapped between mkdirat and openat must not be given
// away. So only a new one is: opened without following a link, root's and empty. What rules refuse to
// commands, whose links may lead there, is not made here either.
func makeCwd(dir string, cred *credentials, rules *supervisor.Rules) error {
	at, err := openFolder(unix.AT_FDCWD, "/", 0)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(dir, "/") {
		if name == "" || name == "." {
			continue
		}
		next, err := enterOrMake(at, name, cred, rules)
		_ = unix.Close(at)
		if err != nil {
			return fmt.Errorf("%q of %q: %w", name, dir, err)
		}
		at = next
	}
	return unix.Close(at)
}

func openFolder(at int, name string, flags int) (int, error) {
	return unix.Openat(at, name, flags|unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// enterOrMake opens the folder name below at, after creating it if need be.
func enterOrMake(at int, name string, cred *credentials, rules *supervisor.Rules) (int, error) {
	fd, err := openFolder(at, name, unix.O_PATH)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := rules.Check(at, name); err != nil {
		return -1, err
	}
	err = unix.Mkdirat(at, name, 0o755)
	if errors.Is(err, unix.EEXIST) { // somebody was faster, or a dangling link
		return openFolder(at, name, unix.O_PATH)
	}
	if err != nil {
		return -1, err
	}
	fd, err = openFolder(at, name, unix.O_NOFOLLOW)
	if err != nil {
		return -1, err
	}
	if err := giveFolder(fd, cred); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// giveFolder makes an empty folder of root the user's.
func giveFolder(fd int, cred *credentials) error {
	if cred.uid == 0 && cred.gid == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, err := unix.ReadDirent(fd, buf)
	if err != nil {
		return err
	}
	if _, entries, _ := unix.ParseDirent(buf[:n], -1, nil); st.Uid != 0 || entries > 0 {
		return fmt.Errorf("not the folder just created: %w", unix.EBUSY)
	}
	if cred.emulated {
		return supervisor.GiveFolder(fd, cred.uid, cred.gid)
	}
	return unix.Fchown(fd, int(cred.uid), int(cred.gid))
}
