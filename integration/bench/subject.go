package main

import (
	"context"
	"fmt"
	"time"
)

// Subject is one thing that is measured. To add one, write its Setup and put it
// into the list of subjects.go; rounds, statistics and reports come by
// themselves.
type Subject struct {
	// Name is the key in reports and for -run and -baseline. It never changes, so
	// that results of different days can be compared.
	Name string
	// About says in half a sentence what one run includes.
	About string
	// Setup does everything that is not measured, and pushes onto h's cleanup
	// stack what undoes it. It returns *Unavailable where this machine cannot run
	// the subject, and any other error where it should be able to.
	Setup func(ctx context.Context, h *Host) (*Prepared, error)
	// Named leaves it out of a run without -run: it takes long.
	Named bool
}

// Prepared is a subject that is ready to run.
type Prepared struct {
	// Command is what Run does, as a line for the shell where it starts a process.
	Command string
	// Version is what the program says about itself; may be empty.
	Version string
	// Note is what a reader must know to reproduce Command here; may be empty.
	Note string
	// Before is called before each Run, and does not count; may be nil.
	Before func(ctx context.Context) error
	// Run does it once and returns what it took. It fails for a wrong result,
	// whatever the time. It is never called twice at once.
	Run func(ctx context.Context) (Sample, error)
}

// Sample is what one run took.
type Sample struct {
	// Wall is elapsed time of the monotonic clock.
	Wall time.Duration
	// User and Sys are the CPU time of the process that was started and of the
	// descendants that it waited for (wait4(2)). A daemon's work is not in them.
	User, Sys time.Duration
}

// Reason is why a subject cannot run, for programs that read the report.
type Reason string

// The reasons.
const (
	MissingTool Reason = "missing_tool" // a program is not installed
	NotBuilt    Reason = "not_built"    // a binary of ours is not built
	HostKind    Reason = "host_kind"    // the kernel or its settings forbid it
	NoProfile   Reason = "no_profile"   // no seccomp profile for this architecture
)

// Unavailable is the finding that a subject cannot run on this machine.
type Unavailable struct {
	Reason Reason `json:"reason"`
	Detail string `json:"detail"`
	// Remedy is a command or a sentence; may be empty.
	Remedy string `json:"remedy,omitempty"`
}

func (u *Unavailable) Error() string {
	if u.Remedy == "" {
		return u.Detail
	}
	return fmt.Sprintf("%s; %s", u.Detail, u.Remedy)
}
