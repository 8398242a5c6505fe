//go:build cgo

package seccomp

import (
	"errors"
	"fmt"
	"runtime"

	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cbpf"
	"github.com/hutch-sh/hutch/runtime/api"
)

// CompileCustom makes the program of a profile, for processes that are under Init already.
// Unknown calls and rules that contradict each other are an invalid_argument with the
// line; so is a profile under which no command could start or end. Calls of another
// architecture kill the process, as everywhere.
func CompileCustom(c *Custom) (Program, error) {
	action, err := libAction(c.action)
	if err != nil {
		return Program{}, err
	}
	filter, err := libseccomp.NewFilter(action)
	if err != nil {
		return Program{}, fmt.Errorf("make filter: %w", err)
	}
	defer filter.Release()
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return Program{}, fmt.Errorf("set action for foreign architectures: %w", err)
	}
	if err := filter.SetOptimize(2); err != nil {
		return Program{}, fmt.Errorf("choose binary tree: %w", err)
	}
	for _, r := range c.rules {
		if err := addCustom(filter, r, c.action); err != nil {
			return Program{}, customError("line %d: %s: %w", r.line, r.name, err)
		}
	}
	prog, err := export(filter)
	if err != nil {
		return Program{}, err
	}
	if err := checkSize(prog); err != nil {
		return Program{}, customError("%w", err)
	}
	return Program{BPF: prog, Profile: string(api.SeccompCustom)}, checkStarts(prog)
}

// checkStarts finds profiles under which the stub could not execute a command, or nothing could end.
func checkStarts(prog []byte) error {
	for _, name := range []string{"execve", "exit_group"} {
		nr, ok := resolveNative(name)
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

// addCustom adds one rule. Calls that this architecture has not are left out; an action
// that is the default's changes nothing, and libseccomp refuses it.
func addCustom(filter *libseccomp.ScmpFilter, r customRule, other customAction) error {
	nr, ok := resolveNative(r.name)
	if !ok {
		if _, err := libseccomp.GetSyscallFromName(r.name); err != nil {
			return errors.New("no such system call")
		}
		return nil
	}
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
	twice := false
	var seen [6]bool
	for i, a := range r.args {
		if conds[i], err = libCondition(a); err != nil {
			return err
		}
		twice = twice || seen[a.Index]
		seen[a.Index] = true
	}
	if !twice {
		return filter.AddRuleConditionalExact(libseccomp.ScmpSyscall(nr), action, conds)
	}
	// Several comparisons of one argument are alternatives, as OCI runtimes read them.
	for i := range conds {
		if err := filter.AddRuleConditionalExact(libseccomp.ScmpSyscall(nr), action, conds[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func libCondition(a customArg) (libseccomp.ScmpCondition, error) {
	op := map[string]libseccomp.ScmpCompareOp{
		"SCMP_CMP_NE": libseccomp.CompareNotEqual, "SCMP_CMP_LT": libseccomp.CompareLess, "SCMP_CMP_LE": libseccomp.CompareLessOrEqual,
		"SCMP_CMP_EQ": libseccomp.CompareEqual, "SCMP_CMP_GE": libseccomp.CompareGreaterEqual, "SCMP_CMP_GT": libseccomp.CompareGreater,
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
	case "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD":
		return libseccomp.ActKillThread, nil
	case "SCMP_ACT_KILL_PROCESS":
		return libseccomp.ActKillProcess, nil
	case "SCMP_ACT_TRAP":
		return libseccomp.ActTrap, nil
	}
	return libseccomp.ActInvalid, fmt.Errorf("no action %q", a.name)
}
