package cbpf

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
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
		unix.SECCOMP_RET_ALLOW, errno | uint32(unix.EPERM), errno | uint32(unix.ENOSYS), errno,
		unix.SECCOMP_RET_KILL_PROCESS,
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

// TestAskingAlso: of calls that are allowed those in the list are asked about, but for the listener's own; all else
// is as before.
func TestAskingAlso(t *testing.T) {
	const arch, own = unix.AUDIT_ARCH_X86_64, 0x1234
	prog := Asking(program(
		unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: 7},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: 8},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	))
	also := AskingAlso(prog, arch, []Asked{{NR: 8, Own: 2}, {NR: 9, Own: 2}, {NR: 7, Own: 2},
		{NR: 10, Own: 1, Arg: 3, Mask: 0x40}, {NR: 11, Own: 2, Arg: 0, Mask: 8, Is: true}}, own)
	for _, test := range []struct {
		d    Data
		want uint32
	}{
		{Data{NR: 7, Arch: arch}, unix.SECCOMP_RET_USER_NOTIF},
		// refused, whoever makes it
		{Data{NR: 7, Arch: arch, Args: [6]uint64{2: own << 32}}, unix.SECCOMP_RET_USER_NOTIF},
		{Data{NR: 8, Arch: arch}, unix.SECCOMP_RET_USER_NOTIF},
		{Data{NR: 9, Arch: arch, Args: [6]uint64{2: own}}, unix.SECCOMP_RET_USER_NOTIF},
		{Data{NR: 9, Arch: arch, Args: [6]uint64{2: own<<32 | 1}}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 9, Arch: unix.AUDIT_ARCH_I386}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 10, Arch: arch, Args: [6]uint64{3: 0x81}}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 10, Arch: arch, Args: [6]uint64{3: 0xc1}}, unix.SECCOMP_RET_USER_NOTIF},
		{Data{NR: 10, Arch: arch, Args: [6]uint64{1: own << 32, 3: 0xc1}}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 11, Arch: arch, Args: [6]uint64{8}}, unix.SECCOMP_RET_USER_NOTIF},
		{Data{NR: 11, Arch: arch, Args: [6]uint64{9}}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 11, Arch: arch, Args: [6]uint64{8, 2: own << 32}}, unix.SECCOMP_RET_ALLOW},
		{Data{NR: 1, Arch: arch}, unix.SECCOMP_RET_ALLOW},
	} {
		if got, err := Run(also, &test.d); err != nil || got != test.want {
			t.Errorf("%+v: %#x %v, want %#x", test.d, got, err, test.want)
		}
	}
}

func FuzzRun(f *testing.F) {
	f.Add(program(unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}), uint32(1), uint64(2))
	f.Fuzz(func(t *testing.T, prog []byte, nr uint32, arg uint64) {
		prog = prog[:len(prog)/sys.SeccompInsnSize*sys.SeccompInsnSize]
		cost.Input(t, prog, func(prog []byte) { _, _ = Run(prog, &Data{NR: nr, Args: [6]uint64{arg}}) })
		d := &Data{NR: nr, Args: [6]uint64{arg}}
		_, _ = Run(Asking(prog), d)
		before, err := Run(prog, d)
		if after, aerr := Run(AskingAlso(prog, 0, []Asked{{NR: ^nr}}, 0), d); err == nil &&
			(aerr != nil || after != before) {
			t.Errorf("%#x %v, before %#x", after, aerr, before)
		}
	})
}
