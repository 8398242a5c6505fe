package seccomp

import (
	"fmt"
	"iter"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
)

const (
	// x32Bit marks the numbers of the x32 ABI, which runs under amd64's
	// architecture code (asm/unistd.h, __X32_SYSCALL_BIT).
	x32Bit = 0x40000000
	// lastNumber is beyond every number in use (471 in Linux 7.0).
	lastNumber = 1023
	// foreignArch is an AUDIT_ARCH_* of no machine.
	foreignArch = 0xdead
)

// returnValue is the SECCOMP_RET_* value of a decision.
func returnValue(errno unix.Errno) uint32 {
	if errno == 0 {
		return unix.SECCOMP_RET_ALLOW
	}
	return unix.SECCOMP_RET_ERRNO | uint32(errno)
}

// verify runs prog on every number and on the argument values where the
// decisions of calls change, and reports the first that differs from the table.
//
// It is there because branches relies on the order in which libseccomp compares,
// which its documentation does not promise: a version that behaves otherwise
// must fail here, not in a sandbox.
func verify(prog []byte, calls []call, arch uint32) error {
	byNumber := make(map[uint32]call, len(calls))
	for _, c := range calls {
		byNumber[c.nr] = c
	}
	// -1 is what a tracer sets to have a call skipped; it also has x32Bit.
	if err := verifyCall(prog, call{}, ^uint32(0), arch); err != nil {
		return err
	}
	for nr := uint32(0); nr <= lastNumber; nr++ {
		if err := verifyCall(prog, byNumber[nr], nr, arch); err != nil {
			return err
		}
		foreign := []cbpf.Data{{NR: nr, Arch: foreignArch}}
		if arch == unix.AUDIT_ARCH_X86_64 {
			foreign = append(foreign, cbpf.Data{NR: nr | x32Bit, Arch: arch},
				cbpf.Data{NR: nr, Arch: unix.AUDIT_ARCH_I386})
		}
		for _, d := range foreign {
			if err := verifyOne(prog, &d, unix.SECCOMP_RET_KILL_PROCESS); err != nil {
				return err
			}
		}
	}
	return nil
}

// verifyCall checks one number with every combination of interesting arguments.
// The zero call is one without rules.
func verifyCall(prog []byte, c call, nr, arch uint32) error {
	for args := range c.interesting() {
		d := cbpf.Data{NR: nr, Arch: arch, Args: args}
		if err := verifyOne(prog, &d, returnValue(c.decide(args))); err != nil {
			return fmt.Errorf("system call %q: %w", c.name, err)
		}
	}
	return nil
}

func verifyOne(prog []byte, d *cbpf.Data, want uint32) error {
	got, err := cbpf.Run(prog, d)
	if err != nil {
		return fmt.Errorf("number %d of architecture %#x with arguments %#x: %w", d.NR, d.Arch, d.Args, err)
	}
	if got != want {
		return fmt.Errorf("number %d of architecture %#x with arguments %#x returns %#x, the table says %#x",
			d.NR, d.Arch, d.Args, got, want)
	}
	return nil
}

// interesting yields every combination of the argument values around which c's
// decision can change.
func (c call) interesting() iter.Seq[[6]uint64] {
	values := c.values()
	return func(yield func([6]uint64) bool) {
		var args [6]uint64
		var walk func(arg int) bool
		walk = func(arg int) bool {
			if arg == len(values) {
				return yield(args)
			}
			for _, v := range values[arg] {
				args[arg] = v
				if !walk(arg + 1) {
					return false
				}
			}
			return true
		}
		walk(0)
	}
}

// values are, for each argument, zero, and for each condition on it the value,
// alone and with every bit that the condition ignores, its neighbours and all
// bits.
func (c call) values() [6][]uint64 {
	var values [6][]uint64
	for i := range values {
		values[i] = []uint64{0}
	}
	seen := map[Cond]bool{}
	for _, r := range c.rules {
		for _, cond := range r.When {
			if seen[cond] {
				continue
			}
			seen[cond] = true
			values[cond.Arg] = append(values[cond.Arg], cond.Value, cond.Value|^cond.Mask, ^uint64(0))
			values[cond.Arg] = append(values[cond.Arg], cond.neighbours()...)
		}
	}
	return values
}

// neighbours are values that differ from c's in one bit of its mask: every one
// for a mask of flags, the lowest and the highest for a number.
func (c Cond) neighbours() []uint64 {
	const fewBits = 8
	if bits.OnesCount64(c.Mask) > fewBits {
		return []uint64{c.Value ^ c.Mask&-c.Mask, c.Value ^ 1<<(bits.Len64(c.Mask)-1)}
	}
	var out []uint64
	for rest := c.Mask; rest != 0; rest &= rest - 1 {
		out = append(out, c.Value^rest&-rest)
	}
	return out
}
