//go:build cgo

package seccomp

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/runtime/api"
)

// CompileCustom makes the program of a profile, for processes that are under Init already.
// Unknown calls are an invalid_argument with the line; so is a profile under which no command
// could start or end. Calls of another architecture kill the process, as everywhere.
//
// What Init allows to PID 1 alone fails with ENOSYS, whatever the profile says. So do calls that are newer
// than the newest one that the profile names, where its default is to refuse: libc takes another way then. That is
// runc's rule (libcontainer/seccomp/patchbpf), for profiles that were written for it.
func CompileCustom(c *Custom) (Program, error) {
	byNumber := map[uint32][]customRule{}
	for _, r := range c.rules {
		nr, ok := numberOf(r.name)
		if !ok {
			if _, err := libseccomp.GetSyscallFromName(r.name); err != nil {
				return Program{}, customError("line %d: %s: no such system call", r.line, r.name)
			}
			continue // another architecture's
		}
		byNumber[nr] = append(byNumber[nr], r)
	}
	prog, err := assembleCustom(c, byNumber)
	if err != nil {
		return Program{}, err
	}
	own, err := ofInitAlone()
	if err != nil {
		return Program{}, err
	}
	newest := newest(c, byNumber)
	prog = cbpf.Refusing(prog, archCodes[runtime.GOARCH], own, newest, x32Bit, unix.ENOSYS)
	if err := checkSize(prog); err != nil {
		return Program{}, customError("%w", err)
	}
	if err := checkStarts(prog); err != nil {
		return Program{}, err
	}
	if err := verifyCustom(prog, c, byNumber, own, newest); err != nil {
		return Program{}, fmt.Errorf("libseccomp %s made another program than the profile says: %w",
			libraryVersion(), err)
	}
	return Program{BPF: prog, Profile: string(api.SeccompCustom)}, nil
}

// numberOf is the number of a call of the running architecture, also of one that is newer than libseccomp.
func numberOf(name string) (uint32, bool) {
	if nr, ok := numbersByName()[name]; ok {
		return nr, true
	}
	return resolveNative(name)
}

var numbersByName = sync.OnceValue(func() map[string]uint32 {
	m := map[string]uint32{}
	for nr, name := range names() {
		m[name] = nr
	}
	return m
})

// ofInitAlone are the calls that Init allows and Default does not.
func ofInitAlone() ([]uint32, error) {
	var calls [2][]call
	for i, p := range []Profile{Init(), Default()} {
		var err error
		if calls[i], err = lowerNative(p); err != nil {
			return nil, err
		}
	}
	more, err := stricter(calls[0], calls[1])
	var out []uint32
	for _, r := range more {
		out = append(out, r.nr)
	}
	return out, err
}

// newest is the highest number that a profile names where its default refuses, and else beyond all numbers.
func newest(c *Custom, byNumber map[uint32][]customRule) uint32 {
	if permits(c.action) || len(byNumber) == 0 {
		return math.MaxUint32
	}
	return slices.Max(slices.Collect(maps.Keys(byNumber)))
}

// permits says whether a call with this action is made.
func permits(a customAction) bool { return a.name == "SCMP_ACT_ALLOW" || a.name == "SCMP_ACT_LOG" }

// assembleCustom has libseccomp write the rules' program.
func assembleCustom(c *Custom, byNumber map[uint32][]customRule) ([]byte, error) {
	action, err := libAction(c.action)
	if err != nil {
		return nil, err
	}
	filter, err := libseccomp.NewFilter(action)
	if err != nil {
		return nil, fmt.Errorf("make filter: %w", err)
	}
	defer filter.Release()
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("set action for foreign architectures: %w", err)
	}
	if err := filter.SetOptimize(2); err != nil {
		return nil, fmt.Errorf("choose binary tree: %w", err)
	}
	for _, nr := range slices.Sorted(maps.Keys(byNumber)) {
		for _, r := range byNumber[nr] {
			if err := addCustom(filter, nr, r, c.action); err != nil {
				return nil, customError("line %d: %s: %w", r.line, r.name, err)
			}
		}
	}
	return export(filter)
}

// verifyCustom runs prog on every number, and on the arguments at the edges of each rule.
func verifyCustom(prog []byte, c *Custom, byNumber map[uint32][]customRule, own []uint32, newest uint32) error {
	arch := archCodes[runtime.GOARCH]
	for nr := range uint32(lastNumber + 1) {
		rules := byNumber[nr]
		samples := [][6]uint64{{}}
		for _, r := range rules {
			samples = append(samples, r.values()...)
		}
		for _, args := range samples {
			action := c.decide(rules, args)
			want, err := actionValue(action)
			if err != nil {
				return err
			}
			if nr > newest || permits(action) && slices.Contains(own, nr) {
				want = returnValue(unix.ENOSYS)
			}
			if err := verifyOne(prog, &cbpf.Data{NR: nr, Arch: arch, Args: args}, want); err != nil {
				return err
			}
		}
	}
	return verifyOne(prog, &cbpf.Data{Arch: foreignArch}, unix.SECCOMP_RET_KILL_PROCESS)
}

// decide is the action for a call. It is what compiled programs are checked against.
func (c *Custom) decide(rules []customRule, args [6]uint64) customAction {
	for _, r := range rules {
		if r.matches(args) {
			return r.action
		}
	}
	return c.action
}

// values are arguments around which a rule's match ends: one that matches, and for each of its comparisons the
// values at its edges.
func (r customRule) values() [][6]uint64 {
	base, _ := overlap(r, customRule{})
	out := [][6]uint64{base}
	for _, a := range r.args {
		low, high := a.span()
		for _, v := range []uint64{
			0, low - 1, low, high, high + 1, a.Value - 1, a.Value, a.Value + 1, a.Value ^ 1<<32, a.Value ^ 1<<63,
			math.MaxUint64,
		} {
			args := base
			args[a.Index] = v
			out = append(out, args)
		}
	}
	return out
}

// checkStarts finds profiles under which the stub could not execute a command, or nothing could end.
func checkStarts(prog []byte) error {
	for _, name := range []string{"execve", "exit_group"} {
		nr, ok := numberOf(name)
		if !ok {
			return fmt.Errorf("no number of %s", name)
		}
		got, err := cbpf.Run(prog, &cbpf.Data{NR: nr, Arch: archCodes[runtime.GOARCH]})
		if err != nil {
			return err
		}
		if got != unix.SECCOMP_RET_ALLOW && got != unix.SECCOMP_RET_LOG {
			return customError("it does not allow %s, so that no command could run", name)
		}
	}
	return nil
}

// addCustom adds one rule. An action that is the default's changes nothing, and libseccomp refuses it.
func addCustom(filter *libseccomp.ScmpFilter, nr uint32, r customRule, other customAction) error {
	if r.action == other {
		return nil
	}
	action, err := libAction(r.action)
	if err != nil {
		return err
	}
	if len(r.args) == 0 {
		return filter.AddRuleExact(libseccomp.ScmpSyscall(nr), action)
	}
	conds := make([]libseccomp.ScmpCondition, len(r.args))
	for i, a := range r.args {
		if conds[i], err = libCondition(a); err != nil {
			return err
		}
	}
	return filter.AddRuleConditionalExact(libseccomp.ScmpSyscall(nr), action, conds)
}

func libCondition(a customArg) (libseccomp.ScmpCondition, error) {
	op := map[string]libseccomp.ScmpCompareOp{
		"SCMP_CMP_NE": libseccomp.CompareNotEqual, "SCMP_CMP_LT": libseccomp.CompareLess,
		"SCMP_CMP_LE": libseccomp.CompareLessOrEqual,
		"SCMP_CMP_EQ": libseccomp.CompareEqual, "SCMP_CMP_GE": libseccomp.CompareGreaterEqual,
		"SCMP_CMP_GT":        libseccomp.CompareGreater,
		"SCMP_CMP_MASKED_EQ": libseccomp.CompareMaskedEqual,
	}[a.Op]
	if op == libseccomp.CompareMaskedEqual {
		return libseccomp.MakeCondition(a.Index, op, a.Value, a.ValueTwo)
	}
	return libseccomp.MakeCondition(a.Index, op, a.Value)
}

func libAction(a customAction) (libseccomp.ScmpAction, error) {
	switch a.name {
	case "SCMP_ACT_ALLOW":
		return libseccomp.ActAllow, nil
	case "SCMP_ACT_ERRNO":
		return libseccomp.ActErrno.SetReturnCode(int16(a.errno)), nil
	case "SCMP_ACT_LOG":
		return libseccomp.ActLog, nil
	case "SCMP_ACT_KILL_THREAD":
		return libseccomp.ActKillThread, nil
	case "SCMP_ACT_KILL_PROCESS":
		return libseccomp.ActKillProcess, nil
	case "SCMP_ACT_TRAP":
		return libseccomp.ActTrap, nil
	}
	return libseccomp.ActInvalid, fmt.Errorf("no action %q", a.name)
}

// actionValue is the SECCOMP_RET_* value of an action.
func actionValue(a customAction) (uint32, error) {
	switch a.name {
	case "SCMP_ACT_ALLOW":
		return unix.SECCOMP_RET_ALLOW, nil
	case "SCMP_ACT_ERRNO":
		return unix.SECCOMP_RET_ERRNO | uint32(a.errno), nil
	case "SCMP_ACT_LOG":
		return unix.SECCOMP_RET_LOG, nil
	case "SCMP_ACT_KILL_THREAD":
		return unix.SECCOMP_RET_KILL_THREAD, nil
	case "SCMP_ACT_KILL_PROCESS":
		return unix.SECCOMP_RET_KILL_PROCESS, nil
	case "SCMP_ACT_TRAP":
		return unix.SECCOMP_RET_TRAP, nil
	}
	return 0, fmt.Errorf("no action %q", a.name)
}
