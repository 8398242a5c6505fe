package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// Program is a compiled profile.
type Program struct {
	// BPF is an array of struct sock_filter (linux/filter.h) in native byte
	// order, as sys.InstallSeccomp and seccomp(2) SECCOMP_SET_MODE_FILTER take it.
	BPF []byte
	// Hash is 64 hexadecimal digits that name the decisions, the architecture and
	// the version of libseccomp that BPF was made from.
	Hash string
	// Profile is the name of the profile.
	Profile string
}

const (
	insnSize = sys.SeccompInsnSize
	maxInsns = sys.SeccompMaxInsns
)

// Len is the number of instructions.
func (p Program) Len() int { return len(p.BPF) / insnSize }

// checkSize reports a program that the kernel would not take because of its
// size.
func checkSize(prog []byte) error {
	if n := len(prog) / insnSize; n == 0 || n > maxInsns || len(prog)%insnSize != 0 {
		return fmt.Errorf("%d bytes are not 1 to %d instructions of %d bytes", len(prog), maxInsns, insnSize)
	}
	return nil
}

// data is struct seccomp_data (linux/seccomp.h) without the instruction
// pointer, which no rule can look at.
type data struct {
	nr   uint32
	arch uint32 // AUDIT_ARCH_*
	args [6]uint64
}

// word is the 32-bit word at offset off, as a load sees it. amd64 and arm64 are
// little endian: the low half of an argument comes first.
func (d *data) word(off uint32) (uint32, error) {
	const argsAt, size = 16, 64
	switch {
	case off%4 != 0 || off >= size:
		return 0, fmt.Errorf("load at offset %d", off)
	case off == 0:
		return d.nr, nil
	case off == 4:
		return d.arch, nil
	case off < argsAt:
		return 0, errors.New("load of the instruction pointer")
	}
	arg := d.args[(off-argsAt)/8]
	if off%8 == 4 {
		arg >>= 32
	}
	return uint32(arg), nil
}

// run executes prog on d as the kernel would and returns the SECCOMP_RET_*
// value. It knows the instructions that libseccomp emits; everything else is an
// error, as is a program that does not end in a return.
func run(prog []byte, d *data) (uint32, error) {
	var acc uint32
	// Jumps only go forward, so the loop ends.
	for pc := 0; pc >= 0 && pc < len(prog)/insnSize; pc++ {
		insn := prog[pc*insnSize:][:insnSize]
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
			if k > maxInsns {
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
