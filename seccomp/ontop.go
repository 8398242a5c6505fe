//go:build cgo

package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// ErrWhole says that OnTop has no short program.
var ErrWhole = errors.New("arguments decide what is refused on top")

// OnTop is a program for a process that is under base's already: both together decide
// as p does. Filters stack and the strictest answer wins, the newest of equal ones
// (kernel/seccomp.c, seccomp_run_filters), so it holds only what p refuses and base does
// not.
//
// The kernel translates and compiles a filter each time that one is installed: 0.1 ms for
// a whole profile, which every command paid.
//
// It is an error when base refuses what p allows, and ErrWhole when more than the number of a call
// decides what is left: then all of p has to be installed.
func OnTop(base, p Profile) (Program, error) {
	calls, err := lowerNative(p)
	if err != nil {
		return Program{}, err
	}
	below, err := lowerNative(base)
	if err != nil {
		return Program{}, err
	}
	refused, err := stricter(below, calls)
	if errors.Is(err, ErrWhole) {
		return Program{}, err
	}
	if err != nil {
		return Program{}, api.Errorf(api.Internal, "seccomp profile %q on top of %q: %w", p.Name, base.Name, err)
	}
	return Program{
		BPF: refusing(refused, archCodes[runtime.GOARCH]), Profile: p.Name,
		Hash: hash(append(slices.Clone(below), calls...), "on top", runtime.GOARCH),
	}, nil
}

// refusal is a call that always fails.
type refusal struct {
	nr    uint32
	errno unix.Errno
}

// stricter lists what calls refuse and base does not, by number.
func stricter(base, calls []call) ([]refusal, error) {
	byNumber := map[uint32][2]call{}
	for i, list := range [][]call{base, calls} {
		for _, c := range list {
			pair := byNumber[c.nr]
			pair[i] = c
			byNumber[c.nr] = pair
		}
	}
	var refused []refusal
	for nr, pair := range byNumber {
		below, top := pair[0], pair[1]
		both := call{rules: slices.Concat(below.rules, top.rules)} // of whose arguments all values matter
		differ, answers := false, map[unix.Errno]bool{}
		for args := range both.interesting() {
			answer := top.decide(args)
			answers[answer] = true
			switch {
			case below.decide(args) == answer:
				continue
			case answer == 0:
				return nil, fmt.Errorf("call %d with arguments %#x is allowed above, and not below", nr, args)
			}
			differ = true
		}
		if !differ {
			continue
		}
		if len(answers) != 1 {
			return nil, fmt.Errorf("call %d: %w", nr, ErrWhole)
		}
		for errno := range answers {
			refused = append(refused, refusal{nr, errno})
		}
	}
	slices.SortFunc(refused, func(a, b refusal) int { return int(a.nr) - int(b.nr) })
	return refused, nil
}

// refusing is the program that refuses these calls and allows all others; calls of
// another architecture kill the process. (That x32 numbers do so too is base's business:
// none of them is in the list.)
func refusing(list []refusal, arch uint32) []byte {
	var prog []byte
	add := func(code uint16, jt, jf uint8, k uint32) {
		prog = binary.NativeEndian.AppendUint16(prog, code)
		prog = append(prog, jt, jf)
		prog = binary.NativeEndian.AppendUint32(prog, k)
	}
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	add(load, 0, 0, 4) // seccomp_data.arch
	add(equal, 1, 0, arch)
	add(answer, 0, 0, unix.SECCOMP_RET_KILL_PROCESS)
	add(load, 0, 0, 0) // seccomp_data.nr
	for _, r := range list {
		add(equal, 0, 1, r.nr)
		add(answer, 0, 0, returnValue(r.errno))
	}
	add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
	return prog
}
