package seccomp

import (
	"fmt"

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
