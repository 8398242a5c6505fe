package harden

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	// Offsets in struct seccomp_data (linux/seccomp.h), of arguments the lower half on little-endian machines.
	offNr, offArch, offArg0, offArg1, offArg2 = 0, 4, 16, 24, 32

	load  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	atl   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	set   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	and   = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	ret   = unix.BPF_RET | unix.BPF_K

	allow  = unix.SECCOMP_RET_ALLOW
	kill   = unix.SECCOMP_RET_KILL_PROCESS
	eperm  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	enosys = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	enotty = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOTTY)
)

// begin is how each program begins: another architecture or ABI is killed, and then the number of the call is loaded.
func begin() []unix.SockFilter {
	const x32Bit = 0x40000000 // marks calls of the x32 ABI, which have the same audit architecture
	return []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: equal, K: auditArch, Jt: 1},
		{Code: ret, K: kill},
		{Code: load, K: offNr},
		{Code: atl, K: x32Bit, Jf: 1},
		{Code: ret, K: kill},
	}
}

// each ends calls of a list in one way.
func each(list []uint32, how uint32) (prog []unix.SockFilter) {
	for _, nr := range list {
		prog = append(prog, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: ret, K: how})
	}
	return prog
}

// encode is the program as the kernel takes it.
func encode(prog []unix.SockFilter) []byte {
	var b bytes.Buffer
	_ = binary.Write(&b, binary.NativeEndian, prog) // a Buffer takes everything
	return b.Bytes()
}
