// Package admission decides who may start something in a sandbox, and when it stands still: pauses, the short
// stand-stills in which its files are looked at, and what of its memory is taken back meanwhile.
//
// A sandbox has a Gate from its beginning to its end. Whoever starts a process in it enters, and leaves when PID 1 has
// started that (Pauses.Enter): PID 1 waits in vfork for what it starts, and must not wait for one that is frozen.
// Entering resumes a sandbox that is paused. A pause shuts the gate, waits until all have left, freezes, and opens the
// gate again: those who wait there resume the sandbox. A pause is on record before anything stands still, and until
// everything goes on, so that the next hutchd does it again (Repause), and no sandbox stands still for ever.
//
// Gate.Turn is held by whoever pauses, resumes, looks at files that stand still or puts the sandbox on the shelf: for
// as long as that takes, and never by who enters. Gate.mu guards the rest of the gate; Cgroups.Reclaim, which does not
// wait and calls nothing back by itself, is called with it held, nothing else. What state the sandbox is in is the
// sandbox's to know, under a lock of its own: who enters counts as in before it looks at the state, and leaves again if
// that does not fit, so that no pause can come in between.
package admission

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Config is what Pauses need. All fields are required.
type Config struct {
	Sandboxes Sandboxes
	Cgroups   Cgroups
	Events    Events
}

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds one by id or name.
	Find(ref string) (Sandbox, error)
}

// Sandbox is one of them. Its methods may be called from any goroutine.
type Sandbox interface {
	Life
	Processes
}

// Life is what is on record of a sandbox.
type Life interface {
	ID() string
	// Gate is the sandbox's own.
	Gate() *Gate
	// Record is a copy of its record, State the state in it.
	Record() api.Sandbox
	State() api.State
	// Here reports whether it is the one that its id means: it was not stopped, started or removed meanwhile.
	Here() bool
	// MustRun is why it does not run; nil of one that does.
	MustRun() error
	// Transition changes its state and reports whether it has changed.
	Transition(to api.State, reason string) bool
	// SetPause notes a pause, or that there is none. SaveAs writes the record for the next hutchd with the state that
	// is to come, Save as it is.
	SetPause(p *api.Pause)
	SaveAs(to api.State) error
	Save()
	// NoteReclaimed notes how much memory was taken back, and reports whether the sandbox is paused.
	NoteReclaimed(bytes int64) bool
	// Idle reports that nothing of anybody's runs in it. StopIdle stops the clock of that, RearmIdle starts it anew
	// where it is idle.
	Idle() bool
	StopIdle()
	RearmIdle()
}

// Processes are those of a sandbox.
type Processes interface {
	// Entered is called when somebody has entered, before anything is started.
	Entered()
	// Clock is the time that its commands have.
	Clock() Clock
	// Cgroup is the path of its cgroup, "" where it has none; own says that commands have theirs below it.
	Cgroup() (path string, own bool)
	// Init is its PID 1, and Moves what that moves in folders.
	Init() Init
	Moves() Moves
	// Workers counts those for files, EndWorkers ends them.
	Workers() int
	EndWorkers()
	// Descendants are the ids of all processes below PID 1, and IDs those in all of its pid namespace; known is false
	// when they cannot be told.
	Descendants() (ids []int, known bool)
	IDs() []int
}

// Clock stops and goes on with the sandbox.
type Clock interface {
	Stop(now time.Time)
	GoOn(now time.Time)
}

// Init stops all processes but itself, where there are no cgroups, and lets them go on.
type Init interface {
	Stop(ctx context.Context) error
	GoOn(ctx context.Context) error
}

// Moves is what PID 1 moves for others: workspace.Moves is one.
type Moves interface {
	Hold(ctx context.Context) error
	Release(ctx context.Context) error
	Why(err error) error
	While(ctx context.Context, use func() error) error
}

// Cgroups are those of sandboxes, by their paths.
type Cgroups interface {
	// Freeze stops every process of a sandbox but PID 1 and waits until they stand still or ctx ends; Thaw lets them go
	// on.
	Freeze(ctx context.Context, sandbox string) error
	Thaw(sandbox string) error
	// Reclaim takes page cache of a sandbox back behind the caller's back, and calls told with what that has gained,
	// unless nothing can be or it is stopped. stop waits until nothing is taken back; told is not called any more then.
	Reclaim(sandbox string, told func(bytes int64)) (stop func())
}

// Events is the daemon's log of what happened.
type Events interface {
	// Emit notes an event, whose data must not change any more. It does not wait.
	Emit(kind api.EventKind, sandbox, exec string, data any)
}

// Pauses pause and resume the sandboxes of a daemon. Its methods may be called from any goroutine.
type Pauses struct {
	ctx context.Context // ends with the daemon
	cfg Config
}

// New pauses sandboxes of a daemon that ends with ctx.
func New(ctx context.Context, cfg Config) *Pauses { return &Pauses{ctx, cfg} }
