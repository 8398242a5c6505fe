package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/treecopy"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// mover makes two calls work in the overlay of a folder as they do in the folder. The kernel does not rename a folder that the layer below
// has: a user namespace cannot have redirect_dir (overlayfs.rst), and it is EXDEV. So git mv and npm fail. A link to a file of the layer
// below has another inode number than the file had, and git clone takes that for an attack. See DESIGN.md, "Folders that PID 1 moves".
type mover struct {
	judge *judge
	work  chan *move // of one goroutine: PID 1 has few threads
	tell  func(*sys.SeccompNotification, *judgement)

	mu       sync.Mutex
	mounts   map[uint64]string // the sandbox's, and where they are
	overlays map[uint64]bool   // those of them that are overlays of folders
}

// What a move may copy: more is EXDEV, and whoever asked copies.
const (
	maxMoveFiles = 50_000
	maxMoveBytes = 1 << 30
	maxMoveDepth = 200 // two files are open for each level
	maxMoves     = 64  // that wait
)

// move is a folder that is being moved. It has its own descriptors of the folders.
type move struct {
	from, to spot
	src      *os.File // the folder
	over     bool     // there is an empty folder where it goes
	n        sys.SeccompNotification
	listener int
}

func newMover(tell func(*sys.SeccompNotification, *judgement)) *mover {
	return &mover{work: make(chan *move, maxMoves), tell: tell}
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
	unix.SYS_LINKAT: func(m *mover, c *making) (outcome, bool) { return m.link(c, 0, 1, 2, 3) },
	// A domain of a program's own would not hold for what PID 1 moves for it. So there are none.
	unix.SYS_LANDLOCK_CREATE_RULESET: noDomain,
	unix.SYS_LANDLOCK_RESTRICT_SELF:  noDomain,
}

func noDomain(*mover, *making) (outcome, bool) { return failsOr(unix.EOPNOTSUPP), true }

// rename moves a folder by a copy where the kernel does not.
func (m *mover) rename(c *making, oldDir, old, dir, name, flags int) (outcome, bool) {
	from, to := c.spot(oldDir, old, 0), c.spot(dir, name, 0)
	if from == nil || to == nil || !m.overlaid(from.fd, to.fd) {
		return goesOn, false
	}
	st := from.there()
	if st == nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || flags&^unix.RENAME_NOREPLACE != 0 || !c.waits() {
		return goesOn, false
	}
	err := sys.Marked(ownCall).Rename(from.fd, from.name+from.slash, to.fd, to.name+to.slash, flags)
	if !errors.Is(err, unix.EXDEV) {
		return failsOr(err), true
	}
	mv, err := m.prepare(c, from, to)
	if err != nil {
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

// prepare is what is asked with the caller's rights. That it may rename the folder the kernel has said before it said EXDEV.
func (m *mover) prepare(c *making, from, to *spot) (*move, error) {
	mv := &move{from: *from, to: *to, n: *c.n, listener: c.listener}
	if st := to.there(); st != nil {
		left, err := names(to.fd, to.name, 1)
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			return nil, unix.ENOTEMPTY
		}
		mv.over = true
	}
	fd, err := sys.Marked(ownCall).Openat2(from.fd, from.name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	mv.src = os.NewFile(uintptr(fd), from.name)
	mv.from.fd, mv.to.fd = -1, -1
	if mv.from.fd, err = unix.FcntlInt(uintptr(from.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		mv.to.fd, err = unix.FcntlInt(uintptr(to.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		mv.close()
		return nil, err
	}
	return mv, nil
}

func (mv *move) close() {
	_ = mv.src.Close()
	for _, fd := range []int{mv.from.fd, mv.to.fd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// serve moves one folder after the other. It takes a thread of PID 1's.
func (m *mover) serve() {
	for mv := range m.work {
		errno := unix.Errno(0)
		if err := m.move(mv); err != nil && !errors.As(err, &errno) {
			errno = unix.EXDEV // it became something else meanwhile
		}
		if errno != 0 {
			m.tell(&mv.n, &judgement{errno: errno, op: guestapi.FileRename, path: path.Join(mv.from.dir, mv.from.name)})
			_ = sys.RefuseSeccomp(mv.listener, mv.n.ID, errno) // or nobody waits any more
		} else {
			_ = sys.ReturnSeccomp(mv.listener, mv.n.ID, 0)
		}
		mv.close()
	}
}

// move copies the folder beside its new place, renames the copy into that, and removes the folder: for a moment there are both, and a
// process that is killed before the copy has its new name leaves the folder as it was.
func (m *mover) move(mv *move) error {
	if m.mountedIn(path.Join(mv.from.dir, mv.from.name)) {
		return unix.EXDEV
	}
	src, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(mv.src.Fd())))
	if err != nil {
		return err
	}
	defer src.Close()
	temp := tempName()
	if err := unix.Mkdirat(mv.to.fd, temp, 0o700); err != nil {
		return err
	}
	err = mv.copy(src, temp)
	if err == nil {
		flags := uint(unix.RENAME_NOREPLACE)
		if mv.over {
			flags = 0
		}
		err = unix.Renameat2(mv.to.fd, temp, mv.to.fd, mv.to.name, flags)
	}
	if err != nil {
		_ = empty(mv.to.fd, temp, 0)
		return err
	}
	// It is done, and the caller may be gone by now. What is left of the folder, because somebody wrote in it meanwhile, stays.
	_ = empty(mv.from.fd, mv.from.name, 0)
	return nil
}

// copy copies src to the folder temp, within bounds and while the caller waits.
func (mv *move) copy(src *os.File, temp string) error {
	fd, err := unix.Openat(mv.to.fd, temp, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), temp)
	defer dst.Close()
	files, bytes := 0, int64(0)
	_, err = treecopy.TreeWith(context.Background(), src, dst, treecopy.Options{Alone: true, AnyDevice: true, Each: func(st *unix.Stat_t) error {
		files, bytes = files+1, bytes+st.Blocks*512
		switch {
		case files > maxMoveFiles, bytes > maxMoveBytes:
			return unix.EXDEV
		case !sys.SeccompWaits(mv.listener, mv.n.ID):
			return unix.EINTR
		}
		return nil
	}})
	return err
}

func tempName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return ".hutch-move-" + hex.EncodeToString(b[:])
}

// empty removes a folder with what is in it, and follows nothing. Others may change it meanwhile: what comes back is not removed again.
func empty(dir int, name string, depth int) error {
	if depth > maxMoveDepth {
		return unix.ENAMETOOLONG
	}
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for {
		list, err := f.ReadDir(256)
		for _, e := range list {
			if !e.IsDir() {
				_ = unix.Unlinkat(fd, e.Name(), 0)
			} else if err := empty(fd, e.Name(), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
		if err != nil {
			return err
		}
	}
}

// names are some of a folder's.
func names(dir int, name string, n int) ([]string, error) {
	fd, err := sys.OpenatMarked(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, ownCall)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	list, err := f.Readdirnames(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// link makes a link for git, which compares the inode numbers of the two names: where they differ it is told that the two are on different
// file systems, and copies. Others do not compare, and would fail where they need a link.
func (m *mover) link(c *making, oldDir, old, dir, name int) (outcome, bool) {
	comm, err := readOwn("/proc/" + strconv.Itoa(c.tid) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "git" {
		return goesOn, false
	}
	from, to := c.spot(oldDir, old, 0), c.spot(dir, name, 0)
	if from == nil || to == nil || !m.overlaid(from.fd, to.fd) {
		return goesOn, false
	}
	before := from.there()
	if before == nil || before.Mode&unix.S_IFMT != unix.S_IFREG || !c.waits() {
		return goesOn, false
	}
	if err := sys.Marked(ownCall).Link(from.fd, from.name, to.fd, to.name, 0); err != nil {
		return failsOr(err), true
	}
	if after := to.there(); after != nil && (after.Ino != before.Ino || after.Dev != before.Dev) {
		_ = unix.Unlinkat(to.fd, to.name, 0)
		return failsOr(unix.EXDEV), true
	}
	return outcome{fd: -1}, true
}

// ours reports whether fd is on a mount of the sandbox's.
func (m *mover) ours(fd int) bool {
	id, ok := mountOf(fd)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mounts == nil && m.readMounts() != nil {
		return false
	}
	_, known := m.mounts[id]
	return ok && known
}

// overlaid reports whether both are on the same overlay of a folder.
func (m *mover) overlaid(a, b int) bool {
	one, ok := mountOf(a)
	other, also := mountOf(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	return ok && also && one == other && m.overlays[one]
}

// mountedIn reports whether something is mounted below a path, where a copy would go into it.
func (m *mover) mountedIn(p string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readMounts() != nil {
		return true
	}
	for _, at := range m.mounts {
		if strings.HasPrefix(at, p+"/") {
			return true
		}
	}
	return false
}

// readMounts reads which mounts there are. The caller holds m.mu.
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
