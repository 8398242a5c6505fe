package cbpf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

func program(insns ...unix.SockFilter) []byte {
	var prog []byte
	for _, i := range insns {
		prog = binary.NativeEndian.AppendUint16(prog, i.Code)
		prog = append(prog, i.Jt, i.Jf)
		prog = binary.NativeEndian.AppendUint32(prog, i.K)
	}
	return prog
}

// TestAsking: what is refused is asked about, and nothing else changes: not what is allowed, not ENOSYS, not
// a constant that only looks like an answer.
func TestAsking(t *testing.T) {
	const ret, errno = unix.BPF_RET | unix.BPF_K, unix.SECCOMP_RET_ERRNO
	load := unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}
	like := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: errno | 1}
	answers := []uint32{
		unix.SECCOMP_RET_ALLOW, errno | uint32(unix.EPERM), errno | uint32(unix.ENOSYS), errno, unix.SECCOMP_RET_KILL_PROCESS,
		errno | uint32(unix.EAFNOSUPPORT),
	}
	prog := []unix.SockFilter{load, like}
	for _, k := range answers {
		prog = append(prog, unix.SockFilter{Code: ret, K: k})
	}
	before := program(prog...)
	kept := bytes.Clone(before)
	got := Asking(before)
	prog[3].K, prog[7].K = unix.SECCOMP_RET_USER_NOTIF, unix.SECCOMP_RET_USER_NOTIF
	if want := program(prog...); !bytes.Equal(got, want) {
		t.Errorf("%x\nwant %x", got, want)
	}
	if !bytes.Equal(before, kept) {
		t.Error("the program given has changed")
	}
}

func FuzzRun(f *testing.F) {
	f.Add(program(unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}), uint32(1), uint64(2))
	f.Fuzz(func(t *testing.T, prog []byte, nr uint32, arg uint64) {
		prog = prog[:len(prog)/sys.SeccompInsnSize*sys.SeccompInsnSize]
		_, _ = Run(prog, &Data{NR: nr, Args: [6]uint64{arg}})
		_, _ = Run(Asking(prog), &Data{NR: nr})
	})
}
