// Package warm is the supply of sandboxes made ahead: when one is made and how many, which one somebody gets, who is
// first of those who wait, what follows a failure, and the end of those that nobody has taken. How one is launched,
// prepared, claimed and removed is the daemon's, behind the interfaces below.
//
// There are two supplies. Ahead has sandboxes that nobody has asked for and nobody sees, of a few kinds: a create that
// fits takes one, or does without. Pools have whole sandboxes of a spec, listed ones, that somebody asked for: callers
// name a pool, wait in turn, and hear why nothing comes. So these are two types over one stock, which is what they
// share: those that are ready, how many are being made, the clock by which the next is, and the end of all.
//
// The life of a sandbox in a supply: it is being made (counted, held by the goroutine that makes it), ready (in the
// stock), and out: taken by a caller, or lost, when it ended while it waited, or too many, when its supply became
// smaller or ended. From out it comes back only when its taker cannot have it and has not touched it.
//
// Locks: Kind.mu guards one kind of Ahead, Pools.mu all pools. Nothing of the interfaces is called with one of them
// held: what has to be removed, and looked at, is noted, and done when the lock is free (Pools.unlock). So a sandbox
// may end between its making and its place in the stock, when Lost does not find it there yet; whatever has come into
// the stock of a pool is therefore looked at again when the lock is free. Pools.saving is held while pools.json is
// written, so that the last one writes what holds last; Pools.mu is taken below it.
package warm

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Launched is a sandbox that was launched ahead.
type Launched interface {
	ID() string
	// Discard ends and removes it. It is called once, of one that nobody has taken.
	Discard() error
}

// Key is what a sandbox that was launched ahead is prepared for.
type Key interface {
	comparable
	// Image is the image in it, for the log.
	Image() string
}

// Launcher launches sandboxes ahead. Its methods may be called from any goroutine.
type Launcher[G Launched, K Key] interface {
	// Ready is how many of a kind are to wait, as the configuration says now.
	Ready() int
	// Launch launches one. When it fails nothing is left.
	Launch(ctx context.Context, kind int) (G, error)
	// Prepare does for a key what a create would have to do. Whatever fails, the sandbox has ended, and is to be
	// discarded.
	Prepare(ctx context.Context, made G, kind int, key K) error
	// Alive reports whether PID 1 lives.
	Alive(made G) bool
}

// Sandboxes are those of the daemon, as Pools makes and finds them.
type Sandboxes interface {
	// Make makes one of a pool, which nobody can use: it is creating until Settle. It counts for the quotas of user.
	Make(ctx context.Context, pool string, spec api.Spec, user uint32, progress func(api.Progress)) (Sandbox, error)
	// Find finds one by id or name, of a pool or not.
	Find(ref string) (Sandbox, error)
	// InUse counts those that were acquired and are still there, by pool.
	InUse() map[string]int
	// Remove kills one and deletes its record and files. It returns when nothing of it runs.
	Remove(ctx context.Context, ref string) (api.KillResult, error)
	// Enter says that a connection may get a sandbox soon. leave ends that, and reports whether the connection has
	// ended meanwhile.
	Enter(conn uint64) (leave func() (gone bool))
}

// Sandbox is one of a pool, or one that Find has found.
type Sandbox interface {
	ID() string
	// Record is a copy of its record.
	Record() api.Sandbox
	// Alive reports whether PID 1 lives.
	Alive() bool
	// Settle makes one that was made one that waits; false where it has ended.
	Settle() bool
	// Assign gives one that waits a name, labels and an owner. On an error it is as before, unless that is ErrEnded.
	Assign(conn uint64, a *api.AcquireParams) error
	// Begin lets it be used, as it was assigned, and starts its clocks. When that fails it is being removed; the error
	// is ErrEnded where it has ended.
	Begin(ctx context.Context, a *api.AcquireParams) (api.Sandbox, error)
	// Remove removes it in the background; why is the reason in its record. It does nothing when the daemon ends, which
	// removes all.
	Remove(why string)
}
