// Package probe finds out what a host can do for sandboxes, by trying: each probe
// makes the system call that a sandbox would make, in a child with namespaces of
// its own, and undoes it. Versions are never compared: distributions patch
// kernels both ways.
//
// The answers are three-valued. Inconclusive means that the attempt itself could
// not be made; nobody may take it for a no, or remember it.
package probe

import (
	"context"
	"slices"
	"time"
)

// Status is the outcome of a probe.
type Status string

// The three outcomes.
const (
	Yes          Status = "yes"          // tried, works
	No           Status = "no"           // tried, does not work
	Inconclusive Status = "inconclusive" // could not be tried
)

// Check is one finding, in the form that `hutch doctor` shows and system.doctor
// sends.
type Check struct {
	// Name is stable; it consists of lower-case words joined by "_".
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is what was found, with values and errno.
	Detail string `json:"detail"`
	// Remedy is the exact command (several lines where it takes several) that turns
	// a no into a yes, or empty when there is nothing to do.
	Remedy string `json:"remedy"`
	// Fixable says that Remedy is a shell script that `hutch doctor --fix` may run:
	// not advice, and nothing that takes a reboot.
	Fixable bool `json:"-"`
	// Required is set when no sandbox can run without it.
	Required bool `json:"required"`
}

// childTimeout bounds each child. Namespaces take milliseconds, but their
// removal waits for other CPUs on a loaded host.
const childTimeout = 20 * time.Second

// Options say for what the host is asked.
type Options struct {
	// StateFolder is where images and sandboxes will live. It need not exist yet:
	// its nearest existing parent is probed. Empty skips that probe.
	StateFolder string
}

// All makes every probe and returns the findings in the order in which a person
// should read them: what everything else depends on comes first.
//
// It must run outside of hutchd's user namespace: inside, the caller is root of a
// smaller world and the answers are about that world.
func All(ctx context.Context, o Options) []Check {
	checks := []Check{UserNamespaces(ctx), SubIDs(), IDMapTools()}
	checks = append(checks, inNamespaces(ctx, o, inside)...)
	checks = append(checks, Cgroups(), Seccomp(), SeccompNotify(), Landlock(), EBPF(), Container())
	if c, ok := AppArmor(); ok {
		checks = append(checks, c)
	}
	return checks
}

// CanRun reports whether no required probe says no. An inconclusive one does not
// prevent anything: creating a sandbox will tell.
func CanRun(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return c.Required && c.Status == No })
}

func yes(name, detail string) Check { return Check{Name: name, Status: Yes, Detail: detail} }

func no(name, detail, remedy string) Check {
	return Check{Name: name, Status: No, Detail: detail, Remedy: remedy}
}

// fixable is a no whose remedy is a script.
func fixable(name, detail, script string) Check {
	return Check{Name: name, Status: No, Detail: detail, Remedy: script, Fixable: script != ""}
}

func inconclusive(name, detail string) Check {
	return Check{Name: name, Status: Inconclusive, Detail: detail}
}

func (c Check) required() Check {
	c.Required = true
	return c
}
