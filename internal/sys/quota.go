package sys

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Project quotas of ext4 and xfs: files and folders carry a project's number, a folder's
// new files inherit it, and the kernel holds limits of each number
// (Documentation/admin-guide/xfs.rst, linux/fs.h, linux/quota.h). Only the initial user
// namespace may change numbers and limits.

// fsxattr is struct fsxattr of linux/fs.h.
type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

const (
	fsIocFSGetXattr = 0x801c581f // FS_IOC_FSGETXATTR
	fsIocFSSetXattr = 0x401c5820 // FS_IOC_FSSETXATTR
	projInherit     = 0x200      // FS_XFLAG_PROJINHERIT
)

func (x *fsxattr) ioctl(f *os.File, op uintptr) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	if err := rc.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, op, uintptr(unsafe.Pointer(x)))
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Project is the number that a folder has, 0 for none.
func Project(folder *os.File) (uint32, error) {
	var x fsxattr
	if err := x.ioctl(folder, fsIocFSGetXattr); err != nil {
		return 0, fmt.Errorf("read the project of %s: %w", folder.Name(), err)
	}
	return x.projid, nil
}

// SetProject gives an empty folder, and what will be made in it, a number.
func SetProject(folder *os.File, project uint32) error {
	var x fsxattr
	err := x.ioctl(folder, fsIocFSGetXattr)
	if err == nil {
		x.projid, x.xflags = project, x.xflags|projInherit
		err = x.ioctl(folder, fsIocFSSetXattr)
	}
	if err != nil {
		return fmt.Errorf("make %s project %d: %w", folder.Name(), project, err)
	}
	return nil
}

// ProjectQuota is what a project uses, and its limits; 0 is none.
type ProjectQuota struct {
	LimitBytes, LimitInodes uint64
	UsedBytes, UsedInodes   uint64
}

// dqblk is struct if_nextdqblk of linux/quota.h, whose beginning is struct if_dqblk.
type dqblk struct {
	bhard, bsoft, used   uint64 // limits in KiB
	ihard, isoft, inodes uint64
	btime, itime         uint64
	valid, id            uint32
}

const (
	prjQuota      = 2 // PRJQUOTA
	qGetQuota     = 0x800007
	qSetQuota     = 0x800008
	qGetNextQuota = 0x800009
	qXGetQStat    = 'X'<<8 + 5
	qifLimits     = 1 | 4  // QIF_LIMITS
	pdqEnforced   = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// quotactl is quotactl_fd(2), Linux 5.14, for projects.
func quotactl(f *os.File, op int, id uint32, addr unsafe.Pointer) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno unix.Errno
	if err := rc.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_QUOTACTL_FD, fd, uintptr(op<<8|prjQuota), uintptr(id), uintptr(addr), 0, 0)
	}); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// HasProjectQuota reports whether the file system of a folder holds limits of projects.
func HasProjectQuota(folder *os.File) bool {
	var stat [128]byte // struct fs_quota_stat of linux/dqblk_xfs.h: version, flags, and more
	err := quotactl(folder, qXGetQStat, 0, unsafe.Pointer(&stat))
	return err == nil && *(*uint16)(unsafe.Pointer(&stat[2]))&pdqEnforced != 0
}

// GetProjectQuota reads the quota of a project on the file system of a folder.
func GetProjectQuota(folder *os.File, project uint32) (ProjectQuota, error) {
	q, _, err := getQuota(folder, qGetQuota, project)
	if errors.Is(err, unix.ENOENT) { // xfs, of a number that nobody uses
		err = nil
	}
	return q, err
}

// NextProjectQuota is GetProjectQuota of the first project from this number on that has
// one. It fails with ENOENT when there is none.
func NextProjectQuota(folder *os.File, from uint32) (ProjectQuota, uint32, error) {
	return getQuota(folder, qGetNextQuota, from)
}

func getQuota(folder *os.File, op int, project uint32) (ProjectQuota, uint32, error) {
	var d dqblk
	if err := quotactl(folder, op, project, unsafe.Pointer(&d)); err != nil {
		return ProjectQuota{}, 0, fmt.Errorf("read the quota of project %d: %w", project, err)
	}
	return ProjectQuota{LimitBytes: d.bhard << 10, LimitInodes: d.ihard, UsedBytes: d.used, UsedInodes: d.inodes},
		d.id, nil
}

// SetProjectQuota sets the limits of a project; bytes count in KiB.
func SetProjectQuota(folder *os.File, project uint32, bytes, inodes uint64) error {
	d := dqblk{bhard: bytes >> 10, ihard: inodes, valid: qifLimits}
	if err := quotactl(folder, qSetQuota, project, unsafe.Pointer(&d)); err != nil {
		return fmt.Errorf("set the quota of project %d: %w", project, err)
	}
	return nil
}
