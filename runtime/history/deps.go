// Package history is what the files of sandboxes were before the last calls that may have changed them: checkpoints,
// which are taken before such a call, and the ways back to one. Which calls those are is the callers' to know (package
// tools, package code); how files are kept and compared is package undo's; how a sandbox stands still, ends and starts
// again is the daemon's, behind the interfaces below. See runtime/DESIGN.md, "Undo".
//
// The life of a checkpoint: it is taken (Checkpoint) in the folder "undo" of the sandbox's own, which goes where the
// sandbox's folder goes, the shelf included. It is undone when a call before it is restored, and can be restored all
// the same. It is removed when newer ones need its place, or with the sandbox.
//
// There is no mutex: a Set, what is known of the checkpoints of one sandbox, is used by who has the turn of that
// sandbox (Sandboxes.Turn), which also keeps stop, start and removal away. History.taking has a token for each
// checkpoint that is being made, as all names of a sandbox are in memory then; who has one waits for the sandbox to
// stand still, and for nobody who could want a token.
package history

import (
	"context"
	"log/slog"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/history/undo"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds one by id or name.
	Find(ref string) (Sandbox, error)
	// Turn finds one by id or name, and gives the caller its turn: until done is called nobody else stops, starts or
	// removes it, or gives it other files.
	Turn(ctx context.Context, ref string) (s Sandbox, done func(), err error)
}

// Sandbox is one of them. Its methods may be called from any goroutine.
type Sandbox interface {
	keep.Folder
	ID() string
	// Spec and Record are copies of those that it has now.
	Spec() api.Spec
	Record() api.Sandbox
	// Checkpoints are the sandbox's own, until it is stopped or started.
	Checkpoints() *Set
	// MustRun is why it does not run; nil of one that does.
	MustRun() error
	// Enter resumes it if it is paused, and takes back a patch that was left half done. It is not paused until leave is
	// called.
	Enter(ctx context.Context) (leave func(), err error)
	// Quiesce calls use while nothing of the sandbox writes. standing are those of its processes that stand still
	// meanwhile, and may have files mapped; nil where there are none.
	Quiesce(ctx context.Context, use func(standing []int) error) error
	// Audit notes what was done with it, by whose call as ctx knows.
	Audit(ctx context.Context, kind api.AuditKind, data any)
	// HoldOwner keeps whose it is while it is stopped for a moment, which else makes it nobody's. back is called when
	// it runs again: it removes what nobody wants any more.
	HoldOwner() (owner string, conn uint64, back func() error)
	// Stop ends its processes and puts it on the shelf, for a reason that its record gives, and returns what is in its
	// place, and what has ended with the processes. One that was stopped is left alone. The caller has the turn.
	Stop(ctx context.Context, grace time.Duration, reason string) (Sandbox, api.Ended, error)
	// Start makes a running sandbox of one that was stopped, by a spec with folders that fds has, tied to a connection.
	// When it fails the sandbox is stopped as before. The caller has the turn.
	Start(ctx context.Context, sp api.Spec, conn uint64, fds packet.Taker) (api.Sandbox, error)
}

// Replacer gives stopped sandboxes other files: keep.Keep.
type Replacer interface {
	// Replace puts what make makes in a folder in the place of a sandbox's files, above these layers, which take so
	// much, whole or not at all.
	Replace(s keep.Folder, above []string, take diskuse.Usage, make func(next string) error) error
}

// Config is what a History needs.
type Config struct {
	Sandboxes Sandboxes
	Files     Replacer
	// DiskError makes an error of the state folder one that says what to do.
	DiskError func(op string, err error) error
	Log       *slog.Logger
}

// maxTaking bounds the checkpoints that are being made at the same time.
const maxTaking = 2

// History has the checkpoints of a daemon's sandboxes. Its methods may be called from any goroutine.
type History struct {
	cfg       Config
	sandboxes Sandboxes
	taking    chan struct{} // tokens: of checkpoints, which have all names of a sandbox in memory
}

// New makes a History.
func New(cfg Config) *History {
	return &History{cfg: cfg, sandboxes: cfg.Sandboxes, taking: make(chan struct{}, maxTaking)}
}

// Set is what is known of the checkpoints of one sandbox. Who has its turn uses it.
type Set struct {
	store *undo.Store // nil until somebody asks
}

// Dir is the folder of the checkpoints, in the folder of their sandbox.
const Dir = "undo"
