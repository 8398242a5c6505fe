package supervisor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// mover makes two calls work in the overlay of a folder as they do in the folder. The kernel does not rename a folder
// that the layer below has: a user namespace cannot have redirect_dir (overlayfs.rst), and it is EXDEV. So git mv and
// npm fail. A link to a file of the layer below has another inode number than the file had, and git clone takes that
// for an attack. See DESIGN.md, "Folders that PID 1 moves".
type mover struct {
	judge *judge
	work  chan *move // of one goroutine: PID 1 has few threads
	tell  func(*sys.SeccompNotification, *judgement)

	moving moving
	// Of the listening thread alone.
	mounts   map[uint64]string // the sandbox's, and where they are
	overlays map[uint64]bool   // those of them that are overlays of folders
}

// What a move may copy: more is EXDEV, and whoever asked copies.
const (
	maxMoveFiles = 20_000 // and as many other names of them
	maxMoveBytes = 1 << 30
	maxMoveDepth = 200     // two files are open for each level
	maxMoveLinks = 1 << 20 // bytes of names of files with several
	maxMoves     = 64      // that wait
	// maxLinkBytes is up to which size a file is copied for a link, while all other calls wait.
	maxLinkBytes = 1 << 20
)

// move is a folder that is being moved. It has its own descriptors of the folders.
type move struct {
	from, to spot
	who      ids
	src      *os.File // the folder
	st       unix.Stat_t
	over     bool // there is a folder where it goes
	n        sys.SeccompNotification
	listener int
	copied   map[movedFile]movedState
}

type movedFile struct{ dev, ino uint64 }

// movedState is by what a file is known to be what was copied.
type movedState struct {
	mtime unix.Timespec
	size  int64
}

func newMover(tell func(*sys.SeccompNotification, *judgement)) *mover {
	m := &mover{work: make(chan *move, maxMoves), tell: tell}
	m.moving.change.L = &m.moving.mu
	return m
}

// adopt is for the goroutine of j, which is locked to its thread.
func (m *mover) adopt(j *judge) { m.judge = j }

// answer makes the call, if it is about the overlay of a folder.
func (m *mover) answer(n *sys.SeccompNotification, listener int) (out outcome, mine bool) {
	call, ok := moveCalls[n.NR]
	if !ok || m.judge == nil {
		return goesOn, false
	}
	t, err := m.judge.target(int(n.PID))
	if err != nil {
		return goesOn, false
	}
	defer t.close()
	return call(m, &making{target: t, ours: m.ours, n: n, listener: listener})
}

// moveCalls are the calls that a mover is asked about.
var moveCalls = map[uint32]func(*mover, *making) (outcome, bool){
	unix.SYS_RENAMEAT: func(m *mover, c *making) (outcome, bool) { return m.rename(c, 0, 1, 2, 3, 0) },
	unix.SYS_RENAMEAT2: func(m *mover, c *making) (outcome, bool) {
		return m.rename(c, 0, 1, 2, 3, int(uint32(c.n.Args[4])))
	},
	unix.SYS_LINKAT: func(m *mover, c *making) (outcome, bool) {
		if c.n.Args[4] != 0 {
			return goesOn, false
		}
		return m.link(c, 0, 1, 2, 3)
	},
	// A domain of a program's own would not hold for what PID 1 moves for it. So there are none.
	unix.SYS_LANDLOCK_CREATE_RULESET: noDomain,
	unix.SYS_LANDLOCK_RESTRICT_SELF:  noDomain,
}

func noDomain(*mover, *making) (outcome, bool) { return failsOr(unix.EOPNOTSUPP), true }

// rename moves a folder by a copy where the kernel does not.
func (m *mover) rename(c *making, oldDir, old, dir, name, flags int) (outcome, bool) {
	from, to := c.spot(oldDir, old, 0), c.spot(dir, name, 0)
	if from == nil || to == nil || !m.overlaid(from.fd, to.fd) || flags&^unix.RENAME_NOREPLACE != 0 {
		return goesOn, false
	}
	st := from.there()
	if st == nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || !c.waits() {
		return goesOn, false
	}
	if m.mountedIn(path.Join(from.dir, from.name)) {
		return failsOr(unix.EBUSY), true // neither moved to where a guard does not look, nor copied into
	}
	mv, err := prepare(c, from, to)
	if err != nil {
		return failsOr(unix.EXDEV), true
	}
	// The kernel decides whether the caller may, and moves what is no folder of the layer below.
	if err := sys.Marked(ownCall).Rename(from.fd, from.name+from.slash, to.fd, to.name+to.slash, flags); !errors.Is(err,
		unix.EXDEV) {
		mv.close()
		return failsOr(err), true
	}
	select {
	case m.work <- mv:
		return outcome{later: true, fd: -1}, true
	default:
		mv.close()
		return failsOr(unix.EXDEV), true
	}
}

// prepare holds what a move is about.
func prepare(c *making, from, to *spot) (*move, error) {
	mv := &move{from: *from, to: *to, who: c.ids, n: *c.n, listener: c.listener, copied: map[movedFile]movedState{}}
	mv.from.fd, mv.to.fd, mv.over = -1, -1, to.there() != nil
	fd, err := sys.Marked(ownCall).Openat2(from.fd, from.name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	mv.src = os.NewFile(uintptr(fd), from.name)
	if err = unix.Fstat(fd, &mv.st); err == nil {
		mv.from.fd, err = unix.FcntlInt(uintptr(from.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err == nil {
		mv.to.fd, err = unix.FcntlInt(uintptr(to.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		mv.close()
		return nil, err
	}
	return mv, nil
}

// name is the folder's, before.
func (mv *move) name() string { return path.Join(mv.from.dir, mv.from.name) }

func (mv *move) close() {
	_ = mv.src.Close()
	for _, fd := range []int{mv.from.fd, mv.to.fd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// serve moves one folder after the other, each as its caller: nothing is done here that the caller could not do by
// itself. It takes a thread of PID 1's. What it asks of the kernel is put to the listening thread, which lets it go on:
// neither waits for the other with a lock.
func (m *mover) serve() {
	runtime.LockOSThread() // which becomes the callers
	j, err := newJudge()
	for mv := range m.work {
		if m.moving.begin(mv) {
			errno := unix.EXDEV
			if err == nil && j.become(mv.who) == nil {
				errno = answerOf(mv.move())
			}
			m.settle(mv, errno)
			m.moving.end()
		}
		mv.close()
	}
}

// settle answers the call that asked for a move.
func (m *mover) settle(mv *move, errno unix.Errno) {
	if errno == unix.EXDEV {
		m.tell(&mv.n, &judgement{errno: errno, op: guestapi.FileRename, path: mv.name()})
	}
	if errno != 0 {
		_ = sys.RefuseSeccomp(mv.listener, mv.n.ID, errno) // or nobody waits any more
	} else {
		_ = sys.ReturnSeccomp(mv.listener, mv.n.ID, 0)
	}
}

// answerOf is what rename(2) can fail with; all else is EXDEV, upon which programs copy by themselves.
func answerOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	for _, e := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.ENOTEMPTY, unix.EEXIST, unix.EINTR,
		unix.ENOTDIR} {
		if errors.Is(err, e) {
			return e
		}
	}
	return unix.EXDEV
}

// move copies the folder beside its new place, renames the copy into that, and takes the folder away: for a moment
// there are both, and a process that is killed before the copy has its new name leaves the folder as it was. The copy
// is made in a folder that nobody but the caller can enter, so that who else may write beside it can put nothing else
// in its place.
func (mv *move) move() error {
	temp := tempName()
	if err := unix.Mkdirat(mv.to.fd, temp, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(mv.to.fd, temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	in := os.NewFile(uintptr(fd), temp)
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Uid != mv.who.uid || st.Mode&0o7777&^unix.S_ISGID != 0o700 ||
		st.Nlink > 2 {
		return errors.Join(unix.EXDEV, err) // somebody else's
	}
	const inner = "moved"
	if err = mv.copy(in, inner); err == nil {
		flags := uint(unix.RENAME_NOREPLACE)
		if mv.over {
			flags = 0
		}
		err = unix.Renameat2(fd, inner, mv.to.fd, mv.to.name, flags)
	}
	if err != nil {
		_ = emptyOut(fd, maxMoveDepth+1, func(*unix.Stat_t) bool { return true })
	}
	_ = unix.Unlinkat(mv.to.fd, temp, unix.AT_REMOVEDIR) // only if it is empty, whatever it is by now
	if err != nil {
		return err
	}
	mv.takeAway()
	return nil
}

// copy copies the folder to a new one in in, within bounds and while the caller waits, and notes what it has copied.
func (mv *move) copy(in *os.File, name string) error {
	if nobodys(&mv.st) {
		return unix.EXDEV
	}
	src, err := mv.open()
	if err != nil {
		return err
	}
	defer src.Close()
	if err := unix.Mkdirat(int(in.Fd()), name, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(int(in.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	defer dst.Close()
	names, bytes := 0, int64(0)
	_, err = treecopy.TreeWith(context.Background(), src, dst, treecopy.Options{
		Alone: true, AnyDevice: true, MaxDepth: maxMoveDepth, MaxLinks: maxMoveLinks,
		Each: func(st *unix.Stat_t) error {
			names, bytes = names+1, bytes+max(st.Size, 0)
			switch {
			case nobodys(st):
				return unix.EXDEV
			case len(mv.copied) >= maxMoveFiles, names > 2*maxMoveFiles, bytes > maxMoveBytes:
				return unix.EXDEV
			case !sys.SeccompWaits(mv.listener, mv.n.ID):
				return unix.EINTR
			}
			mv.copied[movedFile{st.Dev, st.Ino}] = movedState{st.Mtim, st.Size}
			return nil
		},
	})
	return err
}

func tempName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return ".hutch-move-" + hex.EncodeToString(b[:])
}

// open opens the folder that is moved.
func (mv *move) open() (*os.File, error) {
	fd, err := unix.Openat(int(mv.src.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), mv.src.Name()), nil
}

// takeAway removes what was copied, and of folders those that are empty then. What somebody has written in them
// meanwhile stays.
func (mv *move) takeAway() {
	src, err := mv.open()
	if err != nil {
		return
	}
	defer src.Close()
	_ = emptyOut(int(src.Fd()), maxMoveDepth, func(st *unix.Stat_t) bool {
		was, ok := mv.copied[movedFile{st.Dev, st.Ino}]
		return ok && was.mtime == st.Mtim && was.size == st.Size
	})
	if now := mv.from.there(); now != nil && now.Dev == mv.st.Dev && now.Ino == mv.st.Ino {
		_ = unix.Unlinkat(mv.from.fd, mv.from.name, unix.AT_REMOVEDIR)
	}
}

// nobodys reports whether a file belongs to somebody who has no id here: the overlay cannot take it away, and a copy
// would be the caller's. Who is called nobody is taken for one.
func nobodys(st *unix.Stat_t) bool {
	const overflowID = 65534
	return st.Uid == overflowID || st.Gid == overflowID
}

// emptyOut removes what is in a folder and is meant, follows nothing, and enters no mount.
func emptyOut(dir, depth int, meant func(*unix.Stat_t) bool) error {
	if depth == 0 {
		return treecopy.ErrTooDeep
	}
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if meant(&st) {
				remove(dir, name, 0)
			}
			continue
		}
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_BENEATH,
		})
		if err != nil {
			continue
		}
		err = emptyOut(fd, depth-1, meant)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
		remove(dir, name, unix.AT_REMOVEDIR)
	}
	return nil
}

// remove removes a name. Whoever renames a folder need not have the right to write to those in it; their owner can have
// it.
func remove(dir int, name string, flags int) {
	if errors.Is(unix.Unlinkat(dir, name, flags), unix.EACCES) && unix.Fchmod(dir, 0o700) == nil {
		_ = unix.Unlinkat(dir, name, flags)
	}
}

// namesIn are a folder's, at most so many as a move has.
func namesIn(dir int) ([]string, error) {
	own, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), ".")
	defer f.Close()
	names, err := f.Readdirnames(2 * maxMoveFiles)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

// link makes a link for git, which compares the inode numbers of the two names: where they differ it is told that the
// two are on different file systems, and copies. Others do not compare, and would fail where they need a link.
func (m *mover) link(c *making, oldDir, old, dir, name int) (outcome, bool) {
	comm, err := readOwn("/proc/" + strconv.Itoa(c.tid) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "git" {
		return goesOn, false
	}
	from, to := c.spot(oldDir, old, 0), c.spot(dir, name, 0)
	if from == nil || to == nil || from.slash != "" || to.slash != "" || !m.overlaid(from.fd, to.fd) {
		return goesOn, false
	}
	before := from.there()
	if before == nil || before.Mode&unix.S_IFMT != unix.S_IFREG || to.there() != nil || !c.waits() {
		return goesOn, false
	}
	if before.Size > maxLinkBytes {
		return failsOr(unix.EXDEV), true
	}
	if err := sys.Marked(ownCall).Link(from.fd, from.name, to.fd, to.name, 0); err != nil {
		return failsOr(err), true
	}
	if after := to.there(); after != nil && (after.Ino != before.Ino || after.Dev != before.Dev) {
		_ = sys.Marked(ownCall).Unlink(to.fd, to.name, 0)
		return failsOr(unix.EXDEV), true
	}
	return outcome{fd: -1}, true
}

// ours reports whether fd is on a mount of the sandbox's.
func (m *mover) ours(fd int) bool {
	id, ok := mountOf(fd)
	if _, known := m.mounts[id]; !known && (!ok || m.readMounts() != nil) {
		return false
	}
	_, known := m.mounts[id]
	return known
}

// overlaid reports whether both are on the same overlay of a folder.
func (m *mover) overlaid(a, b int) bool {
	one, ok := mountOf(a)
	other, also := mountOf(b)
	return ok && also && one == other && m.overlays[one]
}

// mountedIn reports whether something is mounted below a path.
func (m *mover) mountedIn(p string) bool {
	for _, at := range m.mounts {
		if strings.HasPrefix(at, p+"/") {
			return true
		}
	}
	return false
}

// readMounts reads which mounts there are.
func (m *mover) readMounts() error {
	list, err := readMounts()
	if err != nil {
		return err
	}
	m.mounts, m.overlays = map[uint64]string{}, map[uint64]bool{}
	for _, mt := range list {
		m.mounts[mt.id] = mt.at
		m.overlays[mt.id] = mt.kind == "overlay" && mt.at != "/" && !strings.HasPrefix(mt.at, "/usr")
	}
	return nil
}
