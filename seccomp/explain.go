package seccomp

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// names of the running architecture's system calls.
var names = sync.OnceValue(func() map[uint32]string {
	m := map[uint32]string{}
	for line := range strings.Lines(callNumbers) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if nr, err := strconv.ParseUint(number, 10, 32); err == nil {
			m[uint32(nr)] = name
		}
	}
	return m
})

// Refusal says about a refused call what people want to know.
type Refusal struct {
	Call string // its name, or number
	Why  string // the reason in the table
	// HowToAllow is the profile that would let it pass; "" where none does.
	HowToAllow string
	// Probe says that programs try the call and do as well without it: nobody wants to hear of it.
	Probe bool
}

// ownSandbox is what to do about a program that makes a sandbox of its own: it need not, and mostly has a setting.
const ownSandbox = "turn the agent's own sandbox off, hutch is the isolation"

// Explain says why the profile with this name refuses a call to a command.
func Explain(profile string, nr uint32, args [6]uint64) Refusal {
	r := Refusal{Call: names()[nr], Why: "the seccomp profile does not allow it"}
	if r.Call == "" {
		r.Call = "call " + strconv.FormatUint(uint64(nr), 10)
		return r
	}
	p, err := ByName(profile)
	if err != nil { // the caller's own, on top of this one
		p = Default()
	}
	for _, rule := range p.Rules {
		if rule.names(r.Call) && rule.matches(args) {
			r.Why, r.Probe = rule.Reason, rule.Probe
			if rule.Reason == namespaceReason { // by bwrap, mostly, which an agent runs its commands in
				r.Why = ownSandbox + ": " + r.Why
			}
			break
		}
	}
	r.Probe = r.Probe || r.Call == "socket" && isListener(args)
	for _, wider := range []Profile{Default(), Browser()} {
		if wider.Name != profile && p.Decide(r.Call, args) != 0 && wider.Decide(r.Call, args) == 0 {
			r.HowToAllow = "--seccomp " + wider.Name
			break
		}
	}
	return r
}

// isListener reports whether a socket is one on which programs listen for what changes and never does in a sandbox:
// devices (udev's; by Chromium and libusb), and interfaces, which profiles other than Default refuse (by Chromium and
// libc).
func isListener(args [6]uint64) bool {
	protocol := uint32(args[2])
	return uint32(args[0]) == unix.AF_NETLINK &&
		(protocol == unix.NETLINK_KOBJECT_UEVENT || protocol == unix.NETLINK_ROUTE)
}

// names reports whether the rule is about a call.
func (r Rule) names(call string) bool { return slices.Contains(r.Syscalls, call) }
