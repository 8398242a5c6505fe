// Package refusals keeps what a sandbox was refused, and reports it: network targets, system calls and files. The
// proxy, the kernel and PID 1 report each refusal to Refusals, which says why it was refused, finds the exec whose it
// was, counts it in the sandbox's Ledger and emits an event. What was allowed and has failed is counted the same way.
//
// All of it is bounded: a sandbox decides how often that happens, and under how many names. What PID 1 reports may be a
// lie, and changes nothing but what people are told.
//
// A Ledger is one sandbox's, and begins and ends with it; its file of targets (Learned) is recalled by the next hutchd.
// Ledger.mu is the only lock. It is held while an event is emitted, so that events come in the order of what they
// count; nothing else is called with it held.
package refusals

import (
	"log/slog"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Config is what Refusals need. All fields are required.
type Config struct {
	Sandboxes Sandboxes
	Seccomp   Seccomp
	Events    Events
	Log       *slog.Logger
}

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Listed finds a sandbox by its id; false of one that is just being taken over or removed.
	Listed(id string) (Sandbox, bool)
}

// Sandbox is one that was refused something. Its methods may be called from any goroutine, and do not wait.
type Sandbox interface {
	ID() string
	// Dir is its folder on the host, which nothing inside reaches.
	Dir() string
	// Record is a copy of its record.
	Record() api.Sandbox
	// Ledger is the sandbox's own.
	Ledger() *Ledger
	// Attribute notes d with the exec whose cgroup has a number, 0 when it is not known, and Caller with the exec whose
	// process has made a call. They return the exec's id, or "".
	Attribute(d api.Denial, cgroup uint64) (exec string)
	Caller(d api.Denial, r *guestapi.Refused) (exec string)
	// HoldEarly reports whether a call is kept, to be reported again, until it is known which exec has made it.
	HoldEarly(r guestapi.Refused) bool
	// Guards are those of its folders. ReadOnly are the mounts that it cannot write to otherwise.
	Guards() guard.Folders
	ReadOnly() []ReadOnly
	// Audit notes what happened in the sandbox's log.
	Audit(kind api.AuditKind, exec string, data any)
}

// ReadOnly is a mount that a sandbox cannot write to.
type ReadOnly struct {
	Target string
	// Rule, Why and How are api.FileEvent's.
	Rule, Why, How string
}

// Seccomp knows profiles.
type Seccomp interface {
	// Explain says why a profile refuses a call to a command; a probe is one that programs do as well without.
	Explain(profile string, nr uint32, args [6]uint64) (call, why, howToAllow string, probe bool)
}

// Events is the daemon's log of what happened.
type Events interface {
	// Emit notes an event, whose data must not change any more. It does not wait.
	Emit(kind api.EventKind, sandbox, exec string, data any)
}

// Refusals report what sandboxes are refused. Its methods may be called from any goroutine, and do not wait.
type Refusals struct{ cfg Config }

// New reports what sandboxes are refused.
func New(cfg Config) *Refusals { return &Refusals{cfg} }

// refused is what PID 1 has reported of a refused call.
func refused(by string, r *guestapi.Refused) api.Refusal {
	p := &api.NetProcess{PID: r.PID}
	if r.Command != "" {
		p.Command = []string{r.Command}
	}
	return api.Refusal{By: by, Errno: unix.ErrnoName(unix.Errno(r.Errno)), Process: p}
}
