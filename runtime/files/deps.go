// Package files serves the fs.* methods and the file side of the tools. hutchd touches no file of a sandbox: a worker
// inside does, one process for each user whose files are used, and what it answers is as hostile as the sandbox.
//
// A call enters the sandbox (Sandboxes.Enter), takes the worker of its user from the sandbox's Workers, which starts
// one if there is none, and gives it back. A worker that nobody uses ends after a while, all of them when the sandbox
// is paused (Files.End) or removed (Workers.Close).
//
// Workers.mu is the only lock. Nothing of Sandbox is called with it held.
package files

import (
	"context"
	"log/slog"
	"os"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Enter finds a sandbox by id or name, and resumes it if it is paused. It is not paused until leave is called,
	// which may be more than once.
	Enter(ctx context.Context, ref string) (s Sandbox, leave func(), err error)
}

// Sandbox is one that runs, as a call that has entered it uses it. Its methods may be called from any goroutine.
type Sandbox interface {
	ID() string
	// Dir is its folder on the host, which nothing inside reaches.
	Dir() string
	// Record is a copy of its record.
	Record() api.Sandbox
	// Workers are the sandbox's own, the same as long as it runs.
	Workers() *Workers
	// Again enters once more, for work that goes on when the caller leaves.
	Again() (leave func())
	// BeginCall and EndCall enclose a call: the sandbox is not idle in between.
	BeginCall()
	EndCall()
	// Admit refuses a call that writes to a sandbox that is over its limit of disk space.
	Admit(writes bool) error
	// Explain says why a call has failed where that is the sandbox's state: it was paused, has ended, or is over its
	// limit of disk space. Otherwise it is nil.
	Explain(writes bool) error
	// StartWorker has PID 1 start a files worker as a user inside, which speaks filesapi over conn. What it may do is
	// what a command of the user's may: the same stub, capabilities, limits and seccomp filter. conn stays the
	// caller's.
	StartWorker(ctx context.Context, user string, conn *os.File) (Process, error)
	// DiskError makes an error of the state folder one that says what to do.
	DiskError(op string, err error) error
	// Audited reports whether the audit log wants records of a kind, and whole, with what files hold; Audit notes one,
	// which holds on to so many bytes.
	Audited(kind api.AuditKind) (wanted, whole bool)
	Audit(ctx context.Context, kind api.AuditKind, f api.AuditFile, size int)
}

// Process is the process of a worker, as PID 1 knows it.
type Process interface {
	Kill() error
	// Wait returns when it has ended, or ctx ends.
	Wait(ctx context.Context) (guestapi.Event, error)
}

// Background does work in goroutines that somebody waits for. Go returns at once, and is called with locks held.
type Background interface{ Go(f func()) }

// Files serves the files of all sandboxes. Its methods may be called from any goroutine.
type Files struct {
	sandboxes  Sandboxes
	background Background // waits for the ends of workers
	log        *slog.Logger
}

// New serves the files of sandboxes.
func New(sandboxes Sandboxes, background Background, log *slog.Logger) *Files {
	return &Files{sandboxes: sandboxes, background: background, log: log}
}

// MakeFolderIn makes a folder and those above it in a sandbox that nobody can use yet, as its root.
func (f *Files) MakeFolderIn(ctx context.Context, s Sandbox, path string) error {
	w, err := f.worker(ctx, s, "0")
	if err != nil {
		return err
	}
	defer f.release(s, w)
	_, _, err = w.client.Call(ctx, filesapi.Request{Op: filesapi.OpMkdir, Parents: true, Path: path}, nil, 0)
	return err
}
