//go:build cgo

package seccomp

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// profileProbes are calls that tell the profiles apart: with what they fail under each. Where
// strict or build allow one, the errno is the kernel's own.
var profileProbes = map[string]map[string]unix.Errno{
	StrictName: {
		"tcp": unix.EAFNOSUPPORT, "udp": unix.EAFNOSUPPORT, "route": unix.EAFNOSUPPORT, "unix pair": unix.EFAULT,
		"ptrace": unix.EPERM, "winsize": unix.EBADF, "tiocsti": unix.ENOTTY, "open": unix.EFAULT,
		"unshare user": unix.EPERM,
		"setuid":       unix.EPERM, "shmget": unix.ENOSYS, "aio": unix.ENOSYS, "read": unix.EBADF,
	},
	BuildName: {
		"tcp": 0, "udp": 0, "route": 0, "unix pair": unix.EFAULT,
		"ptrace": unix.EPERM, "winsize": unix.EBADF, "tiocsti": unix.EPERM, "open": unix.EFAULT,
		"unshare user": unix.EPERM,
		"setuid":       unix.EINVAL, "shmget": unix.EINVAL, "aio": unix.ENOSYS, "read": unix.EBADF,
	},
	DefaultName: {
		"ptrace": unix.ESRCH, "setuid": unix.EINVAL, "shmget": unix.EINVAL, "aio": unix.EFAULT, "read": unix.EBADF,
		"tables": unix.EBADF, "set flags": unix.EBADF, "flags": unix.EBADF, "keepalive": unix.EBADF,
	},
	BrowserName: {
		"tcp": 0, "udp": 0, "route": unix.EAFNOSUPPORT, "raw": unix.EPERM, "ptrace": unix.ESRCH, "tiocsti": unix.EPERM,
		"clone user": unix.EINVAL, "clone mounts": unix.EPERM, "unshare mounts": unix.EPERM, "setns": unix.EPERM,
		"mount":  unix.EPERM,
		"tables": unix.EPERM, "set flags": unix.EPERM, "flags": unix.EBADF, "keepalive": unix.EBADF,
		"tiocsti high": unix.EPERM,
	},
}

// TestProfilesInTheKernel makes the calls under each profile, as a command is: on top of
// its PID 1's.
func TestProfilesInTheKernel(t *testing.T) {
	for name, want := range profileProbes {
		t.Run(name, func(t *testing.T) {
			p, below := mustProfile(t, name), mustProfile(t, InitFor(name))
			top, err := OnTop(below, p)
			if errors.Is(err, ErrWhole) {
				top = mustCompile(t, p)
			} else if err != nil {
				t.Fatal(err)
			}
			got := runProbes(t, mustCompile(t, below).BPF, top.BPF...)
			for call, errno := range want {
				if got[call] != errno {
					t.Errorf("%s: %v, want %v", call, got[call], errno)
				}
			}
		})
	}
}

func mustProfile(t *testing.T, name string) Profile {
	t.Helper()
	p, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
