package guest

import "golang.org/x/sys/unix"

// nativeArch is this architecture's in struct seccomp_data.
const nativeArch = unix.AUDIT_ARCH_X86_64

func init() {
	// Calls that newer architectures do not have.
	for nr, steps := range map[uint32][]fileStep{
		unix.SYS_OPEN:    {{need: needOpen, dir: noArg, path: 0, flags: 1}},
		unix.SYS_CREAT:   {{need: needWrite, dir: noArg, path: 0}},
		unix.SYS_MKDIR:   {{need: needName, dir: noArg, path: 0}},
		unix.SYS_MKNOD:   {{need: needName, dir: noArg, path: 0}},
		unix.SYS_SYMLINK: {{need: needName, dir: noArg, path: 1}},
		unix.SYS_LINK:    {{need: needName, dir: noArg, path: 1}},
		unix.SYS_UNLINK:  {{need: needRemove, dir: noArg, path: 0}},
		unix.SYS_RMDIR:   {{need: needRemove, dir: noArg, path: 0}},
		unix.SYS_RENAME:  {{need: needRename, dir: noArg, path: 0}, {need: needReplace, dir: noArg, path: 1}},
		unix.SYS_CHMOD:   {{need: needMode, dir: noArg, path: 0}},
		unix.SYS_CHOWN:   {{need: needOwner, dir: noArg, path: 0, flags: 1}},
		unix.SYS_LCHOWN:  {{need: needOwner, dir: noArg, path: 0, flags: 1, noFollow: true}},
	} {
		fileCalls[nr] = steps
	}
}
