package supervisor

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// makeCall is a call that may make a name.
type makeCall struct {
	flags int // the argument with open(2)'s flags; 0 where each call is meant
	do    func(*making) outcome
}

// makeCalls are all of them but bind(2): a socket gives programs that open it nothing, and its domain may make it.
var makeCalls = map[uint32]makeCall{
	unix.SYS_OPENAT:    {2, func(c *making) outcome { return c.open(0, 1, c.n.Args[2], uint32(c.n.Args[3]), 0) }},
	unix.SYS_OPENAT2:   {0, func(c *making) outcome { return c.open2() }},
	unix.SYS_MKDIRAT:   {0, func(c *making) outcome { return c.mkdir(0, 1, 2) }},
	unix.SYS_MKNODAT:   {0, func(c *making) outcome { return c.mknod(0, 1, 2) }},
	unix.SYS_SYMLINKAT: {0, func(c *making) outcome { return c.symlink(0, 1, 2) }},
	unix.SYS_LINKAT:    {0, func(c *making) outcome { return c.link(0, 1, 2, 3, int(c.n.Args[4])) }},
	unix.SYS_RENAMEAT:  {0, func(c *making) outcome { return c.rename(0, 1, 2, 3, 0) }},
	unix.SYS_RENAMEAT2: {0, func(c *making) outcome { return c.rename(0, 1, 2, 3, int(uint32(c.n.Args[4]))) }},
	// A domain of a program's own would not hold for what PID 1 makes for it. So there are none.
	unix.SYS_LANDLOCK_CREATE_RULESET: {0, func(*making) outcome { return failsOr(unix.EOPNOTSUPP) }},
	unix.SYS_LANDLOCK_RESTRICT_SELF:  {0, func(*making) outcome { return failsOr(unix.EOPNOTSUPP) }},
}

// asked are the calls that PID 1's filter puts to it.
func asked(w Watch) []cbpf.Asked {
	own := func(nr uint32) int { // see sys.Marked
		switch nr {
		case unix.SYS_OPENAT2:
			return 0
		case unix.SYS_SYMLINKAT:
			return 1
		}
		return 2
	}
	all := map[uint32]cbpf.Asked{unix.SYS_LISTEN: {NR: unix.SYS_LISTEN}}
	if w.ids {
		for _, c := range askedIDs() {
			all[c.NR] = c
		}
	}
	if w.moves {
		for nr := range moveCalls {
			all[nr] = cbpf.Asked{NR: nr, Own: own(nr)}
		}
	}
	if w.makes {
		for nr, c := range makeCalls {
			all[nr] = cbpf.Asked{NR: nr, Own: own(nr)}
			if c.flags > 0 {
				all[nr] = cbpf.Asked{NR: nr, Own: own(nr), Arg: c.flags, Mask: unix.O_CREAT}
			}
		}
	}
	if w.files {
		for nr := range fileCalls {
			all[nr] = cbpf.Asked{NR: nr, Own: own(nr)}
		}
	}
	var calls []cbpf.Asked
	for _, nr := range slices.Sorted(maps.Keys(all)) {
		calls = append(calls, all[nr])
	}
	return calls
}

// open2 is openat2(2).
func (c *making) open2() outcome {
	how, err := c.bytes(c.n.Args[2], 24) // struct open_how
	if err != nil || c.n.Args[3] != uint64(len(how)) || binary.NativeEndian.Uint32(how[4:]) != 0 {
		return goesOn
	}
	return c.open(0, 1, binary.NativeEndian.Uint64(how), uint32(binary.NativeEndian.Uint64(how[8:])),
		binary.NativeEndian.Uint64(how[16:]))
}

// openFlags are those that open(2) knows; it passes over others, which openat2(2) refuses.
const openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_NOCTTY | unix.O_TRUNC | unix.O_APPEND |
	unix.O_NONBLOCK | unix.O_SYNC |
	unix.O_ASYNC | unix.O_DIRECT | unix.O_LARGEFILE | unix.O_NOFOLLOW | unix.O_NOATIME

// open is for files that are not there: one that is may be opened without. Where something may take it away meanwhile,
// it is opened here all the same.
func (c *making) open(dir, path int, how uint64, mode uint32, resolve uint64) outcome {
	flags := int(uint32(how))
	const cached = 0x20 // RESOLVE_CACHED (linux/openat2.h), which makes nothing
	if flags&unix.O_CREAT == 0 || flags&(unix.O_PATH|unix.O_DIRECTORY) != 0 || resolve&cached != 0 {
		return goesOn
	}
	s := c.spot(dir, path, resolve)
	if s == nil || s.slash != "" {
		return goesOn
	}
	st := s.there()
	if st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK && flags&(unix.O_EXCL|unix.O_NOFOLLOW) == 0 {
		if resolve != 0 || !c.mayFollow(s, st) {
			return goesOn
		}
		if s = c.behind(dir, path); s == nil {
			return goesOn
		}
		st = s.there()
	}
	refuses := c.rules.refuses(s, false)
	if c.rules.native(s.dir) || st != nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || refuses) || !c.waits() {
		return goesOn
	}
	if refuses {
		return c.refuse(s, guestapi.FileCreate)
	}
	// Not to wait: for who reads a fifo that has come in between, or who holds a lease.
	fd, err := c.begin().Openat2(s.fd, s.name, &unix.OpenHow{
		Flags: uint64(flags&openFlags | unix.O_NONBLOCK | unix.O_CLOEXEC), Mode: uint64(mode & 0o7777),
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.EAGAIN) {
		return goesOn
	}
	if err != nil {
		return failsOr(err)
	}
	if flags&unix.O_NONBLOCK == 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL,
			flags&^(unix.O_NONBLOCK|unix.O_CREAT|unix.O_EXCL|unix.O_TRUNC)); err != nil {
			_ = unix.Close(fd)
			return failsOr(err)
		}
	}
	out := outcome{fd: fd, cloexec: flags&unix.O_CLOEXEC != 0}
	if st == nil {
		out.made = c.rules.made(s)
	}
	return out
}

// mayFollow is the rule of fs.protected_symlinks (proc_sys_fs(5)).
func (c *making) mayFollow(s *spot, link *unix.Stat_t) bool {
	var dir unix.Stat_t
	if unix.Fstat(s.fd, &dir) != nil {
		return false
	}
	return dir.Mode&(unix.S_ISVTX|unix.S_IWOTH) != unix.S_ISVTX|unix.S_IWOTH || link.Uid == c.uid || link.Uid == dir.Uid
}

// behind is where a path leads with symlinks at its end.
func (c *making) behind(dir, path int) *spot {
	text, err := c.text(c.n.Args[path])
	if err != nil {
		return nil
	}
	start, err := c.start(&fileStep{dir: dir}, c.n, text)
	if err != nil {
		return nil
	}
	p := c.found(start, text, true)
	if p == nil || p.parent < 0 {
		return nil
	}
	return c.named(&spot{fd: p.parent, name: p.name})
}

func (c *making) mkdir(dir, path, mode int) outcome {
	s := c.spot(dir, path, 0)
	return c.make(s, true, func(m sys.Marked) error { return m.Mkdir(s.fd, s.name, uint32(c.n.Args[mode])) })
}

func (c *making) mknod(dir, path, mode int) outcome {
	s := c.spot(dir, path, 0)
	return c.make(s, false, func(m sys.Marked) error {
		return m.Mknod(s.fd, s.name, uint32(c.n.Args[mode]), uint64(uint32(c.n.Args[mode+1])))
	})
}

func (c *making) symlink(to, dir, path int) outcome {
	target, err := c.text(c.n.Args[to])
	if err != nil || target == "" {
		return goesOn
	}
	s := c.spot(dir, path, 0)
	if s != nil && !c.rules.native(s.dir) && s.there() == nil && c.rules.refusesLink(s, target) && c.waits() {
		return c.refuse(s, guestapi.FileCreate)
	}
	return c.make(s, false, func(m sys.Marked) error { return m.Symlink(target, s.fd, s.name) })
}

// link links the file that the old path means now.
func (c *making) link(oldDir, old, dir, path, flags int) outcome {
	text, err := c.text(c.n.Args[old])
	if err != nil || flags&^(unix.AT_EMPTY_PATH|unix.AT_SYMLINK_FOLLOW) != 0 || text == "" &&
		flags&unix.AT_EMPTY_PATH == 0 {
		return goesOn
	}
	s := c.spot(dir, path, 0)
	if s == nil || c.rules.native(s.dir) {
		return goesOn
	}
	start, err := c.start(&fileStep{dir: oldDir}, c.n, text)
	if err != nil {
		return goesOn
	}
	fd := start
	if text != "" {
		p := c.found(start, text, flags&unix.AT_SYMLINK_FOLLOW != 0)
		if p == nil || p.fd < 0 {
			return goesOn
		}
		fd = p.fd
	}
	if to, err := readlink(fd, ""); err == nil && s.there() == nil && c.rules.refusesLink(s, to) && c.waits() {
		return c.refuse(s, guestapi.FileCreate)
	}
	return c.make(s, false, func(m sys.Marked) error {
		return m.Link(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), s.fd, s.name, unix.AT_SYMLINK_FOLLOW)
	})
}

func (c *making) rename(oldDir, old, dir, path, flags int) outcome {
	from, to := c.spot(oldDir, old, 0), c.spot(dir, path, 0)
	if from == nil || to == nil || c.rules.native(from.dir) && c.rules.native(to.dir) || from.there() == nil ||
		!c.waits() {
		return goesOn
	}
	if c.rules.holdsMount(from) || flags&unix.RENAME_EXCHANGE != 0 && c.rules.holdsMount(to) {
		return failsOr(unix.EBUSY)
	}
	if c.rules.refuses(to, false) {
		return c.refuse(to, guestapi.FileRename)
	}
	if flags&(unix.RENAME_EXCHANGE|unix.RENAME_WHITEOUT) != 0 && c.rules.refuses(from, false) {
		return c.refuse(from, guestapi.FileRename)
	}
	if c.rules.crosses(from, to) || flags&unix.RENAME_EXCHANGE != 0 && c.rules.crosses(to, from) {
		return failsOr(unix.EXDEV) // whoever moves it copies it then, a name at a time
	}
	replaces := to.there() != nil
	err := c.begin().Rename(from.fd, from.name+from.slash, to.fd, to.name+to.slash, flags)
	out := failsOr(err)
	if err == nil {
		c.rules.changed(from)
		c.rules.changed(to)
		// A HEAD or config that replaces another one, as git does it, makes nothing new of the folder.
		if !replaces || strings.EqualFold(to.name, ".git") {
			out.made = c.rules.made(to)
		}
	}
	return out
}
