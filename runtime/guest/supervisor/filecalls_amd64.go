package supervisor

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
	for nr, call := range map[uint32]chownCall{
		unix.SYS_CHOWN:  {dir: noArg, path: 0, uid: 1, gid: 2},
		unix.SYS_LCHOWN: {dir: noArg, path: 0, uid: 1, gid: 2, flags: unix.AT_SYMLINK_NOFOLLOW},
	} {
		idCalls[nr] = func(c *emulation) outcome { return c.chown(&call) }
	}
	moveCalls[unix.SYS_RENAME] = func(m *mover, c *making) (outcome, bool) { return m.rename(c, noArg, 0, noArg, 1, 0) }
	moveCalls[unix.SYS_LINK] = func(m *mover, c *making) (outcome, bool) { return m.link(c, noArg, 0, noArg, 1) }
	for nr, c := range map[uint32]makeCall{
		unix.SYS_OPEN: {1, func(c *making) outcome { return c.open(noArg, 0, c.n.Args[1], uint32(c.n.Args[2]), 0) }},
		unix.SYS_CREAT: {0, func(c *making) outcome {
			return c.open(noArg, 0, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, uint32(c.n.Args[1]), 0)
		}},
		unix.SYS_MKDIR:   {0, func(c *making) outcome { return c.mkdir(noArg, 0, 1) }},
		unix.SYS_MKNOD:   {0, func(c *making) outcome { return c.mknod(noArg, 0, 1) }},
		unix.SYS_SYMLINK: {0, func(c *making) outcome { return c.symlink(0, noArg, 1) }},
		unix.SYS_LINK:    {0, func(c *making) outcome { return c.link(noArg, 0, noArg, 1, 0) }},
		unix.SYS_RENAME:  {0, func(c *making) outcome { return c.rename(noArg, 0, noArg, 1, 0) }},
	} {
		makeCalls[nr] = c
	}
}
