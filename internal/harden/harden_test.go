package harden

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
)

// inProcess says that the test binary is to harden itself: it cannot be undone.
const inProcess = "HUTCH_TEST_HARDEN"

// TestProcess: every thread has the filter and no_new_privs, a refused call fails, and what was
// started inherits both; the twin is the same call before.
func TestProcess(t *testing.T) {
	if os.Getenv(inProcess) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestProcess$", "-test.v")
		cmd.Env = append(os.Environ(), inProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	read := func() error {
		word := make([]byte, 8)
		local := []unix.Iovec{{Base: &word[0], Len: 8}}
		_, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
		return err
	}
	if err := read(); !errors.Is(err, unix.EFAULT) {
		t.Errorf("before: %v", err)
	}
	if err := Process(); err != nil {
		t.Fatal(err)
	}
	if err := read(); !errors.Is(err, unix.EPERM) {
		t.Errorf("after: %v", err)
	}
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "NoNewPrivs:\t1\nSeccomp:\t2\n") {
			t.Errorf("%s: %v\n%s", f, err, text)
		}
	}
	out, err := exec.Command("grep", "-c", "-e", "NoNewPrivs:.1", "-e", "Seccomp:.2", "/proc/self/status").
		CombinedOutput()
	if string(out) != "2\n" {
		t.Errorf("what it starts: %v\n%s", err, out)
	}
}

// TestProgram: each listed call is refused, what the runtime needs is not, and a foreign
// architecture kills.
func TestProgram(t *testing.T) {
	run := func(arch, nr uint32) uint32 {
		got, err := cbpf.Run(program(), &cbpf.Data{NR: nr, Arch: arch})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	seen := map[uint32]bool{}
	for _, nr := range append(refused, refusedHere...) {
		if got := run(auditArch, nr); got != unix.SECCOMP_RET_ERRNO|uint32(unix.EPERM) || seen[nr] {
			t.Errorf("call %d: %#x, listed before: %v", nr, got, seen[nr])
		}
		seen[nr] = true
	}
	for _, nr := range []uint32{unix.SYS_READ, unix.SYS_CLONE, unix.SYS_EXECVE, unix.SYS_BPF, unix.SYS_UNSHARE,
		unix.SYS_MOUNT, unix.SYS_SECCOMP} {
		if got := run(auditArch, nr); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("call %d: %#x", nr, got)
		}
	}
	for _, d := range [][2]uint32{{unix.AUDIT_ARCH_I386, unix.SYS_READ}, {auditArch, 0x40000000}} {
		if got := run(d[0], d[1]); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("%#x %#x: %#x", d[0], d[1], got)
		}
	}
}
