package seccomp

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// maxErrno is the largest errno that a rule may answer with. SECCOMP_RET_DATA has 16 bits; the
// kernel clamps them to MAX_ERRNO, 4095 (linux/err.h), and libseccomp takes what is below that
// (src/system.c, sys_chk_seccomp_action).
const maxErrno = 4094

// Unlisted is the answer to every system call that no rule names. ENOSYS makes
// libc take its fallback for a kernel without the call, which every libc has.
const Unlisted = unix.ENOSYS

// Profile is a system call policy as data: an allow-list. It says nothing about
// how it is compiled.
//
// Rules are read in order and the first that matches a call decides. A call
// without a matching rule fails with Unlisted; one made for another
// architecture kills the process (see Compile).
type Profile struct {
	Name  string
	Rules []Rule
}

// Rule decides about a set of system calls.
type Rule struct {
	// Reason says why, for a reader of the table. It has no effect.
	Reason string
	// Syscalls are kernel names. A name that the compiled architecture lacks is
	// skipped (arm64 has no open).
	Syscalls []string
	// When holds the conditions on the arguments, all of which must be true.
	// Without any the rule always matches.
	When []Cond
	// Errno is what the call fails with; 0 allows it.
	Errno unix.Errno
	// Probe says that programs try these calls to find out whether they are there, and do as well
	// without: a refusal is no news. It has no effect on the filter.
	Probe bool
}

// Cond is true when the masked argument equals Value: args[Arg]&Mask == Value.
//
// There is no unmasked comparison on purpose. The kernel reads most arguments
// as 32-bit integers, whatever the upper half of the register holds, so a
// filter that compares all 64 bits is bypassed by setting one of them
// (CVE-2019-10063).
type Cond struct {
	Arg   uint // 0 to 5
	Mask  uint64
	Value uint64
}

// matches reports whether every condition of r holds for args.
func (r Rule) matches(args [6]uint64) bool {
	for _, c := range r.When {
		if args[c.Arg]&c.Mask != c.Value {
			return false
		}
	}
	return true
}

// Decide is the errno with which the named call and arguments fail under p, 0
// when the call is allowed. It is the definition that compiled programs are
// checked against.
func (p Profile) Decide(name string, args [6]uint64) unix.Errno {
	for _, r := range p.Rules {
		for _, s := range r.Syscalls {
			if s == name && r.matches(args) {
				return r.Errno
			}
		}
	}
	return Unlisted
}

// Validate reports every mistake in the table that can be seen without a
// kernel.
func (p Profile) Validate() error {
	var errs []error
	if p.Name == "" {
		errs = append(errs, errors.New("profile without a name"))
	}
	final := map[string]int{} // name -> index of the rule that decides without conditions
	for i, r := range p.Rules {
		if err := r.validate(); err != nil {
			errs = append(errs, fmt.Errorf("profile %q: rule %d %v: %w", p.Name, i, r.Syscalls, err))
		}
		for _, s := range r.Syscalls {
			if by, ok := final[s]; ok {
				errs = append(errs, fmt.Errorf("profile %q: rule %d: %s is already decided by rule %d", p.Name,
					i, s, by))
			}
			if len(r.When) == 0 {
				final[s] = i
			}
		}
	}
	return errors.Join(errs...)
}

// validate reports what is wrong with one rule.
func (r Rule) validate() error {
	switch {
	case r.Reason == "":
		return errors.New("no reason")
	case len(r.Syscalls) == 0:
		return errors.New("no system calls")
	case r.Errno == Unlisted:
		return fmt.Errorf("errno %d is what calls without a rule get: leave it out", uint(r.Errno))
	case r.Errno > maxErrno:
		return fmt.Errorf("errno %d is above %d", uint(r.Errno), uint(maxErrno))
	}
	var seen uint
	for _, c := range r.When {
		switch {
		case c.Arg > 5:
			return fmt.Errorf("argument %d: a system call has 6", c.Arg)
		case seen&(1<<c.Arg) != 0:
			// libseccomp refuses two comparisons of one argument in a rule.
			return fmt.Errorf("argument %d has two conditions", c.Arg)
		case c.Mask == 0:
			return fmt.Errorf("argument %d: a condition with mask 0 does not look at it", c.Arg)
		case bits.OnesCount64(c.Value&^c.Mask) != 0:
			return fmt.Errorf("argument %d: value %#x has bits outside mask %#x, so it never matches", c.Arg,
				c.Value, c.Mask)
		}
		seen |= 1 << c.Arg
	}
	return nil
}
