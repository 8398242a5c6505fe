package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// topDir is FS_TOPDIR_FL of linux/fs.h, which chattr(1) calls T.
const topDir = 0x20000

// Spread tells ext4 that the folders which will be made in dir have nothing to do with each other: each begins in a block group
// of its own, and what is made below stays near it. Otherwise all of them share their parent's, and where there is no journal
// the kernel takes no inode that was deleted in the last minutes: it searches past those of every sandbox that is
// gone, for each name of the next. Other file systems are left alone.
func Spread(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("spread folders: %w", err)
	}
	defer f.Close()
	fd := int(f.Fd())
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		return err
	}
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topDir == 0 {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDir)
	}
	if err != nil && !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("spread the folders in %s: %w", dir, err)
	}
	return nil
}
