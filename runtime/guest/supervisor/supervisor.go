package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Supervisor answers the system calls that PID 1's filter refuses, for the whole sandbox, as
// the filter itself would, and reports them. A call waits for its answer, so nothing here
// waits for anybody: no lock of PID 1's, which is held over forks, and no room in the channel.
//
// A nil one is that of a sandbox whose filter answers by itself: its methods do nothing.
type Supervisor struct {
	listener *os.File
	prog     []byte // the filter, whose errnos are the answers
	post     func(guestapi.Event) bool
	files    bool      // to be reported, too
	maker    *maker    // nil unless names are made here
	mover    *mover    // nil unless folders are moved here
	ids      *emulator // nil unless ids are emulated

	mu     sync.Mutex // of what is told; nobody waits with it
	told   map[refusedCall]*toldCall
	tokens float64
	filled time.Time
}

// refusedCall is what makes two of them the same: what is not told about costs no look at /proc.
type refusedCall struct {
	nr, pid uint32
	file    string
}

type toldCall struct {
	at      time.Time
	pending int64
}

const (
	maxTold   = 128         // different calls that are remembered
	toldPause = time.Second // between two tellings of the same
)

// Watch is what calls PID 1's filter puts to it, beside those that are refused.
type Watch struct {
	files bool // that name files
	makes bool // that make names; then there is no way without a listener
	moves bool // that rename and link
	ids   bool // about ids and owners
}

// WatchOf is that which hutch-init's arguments ask for.
func WatchOf(args []string) Watch {
	return Watch{
		files: slices.Contains(args, guestapi.ArgFiles), makes: slices.Contains(args, guestapi.ArgMakes),
		moves: slices.Contains(args, guestapi.ArgMoves) || slices.Contains(args, guestapi.ArgMakes),
		ids:   slices.Contains(args, guestapi.ArgIDs),
	}
}

// Install puts the filter in force, for all threads of the process. With a listener, whoever is refused a call is
// told about; where the kernel is older, or something around the sandbox listens already,
// the filter answers by itself.
//
// listen(2) is put to it as well, and goes on: no other way tells of new servers, without rights on the host. So are
// the calls that w is about. Where ids cannot be emulated they are not.
func Install(prog []byte, w Watch) (*Supervisor, error) {
	install := func(killable bool) (*os.File, error) {
		return sys.InstallSeccompListener(cbpf.AskingAlso(cbpf.Asking(prog), nativeArch, asked(w), ownCall), killable)
	}
	w.ids = w.ids && keepsIdentities()
	listener, err := install(w != Watch{})
	if w.ids && !w.makes && errors.Is(err, unix.EINVAL) { // Linux before 5.19: getuid(2) could fail by EINTR
		w.ids = false
		listener, err = install(w.files || w.moves)
	}
	if w.moves && !w.makes && errors.Is(err, unix.EINVAL) { // likewise rename(2), behind which there would be a copy
		w.moves = false
		listener, err = install(false)
	}
	if w.files && !w.makes && errors.Is(err, unix.EINVAL) {
		listener, err = install(false)
	}
	if err == nil {
		r := &Supervisor{listener: listener, prog: prog, files: w.files, told: map[refusedCall]*toldCall{}}
		if w.makes {
			r.maker = &maker{}
		}
		if w.moves {
			r.mover = newMover(r.tellFile)
		}
		if w.ids {
			r.ids = newEmulator()
		}
		return r, nil
	}
	if w.makes {
		return nil, fmt.Errorf("names are to be made by hutch-init: %w", err)
	}
	if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EINVAL) {
		return nil, err
	}
	return nil, sys.InstallSeccomp(prog, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// Serve answers until something is wrong with the listener: it is closed then, and the kernel answers with ENOSYS in
// its place. It takes the calling goroutine's thread. What it reports goes to post, which must not wait, and reports
// whether there was room. Serve must be called before PID 1 opens a file, which may be put to it.
func (r *Supervisor) Serve(post func(guestapi.Event) bool) {
	runtime.LockOSThread() // it is the thread's whole life to wait in the kernel
	r.post = post
	defer r.listener.Close()
	fd := int(r.listener.Fd())
	var files *judge
	if r.files || r.maker != nil || r.mover != nil || r.ids != nil {
		files, _ = newJudge() // without, nothing is told about files, and they are used all the same
	}
	if r.maker != nil && files != nil {
		_ = r.maker.adopt(files) // without, nothing is made that commands cannot make themselves
	}
	if r.mover != nil && files != nil {
		r.mover.adopt(files)
		go r.mover.serve()
	}
	if r.ids != nil && files != nil {
		r.ids.adopt(files)
	}
	for {
		n, err := sys.ReceiveSeccomp(fd)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT): // nobody waits any more
			continue
		case err != nil:
			return
		}
		// Told before it is answered: an exec's end comes after what it was refused.
		errno, allowed := r.decide(&n)
		if allowed {
			switch {
			case n.NR == unix.SYS_LISTEN:
				r.tellListen()
			case r.files && files != nil:
				r.tellFile(&n, files.look(&n))
			}
			err = r.settle(fd, &n)
		} else {
			r.tell(&n, errno, nil)
			err = sys.RefuseSeccomp(fd, n.ID, errno)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}

// settle answers a call that the filter allows.
func (r *Supervisor) settle(fd int, n *sys.SeccompNotification) error {
	out := goesOn
	mine := false
	if r.ids != nil {
		out, mine = r.ids.answer(n, fd)
	}
	if r.mover != nil && !mine {
		out, mine = r.mover.answer(n, fd)
	}
	if r.maker != nil && !mine {
		out = r.maker.answer(n, fd)
	}
	defer out.close()
	switch {
	case out.later:
		return nil
	case out.goesOn:
		return sys.ContinueSeccomp(fd, n.ID)
	case out.errno != 0:
		r.tellFile(n, out.refused)
		return sys.RefuseSeccomp(fd, n.ID, out.errno)
	}
	if out.made != "" { // before the call returns: an exec's end comes after
		r.maker.made.add(out.made)
	}
	if out.fd >= 0 {
		return sys.ReturnSeccompFD(fd, n.ID, out.fd, out.cloexec)
	}
	return sys.ReturnSeccomp(fd, n.ID, out.value)
}

// decide is the errno that the filter has for a call, or that it allows it.
func (r *Supervisor) decide(n *sys.SeccompNotification) (errno unix.Errno, allowed bool) {
	got, err := cbpf.Run(r.prog, &cbpf.Data{NR: n.NR, Arch: n.Arch, Args: n.Args})
	if err == nil && got == unix.SECCOMP_RET_ALLOW {
		return 0, true
	}
	if errno := unix.Errno(got & unix.SECCOMP_RET_DATA); err == nil &&
		got&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO && errno != 0 {
		return errno, false
	}
	return unix.EPERM, false
}

// tellFile posts what was found of a call about files, if anything.
func (r *Supervisor) tellFile(n *sys.SeccompNotification, found *judgement) {
	if found == nil {
		return
	}
	found.at.Path = wireText(found.at.Path)
	r.tell(n, found.errno, &guestapi.RefusedFile{Op: found.op, Path: wireText(found.path), At: found.at})
}

// tellListen says that there is a server in a moment; which one hutchd sees for itself.
func (r *Supervisor) tellListen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mayTell(time.Now()) {
		r.post(guestapi.Event{Ev: guestapi.EvListen})
	}
}

// tell posts a refused call, unless the same was reported a moment ago or too many were.
func (r *Supervisor) tell(n *sys.SeccompNotification, errno unix.Errno, file *guestapi.RefusedFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	key := refusedCall{nr: n.NR, pid: n.PID}
	if file != nil {
		key.file = file.Path
	}
	t := r.told[key]
	if t == nil {
		if len(r.told) >= maxTold {
			clear(r.told)
		}
		t = &toldCall{}
		r.told[key] = t
	}
	t.pending++
	if now.Sub(t.at) < toldPause || !r.mayTell(now) {
		return
	}
	e := guestapi.Refused{NR: n.NR, Args: n.Args, Errno: int(errno), Count: t.pending, PID: int(n.PID), File: file}
	e.Cgroup, e.Session, e.Command = originOf(int(n.PID))
	if r.post(guestapi.Event{Ev: guestapi.EvRefused, Refused: &e}) {
		t.at, t.pending = now, 0
	}
}

// mayTell takes a token. The caller holds r.mu.
func (r *Supervisor) mayTell(now time.Time) bool {
	if r.filled.IsZero() {
		r.tokens, r.filled = guestapi.RefusedBurst, now
	}
	r.tokens = min(guestapi.RefusedBurst, r.tokens+guestapi.RefusedRate*now.Sub(r.filled).Seconds())
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// originOf says which exec a thread belongs to, by its cgroup or else its session, and
// what it calls itself. All is "" and 0 of a process that is gone.
func originOf(pid int) (cgroup string, session int, command string) {
	proc := "/proc/" + strconv.Itoa(pid)
	if data, err := readOwn(proc + "/cgroup"); err == nil {
		for line := range bytes.Lines(data) {
			if path, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::/")); ok &&
				!bytes.ContainsRune(path, '/') {
				cgroup = string(path)
			}
		}
	}
	if data, err := readOwn(proc + "/stat"); err == nil {
		open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
		if open >= 0 && end > open {
			command = string(data[open+1 : end])
			if f := strings.Fields(string(data[end+1:])); len(f) > 3 { // state, ppid, pgrp, session (proc_pid_stat(5))
				session, _ = strconv.Atoi(f[3])
			}
		}
	}
	return cgroup, session, command
}

// readOwn reads the start of a file of /proc, as openOwn opens it.
func readOwn(path string) ([]byte, error) {
	fd, err := openOwn(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return buf[:max(0, n)], err
}

// readAllOwn reads a file, as openOwn opens it.
func readAllOwn(path string) ([]byte, error) {
	fd, err := openOwn(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var text []byte
	for buf := make([]byte, 4096); ; {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return text, err
		}
		text = append(text, buf[:n]...)
	}
}

// Emulates reports whether ids that do not exist are answered for, up to MaxID.
func (r *Supervisor) Emulates() bool { return r != nil && r.ids != nil }

// Makes reports whether names can be made for commands.
func (r *Supervisor) Makes() bool { return r != nil && r.maker != nil }

// Rules are those of SetRules; nil without.
func (r *Supervisor) Rules() *Rules {
	if !r.Makes() {
		return nil
	}
	return r.maker.rules.Load()
}

// SetRules says where commands cannot make names, which takes Makes.
func (r *Supervisor) SetRules(rules *Rules) { r.maker.rules.Store(rules) }

// Made hands over which repositories there are since it did so last: number is that of this answer, acks are those of
// earlier ones that have arrived.
func (r *Supervisor) Made(number uint64, acks []uint64) (paths []string, more bool) {
	if !r.Makes() {
		return nil, false
	}
	return r.maker.made.take(number, acks)
}

// Hold lets no folder be moved until Release, and waits until the one that is being moved is. After wait it returns
// that folder.
func (r *Supervisor) Hold(wait time.Duration) (folder string) {
	if r == nil || r.mover == nil {
		return ""
	}
	return r.mover.hold(wait)
}

// Release ends Hold.
func (r *Supervisor) Release() {
	if r != nil && r.mover != nil {
		r.mover.release()
	}
}

// Become is the resource limit by which a command takes itself for a user who does not exist. It takes Emulates.
func (r *Supervisor) Become(uid, gid uint32, groups []uint32) (guestapi.Rlimit, error) {
	return r.ids.begin(uid, gid, groups)
}
