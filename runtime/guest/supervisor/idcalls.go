package supervisor

import (
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
)

// idCalls are those about ids and owners. setfsuid(2) and setfsgid(2) are not: they are the kernel's, which says that
// they have changed nothing.
var idCalls = map[uint32]func(*emulation) outcome{
	unix.SYS_GETUID:    func(c *emulation) outcome { return c.get(func(id *identity) uint32 { return id.uid.r }) },
	unix.SYS_GETEUID:   func(c *emulation) outcome { return c.get(func(id *identity) uint32 { return id.uid.e }) },
	unix.SYS_GETGID:    func(c *emulation) outcome { return c.get(func(id *identity) uint32 { return id.gid.r }) },
	unix.SYS_GETEGID:   func(c *emulation) outcome { return c.get(func(id *identity) uint32 { return id.gid.e }) },
	unix.SYS_GETRESUID: func(c *emulation) outcome { return c.getThree(func(id *identity) idSet { return id.uid }) },
	unix.SYS_GETRESGID: func(c *emulation) outcome { return c.getThree(func(id *identity) idSet { return id.gid }) },
	unix.SYS_GETGROUPS: (*emulation).getGroups,

	unix.SYS_SETGROUPS: (*emulation).setGroups,
	unix.SYS_SETUID: func(c *emulation) outcome {
		return c.setUID(1, func(s idSet, root bool) (idSet, unix.Errno) { return s.one(root, c.id(0)) })
	},
	unix.SYS_SETREUID: func(c *emulation) outcome {
		return c.setUID(2, func(s idSet, root bool) (idSet, unix.Errno) { return s.two(root, c.id(0), c.id(1)) })
	},
	unix.SYS_SETRESUID: func(c *emulation) outcome {
		return c.setUID(3, func(s idSet, root bool) (idSet, unix.Errno) {
			return s.three(root, c.id(0), c.id(1),
				c.id(2))
		})
	},
	unix.SYS_SETGID: func(c *emulation) outcome {
		return c.setGID(1, func(s idSet, root bool) (idSet, unix.Errno) { return s.one(root, c.id(0)) })
	},
	unix.SYS_SETREGID: func(c *emulation) outcome {
		return c.setGID(2, func(s idSet, root bool) (idSet, unix.Errno) { return s.two(root, c.id(0), c.id(1)) })
	},
	unix.SYS_SETRESGID: func(c *emulation) outcome {
		return c.setGID(3, func(s idSet, root bool) (idSet, unix.Errno) {
			return s.three(root, c.id(0), c.id(1),
				c.id(2))
		})
	},

	unix.SYS_PRCTL:     (*emulation).keepCaps,
	unix.SYS_PRLIMIT64: func(c *emulation) outcome { return c.setLimit(2, 3) },
	unix.SYS_SETRLIMIT: func(c *emulation) outcome { return c.setLimit(1, noArg) },

	unix.SYS_FCHOWN: func(c *emulation) outcome { return c.chown(&chownCall{dir: 0, path: noArg, uid: 1, gid: 2}) },
	unix.SYS_FCHOWNAT: func(c *emulation) outcome {
		return c.chown(&chownCall{dir: 0, path: 1, uid: 2, gid: 3, flags: int(int32(c.n.Args[4]))})
	},
}

// askedIDs are what the filter asks of idCalls. The argument that carries the mark of this thread's own calls
// matters in those that it makes: about groups, limits and owners.
func askedIDs() (list []cbpf.Asked) {
	for nr := range idCalls {
		c := cbpf.Asked{NR: nr, Own: 2}
		switch nr {
		case unix.SYS_GETGROUPS, unix.SYS_SETGROUPS:
			c.Own = 0
		case unix.SYS_PRCTL:
			c.Arg, c.Mask, c.Is = 0, unix.PR_SET_KEEPCAPS, true
		case unix.SYS_PRLIMIT64:
			c.Own, c.Arg, c.Mask, c.Is = 1, 1, identityLimit, true
		case unix.SYS_SETRLIMIT:
			c.Arg, c.Mask, c.Is = 0, identityLimit, true
		}
		list = append(list, c)
	}
	return list
}

// id is an argument.
func (c *emulation) id(arg int) uint32 { return uint32(c.n.Args[arg]) }

// areIDs reports whether so many arguments are.
func (c *emulation) areIDs(args int) bool {
	for i := range args {
		if !is(c.id(i)) {
			return false
		}
	}
	return true
}

func (c *emulation) setUID(args int, change func(idSet, bool) (idSet, unix.Errno)) outcome {
	return c.set(func(id *identity) (errno unix.Errno) {
		if !c.areIDs(args) {
			return unix.EINVAL
		}
		id.uid, errno = change(id.uid, id.root())
		return errno
	})
}

func (c *emulation) setGID(args int, change func(idSet, bool) (idSet, unix.Errno)) outcome {
	return c.set(func(id *identity) (errno unix.Errno) {
		if !c.areIDs(args) {
			return unix.EINVAL
		}
		id.gid, errno = change(id.gid, id.root())
		return errno
	})
}
