package supervisor

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/passwd"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// emulator answers calls about ids where the sandbox has only one: package managers change owners and take on users,
// and fail where they cannot. Whom a process takes itself for changes nothing that it may do. See DESIGN.md, "Ids that
// PID 1 emulates".
type emulator struct {
	judge *judge
	ns    string // PID 1's user namespace

	mu     sync.Mutex // never held over a fork
	known  map[string]uint64
	listed []*identity
	taken  int // by them, bytes
}

// identity is whom a process takes itself for.
type identity struct {
	uid, gid idSet
	groups   []uint32
	grouped  bool // setgroups(2) was called; else the groups are the kernel's
	keeps    bool // capabilities, as prctl(2) said, for whatever it is from then on: an execve is not seen
}

// idSet are real, effective and saved id.
type idSet struct{ r, e, s uint32 }

// unchanged is (uid_t)-1, which leaves an id as it is.
const unchanged = ^uint32(0)

// MaxID is the highest id that is emulated: the usual range of subordinate ids (subuid(5)) has as many.
const MaxID = 1<<16 - 1

// is reports whether an id is one, or leaves it as it is.
func is(id uint32) bool { return id <= MaxID || id == unchanged }

// The number of a process's identity is its soft RLIMIT_LOCKS, which the kernel looks at nowhere (since Linux 2.4.25).
// A limit goes with a process through fork and execve, PID 1 can set that of another, and it is gone with the process.
// Whoever sets its own pretends to be somebody else, which it may by setuid(2) as well.
const (
	identityLimit = unix.RLIMIT_LOCKS
	identityFirst = 1<<62 | ownCall
	// maxIdentities bounds the table, in bytes: PID 1 has little memory. It is enough for some five thousand.
	maxIdentities = 1 << 20
)

// keepsIdentities reports whether the limit can have their numbers: whoever started hutch can have lowered it.
func keepsIdentities() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(identityLimit, &limit) == nil && limit.Max == unix.RLIM_INFINITY
}

// of is whom a process takes itself for, and whether that is emulated.
func (p *emulator) of(tid int) (id identity, emulated bool) {
	var limit unix.Rlimit
	if sys.Marked(ownCall).Prlimit(tid, identityLimit, nil, &limit) != nil || limit.Cur < identityFirst {
		return id, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := limit.Cur - identityFirst; n < uint64(len(p.listed)) {
		return *p.listed[n], true
	}
	return id, false
}

// become makes a process take itself for id.
func (p *emulator) become(tid int, id identity) error {
	var limit unix.Rlimit
	if err := sys.Marked(ownCall).Prlimit(tid, identityLimit, nil, &limit); err != nil {
		return err
	}
	value, err := p.number(id)
	if err != nil {
		return err
	}
	limit.Cur = value
	return sys.Marked(ownCall).Prlimit(tid, identityLimit, &limit, nil)
}

// number is the limit that means id.
func (p *emulator) number(id identity) (uint64, error) {
	if !id.grouped && !id.keeps && id.uid == (idSet{}) && id.gid == (idSet{}) {
		return unix.RLIM_INFINITY, nil
	}
	key := id.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.known[key]; ok {
		return n, nil
	}
	if p.taken += 2*len(key) + 128; p.taken > maxIdentities {
		p.taken = maxIdentities
		return 0, unix.EAGAIN // as where the kernel has no memory for credentials
	}
	n := uint64(identityFirst + len(p.listed))
	p.listed, p.known[key] = append(p.listed, &id), n
	return n, nil
}

func (id *identity) key() string {
	list := append([]uint32{id.uid.r, id.uid.e, id.uid.s, id.gid.r, id.gid.e, id.gid.s}, id.groups...)
	for _, is := range []bool{id.grouped, id.keeps} {
		list = append(list, map[bool]uint32{true: 1}[is])
	}
	var b []byte
	for _, v := range list {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	return string(b)
}

// root reports whether id has the capabilities that change ids, or would have.
func (id *identity) root() bool { return id.uid.e == 0 || id.keeps }

// has reports whether v is one of s, or leaves it as it is.
func (s idSet) has(v uint32) bool { return v == unchanged || v == s.r || v == s.e || v == s.s }

// one is setuid(2) and setgid(2).
func (s idSet) one(root bool, v uint32) (idSet, unix.Errno) {
	switch {
	case v == unchanged:
		return s, unix.EINVAL
	case root:
		return idSet{v, v, v}, 0
	case v == s.r || v == s.s:
		s.e = v
		return s, 0
	}
	return s, unix.EPERM
}

// two is setreuid(2) and setregid(2).
func (s idSet) two(root bool, r, e uint32) (idSet, unix.Errno) {
	if !root && (r != unchanged && r != s.r && r != s.e || !s.has(e)) {
		return s, unix.EPERM
	}
	to := idSet{or(r, s.r), or(e, s.e), s.s}
	if r != unchanged || e != unchanged && e != s.r {
		to.s = to.e
	}
	return to, 0
}

// three is setresuid(2) and setresgid(2).
func (s idSet) three(root bool, r, e, saved uint32) (idSet, unix.Errno) {
	if !root && (!s.has(r) || !s.has(e) || !s.has(saved)) {
		return s, unix.EPERM
	}
	return idSet{or(r, s.r), or(e, s.e), or(saved, s.s)}, 0
}

func or(v, old uint32) uint32 {
	if v == unchanged {
		return old
	}
	return v
}

// in reports whether id is in a group.
func (id *identity) in(gid uint32) bool {
	return gid == id.gid.e || slices.Contains(id.groups, gid)
}

// begin is the limit by which a command starts as a user, of whom nobody takes on the rest: it has no capability.
func (p *emulator) begin(uid, gid uint32, groups []uint32) (guestapi.Rlimit, error) {
	id := identity{uid: idSet{uid, uid, uid}, gid: idSet{gid, gid, gid}, groups: slices.Clone(groups), grouped: true}
	slices.Sort(id.groups)
	number, err := p.number(id)
	return guestapi.Rlimit{Resource: identityLimit, Soft: number, Hard: unix.RLIM_INFINITY}, err
}

// newEmulator is without a judge, which the goroutine that serves makes.
func newEmulator() *emulator { return &emulator{known: map[string]uint64{}} }

// adopt is for the goroutine of j. Without, nothing is emulated.
func (p *emulator) adopt(j *judge) {
	var err error
	if p.ns, err = readlink(unix.AT_FDCWD, "/proc/self/ns/user"); err == nil {
		p.judge = j
	}
}

// answer makes the call, if that is PID 1's matter.
func (p *emulator) answer(n *sys.SeccompNotification, listener int) (out outcome, mine bool) {
	do, ok := idCalls[n.NR]
	if !ok {
		return goesOn, false
	}
	if p.judge == nil {
		return goesOn, true
	}
	return do(&emulation{emulator: p, n: n, listener: listener, tid: int(n.PID)}), true
}

// emulation is a call under way.
type emulation struct {
	*emulator
	n        *sys.SeccompNotification
	listener int
	tid      int
}

func (c *emulation) waits() bool { return sys.SeccompWaits(c.listener, c.n.ID) }

// elsewhere reports whether the process is in a user namespace of its own, where ids are real ones. Of one that is
// not dumpable that cannot be seen, nor does it matter: nothing that is emulated gives it anything.
func (c *emulation) elsewhere() bool {
	ns, err := readlink(unix.AT_FDCWD, "/proc/"+strconv.Itoa(c.tid)+"/ns/user")
	if err != nil {
		return false
	}
	return ns != c.ns
}

// get answers with an id; the kernel does for all that emulate nothing.
func (c *emulation) get(of func(*identity) uint32) outcome {
	id, emulated := c.of(c.tid)
	if !emulated || c.elsewhere() {
		return goesOn
	}
	return outcome{value: int64(of(&id)), fd: -1}
}

// list answers with ids that are written where the arguments say.
func (c *emulation) list(write func(*identity, func(at uint64, ids ...uint32) error) outcome) outcome {
	id, emulated := c.of(c.tid)
	if !emulated || c.elsewhere() {
		return goesOn
	}
	t, err := c.judge.lone(c.tid)
	if err != nil {
		return goesOn
	}
	defer t.close()
	mem, err := t.open("/proc/"+strconv.Itoa(c.tid)+"/mem", unix.O_RDWR)
	if err != nil || !c.waits() { // from here on it is this process's memory, whatever becomes of the number
		return goesOn
	}
	return write(&id, func(at uint64, ids ...uint32) error {
		var b []byte
		for _, v := range ids {
			b = binary.NativeEndian.AppendUint32(b, v)
		}
		if n, err := unix.Pwrite(mem, b, int64(at)); err != nil || n < len(b) {
			return unix.EFAULT
		}
		return nil
	})
}

// getThree is getresuid(2) and getresgid(2).
func (c *emulation) getThree(of func(*identity) idSet) outcome {
	return c.list(func(id *identity, write func(uint64, ...uint32) error) outcome {
		s := of(id)
		for i, v := range []uint32{s.r, s.e, s.s} {
			if err := write(c.n.Args[i], v); err != nil {
				return failsOr(err)
			}
		}
		return outcome{fd: -1}
	})
}

// getGroups is getgroups(2).
func (c *emulation) getGroups() outcome {
	size := int32(c.n.Args[0])
	return c.list(func(id *identity, write func(uint64, ...uint32) error) outcome {
		switch {
		case !id.grouped:
			return goesOn
		case size == 0, len(id.groups) == 0:
			return outcome{value: int64(len(id.groups)), fd: -1}
		case size < int32(len(id.groups)):
			return failsOr(unix.EINVAL)
		}
		if err := write(c.n.Args[1], id.groups...); err != nil {
			return failsOr(err)
		}
		return outcome{value: int64(len(id.groups)), fd: -1}
	})
}

// set lets a process take itself for somebody else, as the kernel would with all ids.
func (c *emulation) set(change func(*identity) unix.Errno) outcome {
	if c.elsewhere() {
		return goesOn
	}
	id, _ := c.of(c.tid)
	if errno := change(&id); errno != 0 {
		return failsOr(errno)
	}
	if c.tid == os.Getpid() || !c.waits() {
		return goesOn
	}
	return failsOr(c.become(c.tid, id))
}

// keepCaps is that of prctl(2). The kernel does as it is told, too.
func (c *emulation) keepCaps() outcome {
	_ = c.set(func(id *identity) unix.Errno {
		id.keeps = c.n.Args[1] == 1 && id.root()
		return 0
	})
	return goesOn
}

// setLimit is a setrlimit(2) of the limit that identities are kept in: PAM sets all of them between setgroups(2) and
// setuid(2).
func (c *emulation) setLimit(to, old int) outcome {
	if c.n.Args[to] == 0 || old != noArg && c.n.Args[old] != 0 || c.elsewhere() {
		return goesOn
	}
	return outcome{fd: -1}
}

// setGroups is setgroups(2).
func (c *emulation) setGroups() outcome {
	n := int(int32(c.n.Args[0]))
	if n < 0 || n > passwd.MaxGroups {
		return failsOr(unix.EINVAL)
	}
	t, err := c.judge.lone(c.tid)
	if err != nil {
		return goesOn
	}
	defer t.close()
	if t.look() != nil {
		return goesOn
	}
	groups := make([]uint32, n)
	if n > 0 {
		b, err := t.bytes(c.n.Args[1], 4*n)
		if err != nil {
			return failsOr(unix.EFAULT)
		}
		for i := range groups {
			groups[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
	}
	slices.Sort(groups) // as the kernel keeps them
	return c.set(func(id *identity) unix.Errno {
		if !id.root() {
			return unix.EPERM
		}
		if slices.ContainsFunc(groups, func(g uint32) bool { return g > MaxID }) {
			return unix.EINVAL
		}
		id.groups, id.grouped = groups, true
		return 0
	})
}
