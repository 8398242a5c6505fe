package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// judge foresees, in debug mode, which calls about files fail by permissions: a thread of PID 1 that takes on the
// file system ids, groups and capabilities of whoever calls, and asks the kernel. It decides nothing.
//
// The filter that puts such calls to this thread is its own, too. So all that it opens it opens with ownCall.
type judge struct {
	caps   uint64 // permitted ones of this thread
	now    ids    // that it has taken on
	failed error
}

// ids are whom the kernel asks about when it looks at a file.
type ids struct {
	uid, gid uint32
	groups   []uint32
	caps     uint64 // of fileCaps
	umask    uint32
}

// fileCaps are the capabilities that count for files; the others this thread keeps, to be able to go back.
const fileCaps = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH | 1<<unix.CAP_FOWNER |
	1<<unix.CAP_FSETID | 1<<unix.CAP_LINUX_IMMUTABLE | 1<<unix.CAP_MKNOD | 1<<unix.CAP_SYS_ADMIN

// ownCall is in the upper half of the flags of what this thread opens: see cbpf.AskingAlso. The kernel
// takes an int there. A process that does the same is not reported, and gains nothing else.
const ownCall = 0x68756368

// newJudge is for the calling goroutine, which is locked to its thread.
func newJudge() (*judge, error) {
	self, _, err := readIDs(openOwn, "/proc/thread-self/status")
	if err != nil {
		return nil, err
	}
	j := &judge{now: self}
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return nil, fmt.Errorf("capget: %w", err)
	}
	j.caps = uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32
	return j, nil
}

// become takes on the ids of a process. After a failure this thread is nobody it knows, and judges nothing more.
func (j *judge) become(to ids) error {
	if j.failed != nil {
		return j.failed
	}
	to.caps &= j.caps
	if to.uid == j.now.uid && to.gid == j.now.gid && to.caps == j.now.caps && slices.Equal(to.groups, j.now.groups) {
		return nil
	}
	if err := sys.Marked(ownCall).SetThreadFileIDs(to.uid, to.gid, to.groups); err != nil {
		j.failed = err
		return err
	}
	effective := j.caps&^fileCaps | to.caps // setfsuid has changed them
	data := [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(j.caps)},
		{Effective: uint32(effective >> 32), Permitted: uint32(j.caps >> 32)},
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		j.failed = fmt.Errorf("capset: %w", err)
		return j.failed
	}
	j.now = to
	return nil
}

// openOwn opens a file without asking this thread itself.
func openOwn(path string, flags int) (int, error) { return openatOwn(unix.AT_FDCWD, path, flags) }

func openatOwn(dir int, path string, flags int) (int, error) {
	return sys.OpenatMarked(dir, path, flags, ownCall)
}

// readIDs reads a status file of /proc.
func readIDs(open func(string, int) (int, error), path string) (to ids, tgid int, err error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return to, 0, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Pread(fd, buf, 0)
	if err != nil {
		return to, 0, err
	}
	return parseIDs(buf[:n])
}

// parseIDs parses what proc_pid_status(5) shows.
func parseIDs(text []byte) (to ids, tgid int, err error) {
	seen := 0
	number := func(s string, base, size int) uint64 {
		v, e := strconv.ParseUint(s, base, size)
		err = errors.Join(err, e)
		return v
	}
	for line := range bytes.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		f := strings.Fields(rest)
		switch {
		case name == "Groups":
			for _, g := range f {
				to.groups = append(to.groups, uint32(number(g, 10, 32)))
			}
		case name == "Tgid" && len(f) == 1:
			tgid = int(number(f[0], 10, 31))
		case name == "Uid" && len(f) == 4: // real, effective, saved, file system
			to.uid = uint32(number(f[3], 10, 32))
		case name == "Gid" && len(f) == 4:
			to.gid = uint32(number(f[3], 10, 32))
		case name == "Umask" && len(f) == 1: // not of a process that is ending
			to.umask = uint32(number(f[0], 8, 9))
			continue
		case name == "CapEff" && len(f) == 1:
			to.caps = number(f[0], 16, 64) & fileCaps
		default:
			continue
		}
		seen |= 1 << strings.IndexByte("TUGC", name[0]) // Groups is one with Gid
	}
	if err == nil && seen != 0b1111 {
		err = errors.New("no status of a process")
	}
	return to, tgid, err
}

// target is a thread that waits in a call about files.
type target struct {
	ids
	tid, tgid int
	root      int  // O_PATH, of its root folder
	moved     bool // that is not PID 1's own
	rootName  string
	mem       int
	opened    []int
}

// target takes on the ids of a thread and opens what is needed of it. With its own ids the kernel lets us: of a
// process that is not dumpable, or in a user namespace of its own, nothing can be told.
func (j *judge) target(tid int) (*target, error) {
	proc := "/proc/" + strconv.Itoa(tid)
	who, tgid, err := readIDs(openOwn, proc+"/status")
	if err != nil {
		return nil, err
	}
	if tgid == os.Getpid() {
		return nil, errors.New("a thread of PID 1's own")
	}
	if err := j.become(who); err != nil {
		return nil, err
	}
	t := &target{ids: j.now, tid: tid, tgid: tgid, root: -1, mem: -1}
	t.umask = who.umask
	return t, t.look()
}

// lone is target where there is one id, which everybody has: only capabilities differ. It is not looked at, and takes
// less than a tenth.
func (j *judge) lone(tid int) (*target, error) {
	var data [2]unix.CapUserData
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3, Pid: int32(tid)}
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return nil, err
	}
	who := j.now
	who.caps = (uint64(data[0].Effective) | uint64(data[1].Effective)<<32) & fileCaps
	if err := j.become(who); err != nil {
		return nil, err
	}
	return &target{ids: j.now, tid: tid, root: -1, mem: -1}, nil
}

// look is for what reads its memory and walks its paths. It is closed with t.
func (t *target) look() (err error) {
	proc := "/proc/" + strconv.Itoa(t.tid)
	if t.rootName, err = readlink(unix.AT_FDCWD, proc+"/root"); err != nil {
		return err
	}
	t.moved = t.rootName != "/"
	t.mem, err = t.open(proc+"/mem", unix.O_RDONLY)
	return err
}

// group is the process that the thread is of; 0 of one that is gone.
func (t *target) group() int {
	if t.tgid == 0 {
		_, t.tgid, _ = readIDs(openOwn, "/proc/"+strconv.Itoa(t.tid)+"/status")
	}
	return t.tgid
}

// open opens a file until close.
func (t *target) open(path string, flags int) (int, error) {
	fd, err := openOwn(path, flags)
	if err == nil {
		t.opened = append(t.opened, fd)
	}
	return fd, err
}

func (t *target) close() {
	for _, fd := range t.opened {
		_ = unix.Close(fd)
	}
}

func (t *target) has(capability int) bool { return t.caps&(1<<capability) != 0 }

// bytes reads the memory of the process.
func (t *target) bytes(at uint64, n int) ([]byte, error) {
	buf := make([]byte, n)
	got, err := unix.Pread(t.mem, buf, int64(at))
	if err == nil && got < n {
		err = unix.EFAULT
	}
	return buf, err
}

// text reads a string of its, to the end of a page at a time: what comes behind may not be there.
func (t *target) text(at uint64) (string, error) {
	const page = 4096
	var text []byte
	for len(text) < unix.PathMax {
		buf, err := t.bytes(at, int(page-at%page))
		if err != nil {
			return "", err
		}
		part, _, ended := bytes.Cut(buf, []byte{0})
		text = append(text, part...)
		if ended {
			return string(text), nil
		}
		at += uint64(len(buf))
	}
	return "", unix.ENAMETOOLONG
}

func readlink(dir int, path string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, path, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
