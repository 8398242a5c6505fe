package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Describe is a built-in profile for people, and what a call fails with that no rule names.
func Describe(name string) (rules []api.DebugRule, other string, err error) {
	p, err := ByName(name)
	if err != nil {
		return nil, "", err
	}
	for _, r := range p.Rules {
		d := api.DebugRule{Syscalls: r.Syscalls, Action: "allow", Reason: r.Reason}
		if r.Errno != 0 {
			d.Action = unix.ErrnoName(r.Errno)
		}
		var conds []string
		for _, c := range r.When {
			conds = append(conds, fmt.Sprintf("arg%d&%#x == %#x", c.Arg, c.Mask, c.Value))
		}
		d.When = strings.Join(conds, " and ")
		rules = append(rules, d)
	}
	return rules, unix.ErrnoName(Unlisted), nil
}
