// Package cbpf runs and rewrites seccomp programs, which are classic BPF, as the kernel sees them: arrays of
// struct sock_filter in native byte order.
package cbpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Asking is prog with calls that it refuses put to whoever has the filter's listener
// (seccomp_unotify(2)) instead. Calls that fail with ENOSYS are left: programs try those
// and take another way, each thread anew.
func Asking(prog []byte) []byte {
	out := slices.Clone(prog)
	for insn := range slices.Chunk(out, sys.SeccompInsnSize) {
		k := binary.NativeEndian.Uint32(insn[4:])
		if binary.NativeEndian.Uint16(insn) != unix.BPF_RET|unix.BPF_K ||
			k&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
			continue
		}
		if errno := unix.Errno(k & unix.SECCOMP_RET_DATA); errno != 0 && errno != unix.ENOSYS {
			binary.NativeEndian.PutUint32(insn[4:], unix.SECCOMP_RET_USER_NOTIF)
		}
	}
	return out
}

// Asked is a call that AskingAlso puts to the listener.
type Asked struct {
	NR   uint32
	Mask uint32 // asked about only with one of these bits in the lower half of Args[Arg]; 0 is always
	Is   bool   // or only where the lower half is Mask
	Arg  int
	Own  int // the argument whose upper half the listener marks, in a call of its own
}

// AskingAlso is prog with these calls, of architecture arch, put to whoever has the filter's listener where prog allows
// them; that one has to let them go on, or make them. A call whose argument Own has own in its upper half, which the
// kernel does not look at where it takes an int, is not asked about: so the listener can make such calls itself.
func AskingAlso(prog []byte, arch uint32, calls []Asked, own uint32) []byte {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		some   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	lower := func(arg int) uint32 { return uint32(16 + arg*8) } // little endian
	out := slices.Clone(prog)
	end := len(out) / sys.SeccompInsnSize
	for pc := range end {
		insn := out[pc*sys.SeccompInsnSize:]
		if binary.NativeEndian.Uint16(insn) == answer &&
			binary.NativeEndian.Uint32(insn[4:]) == unix.SECCOMP_RET_ALLOW {
			binary.NativeEndian.PutUint16(insn, unix.BPF_JMP|unix.BPF_JA)
			binary.NativeEndian.PutUint32(insn[4:], uint32(end-pc-1))
		}
	}
	add := func(code uint16, jt, jf uint8, k uint32) {
		out = binary.NativeEndian.AppendUint16(out, code)
		out = append(out, jt, jf)
		out = binary.NativeEndian.AppendUint32(out, k)
	}
	add(load, 0, 0, 4) // seccomp_data.arch
	add(equal, 1, 0, arch)
	add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
	add(load, 0, 0, 0) // seccomp_data.nr
	for _, c := range calls {
		if c.Mask == 0 {
			add(equal, 0, 4, c.NR)
		} else {
			add(equal, 0, 7, c.NR)
			add(load, 0, 0, lower(c.Arg))
			if c.Is {
				add(equal, 1, 0, c.Mask)
			} else {
				add(some, 1, 0, c.Mask)
			}
			add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
		}
		add(load, 0, 0, lower(c.Own)+4)
		add(equal, 1, 0, own)
		add(answer, 0, 0, unix.SECCOMP_RET_USER_NOTIF)
		add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
	}
	add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
	return out
}

// Refusing is prog with these calls of architecture arch, and those with a number from newest+1 to below bound,
// failing with errno: the former where prog would let them be made, the latter before prog is asked.
func Refusing(prog []byte, arch uint32, calls []uint32, newest, bound uint32, errno unix.Errno) []byte {
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		greater = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		answer  = unix.BPF_RET | unix.BPF_K
	)
	refused := unix.SECCOMP_RET_ERRNO | uint32(errno)
	var out []byte
	add := func(code uint16, jt, jf uint8, k uint32) {
		out = binary.NativeEndian.AppendUint16(out, code)
		out = append(out, jt, jf)
		out = binary.NativeEndian.AppendUint32(out, k)
	}
	if newest < bound {
		add(load, 0, 0, 4) // seccomp_data.arch
		add(equal, 0, 4, arch)
		add(load, 0, 0, 0) // seccomp_data.nr
		add(greater, 0, 2, newest)
		add(atLeast, 1, 0, bound)
		add(answer, 0, 0, refused)
	}
	begin := len(out)
	out = append(out, prog...)
	for _, made := range []uint32{unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG} {
		end := len(out) / sys.SeccompInsnSize
		for at := begin; at < begin+len(prog); at += sys.SeccompInsnSize {
			if insn := out[at:]; binary.NativeEndian.Uint16(insn) == answer &&
				binary.NativeEndian.Uint32(insn[4:]) == made {
				binary.NativeEndian.PutUint16(insn, unix.BPF_JMP|unix.BPF_JA)
				binary.NativeEndian.PutUint32(insn[4:], uint32(end-at/sys.SeccompInsnSize-1))
			}
		}
		add(load, 0, 0, 0)
		for _, nr := range calls {
			add(equal, 0, 1, nr)
			add(answer, 0, 0, refused)
		}
		add(answer, 0, 0, made)
	}
	return out
}

// Data is struct seccomp_data (linux/seccomp.h) without the instruction
// pointer, which no rule can look at.
type Data struct {
	NR   uint32
	Arch uint32 // AUDIT_ARCH_*
	Args [6]uint64
}

// word is the 32-bit word at offset off, as a load sees it. amd64 and arm64 are
// little endian: the low half of an argument comes first.
func (d *Data) word(off uint32) (uint32, error) {
	const argsAt, size = 16, 64
	switch {
	case off%4 != 0 || off >= size:
		return 0, fmt.Errorf("load at offset %d", off)
	case off == 0:
		return d.NR, nil
	case off == 4:
		return d.Arch, nil
	case off < argsAt:
		return 0, errors.New("load of the instruction pointer")
	}
	arg := d.Args[(off-argsAt)/8]
	if off%8 == 4 {
		arg >>= 32
	}
	return uint32(arg), nil
}

// Run executes prog on d as the kernel would and returns the SECCOMP_RET_*
// value. It knows the instructions that libseccomp emits; everything else is an
// error, as is a program that does not end in a return.
func Run(prog []byte, d *Data) (uint32, error) {
	var acc uint32
	// Jumps only go forward, so the loop ends.
	for pc := 0; pc >= 0 && pc < len(prog)/sys.SeccompInsnSize; pc++ {
		insn := prog[pc*sys.SeccompInsnSize:][:sys.SeccompInsnSize]
		code := binary.NativeEndian.Uint16(insn)
		k := binary.NativeEndian.Uint32(insn[4:])
		taken := false
		switch code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			w, err := d.word(k)
			if err != nil {
				return 0, fmt.Errorf("instruction %d: %w", pc, err)
			}
			acc = w
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= k
			continue
		case unix.BPF_RET | unix.BPF_K:
			return k, nil
		case unix.BPF_JMP | unix.BPF_JA:
			if k > sys.SeccompMaxInsns {
				return 0, fmt.Errorf("instruction %d: jump by %d", pc, k)
			}
			pc += int(k)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = acc == k
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			taken = acc > k
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = acc >= k
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = acc&k != 0
		default:
			return 0, fmt.Errorf("instruction %d: unknown code %#x", pc, code)
		}
		if taken {
			pc += int(insn[2])
		} else {
			pc += int(insn[3])
		}
	}
	return 0, errors.New("program does not return")
}
