//go:build cgo

package seccomp

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
)

// stacked runs programs as the kernel does, the newest last: the strictest answer wins,
// and the newest of equal ones.
func stacked(d *cbpf.Data, progs ...[]byte) (uint32, error) {
	result := uint32(unix.SECCOMP_RET_ALLOW)
	for i := range progs {
		got, err := cbpf.Run(progs[len(progs)-1-i], d)
		if err != nil {
			return 0, err
		}
		const action = 0xffff0000 // SECCOMP_RET_ACTION_FULL, compared as a signed number
		if int32(got&action) < int32(result&action) {
			result = got
		}
	}
	return result, nil
}

// TestOnTop: whatever is called, a command under both programs gets what Default says.
func TestOnTop(t *testing.T) {
	base := mustCompile(t, Init()).BPF
	top, err := OnTop(Init(), Default())
	if err != nil {
		t.Fatal(err)
	}
	calls, err := lowerNative(Default())
	if err != nil {
		t.Fatal(err)
	}
	byNumber := map[uint32]call{}
	for _, c := range calls {
		byNumber[c.nr] = c
	}
	arch := archCodes[runtime.GOARCH]
	check := func(d cbpf.Data, want uint32) {
		if got, err := stacked(&d, base, top.BPF); err != nil || got != want {
			t.Fatalf("%+v: %#x (%v), want %#x", d, got, err, want)
		}
	}
	for nr := range uint32(lastNumber + 1) {
		c := byNumber[nr]
		for args := range c.interesting() {
			check(cbpf.Data{NR: nr, Arch: arch, Args: args}, returnValue(c.decide(args)))
		}
		check(cbpf.Data{NR: nr, Arch: foreignArch}, unix.SECCOMP_RET_KILL_PROCESS)
		if arch == unix.AUDIT_ARCH_X86_64 {
			check(cbpf.Data{NR: nr | x32Bit, Arch: arch}, unix.SECCOMP_RET_KILL_PROCESS)
		}
	}
	check(cbpf.Data{NR: ^uint32(0), Arch: arch}, returnValue(Unlisted))
	if n := top.Len(); n > 10 {
		t.Errorf("%d instructions", n)
	}
}

// TestOnTopRefuses what a list of numbers cannot say.
func TestOnTopRefuses(t *testing.T) {
	rule := func(errno unix.Errno, when ...Cond) Profile {
		return Profile{Name: "x",
			Rules: []Rule{{Reason: "test", Syscalls: []string{"ioctl"}, When: when, Errno: errno}}}
	}
	tiocsti := Cond{Arg: 1, Mask: int32Mask, Value: unix.TIOCSTI}
	for name, c := range map[string]struct{ base, p Profile }{
		"allowed above only": {rule(unix.EPERM), rule(0)},
		"by argument":        {rule(0), rule(0, tiocsti)},
	} {
		if prog, err := OnTop(c.base, c.p); err == nil {
			t.Errorf("%s: %d instructions", name, prog.Len())
		}
	}
	if prog, err := OnTop(rule(0), rule(0)); err != nil || prog.Len() != 5 {
		t.Errorf("equal profiles: %d instructions, %v", prog.Len(), err)
	}
}
