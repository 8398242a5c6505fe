package supervisor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/passwd"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestIdentity: a process that takes itself for somebody may do what the kernel lets one do that is, and is who the
// kernel says then.
func TestIdentity(t *testing.T) {
	testenv.Root(t) // only root becomes somebody else
	rules := map[uintptr]func(s idSet, root bool, a []uint32) (idSet, unix.Errno){
		unix.SYS_SETUID:   func(s idSet, root bool, a []uint32) (idSet, unix.Errno) { return s.one(root, a[0]) },
		unix.SYS_SETREUID: func(s idSet, root bool, a []uint32) (idSet, unix.Errno) { return s.two(root, a[0], a[1]) },
		unix.SYS_SETRESUID: func(s idSet, root bool, a []uint32) (idSet, unix.Errno) {
			return s.three(root, a[0], a[1],
				a[2])
		},
		unix.SYS_SETGID:   func(s idSet, root bool, a []uint32) (idSet, unix.Errno) { return s.one(root, a[0]) },
		unix.SYS_SETREGID: func(s idSet, root bool, a []uint32) (idSet, unix.Errno) { return s.two(root, a[0], a[1]) },
		unix.SYS_SETRESGID: func(s idSet, root bool, a []uint32) (idSet, unix.Errno) {
			return s.three(root, a[0], a[1],
				a[2])
		},
	}
	calls := []uintptr{unix.SYS_SETUID, unix.SYS_SETREUID, unix.SYS_SETRESUID, unix.SYS_SETGID, unix.SYS_SETREGID,
		unix.SYS_SETRESGID}
	values := []uint32{0, 0, 33, 44, 55, unchanged, unchanged}
	for seed := range uint64(300) {
		failed := make(chan string)
		go func() { // of which the thread ends with it
			runtime.LockOSThread()
			r := rand.New(rand.NewPCG(seed, 0))
			var id identity
			for step := range 12 {
				nr := calls[r.IntN(len(calls))]
				args := []uint32{values[r.IntN(len(values))], values[r.IntN(len(values))], values[r.IntN(len(values))]}
				isUser := nr == unix.SYS_SETUID || nr == unix.SYS_SETREUID || nr == unix.SYS_SETRESUID
				set := &id.gid
				if isUser {
					set = &id.uid
				}
				to, want := rules[nr](*set, id.root(), args)
				_, _, got := unix.RawSyscall(nr, uintptr(args[0]), uintptr(args[1]), uintptr(args[2]))
				if want == 0 {
					*set = to
				}
				if now := kernelIdentity(); got != want || now.uid != id.uid || now.gid != id.gid {
					failed <- fmt.Sprintf("seed %d step %d: call %d %d: %v and %+v, want %v and %+v", seed, step, nr,
						args, got, now, want, id)
					return
				}
			}
			failed <- ""
		}()
		if text := <-failed; text != "" {
			t.Fatal(text)
		}
	}
}

func kernelIdentity() (id identity) {
	r, e, s := unix.Getresuid()
	id.uid = idSet{uint32(r), uint32(e), uint32(s)}
	r, e, s = unix.Getresgid()
	id.gid = idSet{uint32(r), uint32(e), uint32(s)}
	return id
}

// TestIdentityNumbers: an identity has one number, which is a limit, and there is an end to them.
func TestIdentityNumbers(t *testing.T) {
	p := newEmulator()
	if n, err := p.number(identity{}); n != unix.RLIM_INFINITY || err != nil {
		t.Errorf("root is %d %v", n, err)
	}
	seen := map[uint64]bool{}
	var err error
	for i := uint32(0); err == nil && i < maxIdentities; i++ {
		id := identity{uid: idSet{i, 1, 0}, groups: []uint32{i}, grouped: i%2 == 0, keeps: i%3 == 0}
		var n uint64
		if n, err = p.number(id); err != nil {
			continue
		}
		if again, _ := p.number(id); seen[n] || n != again || n >= unix.RLIM_INFINITY {
			t.Fatalf("%d: %d %d", i, n, again)
		}
		seen[n] = true
	}
	if !errors.Is(err, unix.EAGAIN) || len(seen) < 4000 {
		t.Errorf("after %d: %v", len(seen), err)
	}
	for range 2 {
		if _, err := p.number(identity{uid: idSet{1, 1, 1}, groups: make([]uint32, passwd.MaxGroups)}); !errors.Is(err,
			unix.EAGAIN) {
			t.Errorf("one more: %v", err)
		}
	}
	if n, err := p.number(identity{uid: idSet{5, 1, 0}, groups: []uint32{5}}); err != nil || !seen[n] {
		t.Errorf("one that there is: %d %v", n, err)
	}
}
