package supervisor

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// maker makes names for commands where they cannot: their Landlock domain has no right to make one in the guarded
// folder. So what is looked at here and what is made cannot be two things, and to let a call go on is
// never more than it could do by itself. See DESIGN.md, "Names that only PID 1 makes".
type maker struct {
	judge *judge
	rules atomic.Pointer[Rules] // nil until setup: nothing is made, and nothing runs
	made  madeList
}

// adopt is for the goroutine of j, which is locked to its thread: from now on that has a umask of its own.
func (m *maker) adopt(j *judge) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	m.judge = j
	return nil
}

// outcome is what becomes of a call.
type outcome struct {
	goesOn  bool
	errno   unix.Errno // it fails
	value   int64      // it returns that
	fd      int        // or this file, if not -1
	cloexec bool
	later   bool       // somebody else answers
	refused *judgement // to be reported
	made    string     // likewise: the folder that has become a repository
}

var goesOn = outcome{goesOn: true, fd: -1}

// close closes the file, of which the caller has another descriptor.
func (o *outcome) close() {
	if o.fd >= 0 {
		_ = unix.Close(o.fd)
	}
}

// failsOr is that of a call which was made.
func failsOr(err error) outcome {
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EACCES
	}
	return outcome{errno: errno, fd: -1}
}

// making is a call under way.
type making struct {
	*target
	rules    *Rules
	ours     func(fd int) bool // whether it is on a mount of the sandbox's
	n        *sys.SeccompNotification
	listener int
}

// spot is a name in a folder.
type spot struct {
	fd    int // O_PATH, of the folder
	dir   string
	name  string
	slash string // "/" where the path ends in one
}

// answer makes the call, if that is PID 1's matter.
func (m *maker) answer(n *sys.SeccompNotification, listener int) outcome {
	rules := m.rules.Load()
	call, ok := makeCalls[n.NR]
	if !ok || rules == nil || m.judge == nil {
		return goesOn
	}
	t, err := m.judge.target(int(n.PID))
	if err != nil {
		return goesOn
	}
	defer t.close()
	return call.do(&making{target: t, rules: rules, ours: rules.ours, n: n, listener: listener})
}

// waits must be asked before anything is made or told: what was read of /proc is the caller's only then.
func (c *making) waits() bool { return sys.SeccompWaits(c.listener, c.n.ID) }

// begin takes on the caller's umask.
func (c *making) begin() sys.Marked {
	unix.Umask(int(c.umask))
	return sys.Marked(ownCall)
}

// spot is where the path of a call leads but for its last name; nil where the kernel is to say why not, or where there
// is nothing to make.
func (c *making) spot(dir, path int, resolve uint64) *spot {
	text, err := c.text(c.n.Args[path])
	if err != nil || text == "" {
		return nil
	}
	trimmed := strings.TrimRight(text, "/")
	at := strings.LastIndexByte(trimmed, '/') + 1
	s := &spot{name: trimmed[at:]}
	if trimmed != text {
		s.slash = "/"
	}
	if s.name == "" || s.name == "." || s.name == ".." {
		return nil
	}
	start, err := c.start(&fileStep{dir: dir}, c.n, text)
	if err != nil {
		return nil
	}
	if s.fd = c.folder(start, trimmed[:at], resolve); s.fd < 0 {
		return nil
	}
	return c.named(s)
}

// named fills in where s is, as PID 1 has it.
func (c *making) named(s *spot) *spot {
	var err error
	if s.dir, err = readlink(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(s.fd)); err != nil ||
		!strings.HasPrefix(s.dir, "/") || !c.ours(s.fd) {
		return nil
	}
	return s
}

// folder opens the folder name; -1 without one.
func (c *making) folder(start int, name string, resolve uint64) int {
	if name == "" {
		return start
	}
	if !c.moved {
		at := start
		if at < 0 {
			at = unix.AT_FDCWD
		}
		fd, err := sys.Marked(ownCall).Openat2(at, name, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err == nil {
			c.opened = append(c.opened, fd)
			return fd
		}
		if !errors.Is(err, unix.ELOOP) {
			return -1
		}
	}
	if resolve != 0 {
		return -1
	}
	p := c.found(start, name, true)
	if p == nil {
		return -1
	}
	return p.fd
}

// found walks to name; nil without such a place. It is closed with c.
func (c *making) found(start int, name string, follow bool) *place {
	p, err := c.walk(start, name, follow)
	if p != nil {
		for _, fd := range []int{p.parent, p.fd} {
			if fd >= 0 {
				c.opened = append(c.opened, fd)
			}
		}
	}
	if err != nil {
		return nil
	}
	return p
}

// there is what s names; nil if nothing.
func (s *spot) there() *unix.Stat_t {
	var st unix.Stat_t
	if unix.Fstatat(s.fd, s.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	return &st
}

// refuse is the outcome of what is guarded.
func (c *making) refuse(s *spot, op string) outcome {
	j := &judgement{errno: unix.EROFS, op: op, path: path.Join(s.dir, s.name)}
	var st unix.Stat_t
	if unix.Fstat(s.fd, &st) == nil {
		j.at = guestapi.RefusedAt{Path: s.dir, UID: st.Uid, GID: st.Gid, Mode: st.Mode, FSUID: c.uid, FSGID: c.gid}
	}
	return outcome{errno: unix.EROFS, fd: -1, refused: j}
}

// make makes s by do, unless it is there, or is the caller's own matter, or guarded.
func (c *making) make(s *spot, emptyFolder bool, do func(sys.Marked) error) outcome {
	switch {
	case s == nil, s.slash != "" && !emptyFolder, c.rules.native(s.dir), s.there() != nil, !c.waits():
		return goesOn
	case c.rules.refuses(s, emptyFolder):
		return c.refuse(s, guestapi.FileCreate)
	}
	err := do(c.begin())
	out := failsOr(err)
	if err == nil {
		c.rules.changed(s)
		out.made = c.rules.made(s)
	}
	return out
}
