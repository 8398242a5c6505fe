// Package outer does to the calling process what outer containers do to theirs, for
// tests of what hutch says in there.
package outer

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// RefuseUserNamespaces installs what docker's default profile amounts to here:
// clone and unshare with CLONE_NEWUSER are EPERM, clone3 is ENOSYS.
func RefuseUserNamespaces() error {
	const nrClone, nrUnshare, nrClone3 = unix.SYS_CLONE, unix.SYS_UNSHARE, unix.SYS_CLONE3
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(v uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v} }
	eq := func(k uint32, jt, jf uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: jt, Jf: jf}
	}
	program := []unix.SockFilter{
		load(0), // seccomp_data.nr
		eq(nrClone3, 4, 0),
		eq(nrClone, 1, 0),
		eq(nrUnshare, 0, 3),
		load(16), // seccomp_data.args[0], low half
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jt: 2, Jf: 1},
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
		ret(unix.SECCOMP_RET_ALLOW),
		ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
	}
	var raw []byte
	for _, f := range program {
		raw = binary.NativeEndian.AppendUint16(raw, f.Code)
		raw = append(raw, f.Jt, f.Jf)
		raw = binary.NativeEndian.AppendUint32(raw, f.K)
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return sys.InstallSeccomp(raw, unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// MaskProc covers a part of /proc, as docker does.
func MaskProc() error { return unix.Mount("tmpfs", "/proc/tty", "tmpfs", unix.MS_RDONLY, "") }
