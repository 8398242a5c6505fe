// Package workspace is the folders that a sandbox is given: the user's project, other folders of the host's, volumes
// and folders in memory. It attaches them when a sandbox is made (Attaching), by fds and not by paths, looks for what
// in them the sandbox could not use or must not have, and makes of one in mode overlay a transaction: what was changed
// is looked at, applied to the user's folder, or discarded (Diff, Apply, Discard). Package guard keeps what must not be
// written in the others.
//
// The folders of a sandbox are told apart by their place in Sorted: the one of number i is mounted at mnt/<i> below the
// sandbox's own folder, and where that is an overlay's lower one, the overlay at mnt/<i>.merged, with its upper one in
// fs/<i>/upper.
//
// A Set is what is known of the folders of one sandbox while it runs. Its guards and the ids of a stopped one are set
// before anybody else sees the sandbox. What was applied is guarded by the sandbox standing still: it is used in
// Sandbox.Still alone, of which there is one at a time. Set.foreign has the only lock, which is held over a look
// through the folders, so that there is one, and over no call into another package.
//
// A folder that several sandboxes write to has to be guarded in the same way by each: Attach looks for the others when
// its own folders are mounted, so that of two creations at the same moment one at least sees the other's.
package workspace

import (
	"context"
	"log/slog"
	"os"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds a sandbox by id or name.
	Find(ref string) (Sandbox, error)
	// All are all of them, and NotEnded those in which something can run, also those that are being made.
	All() []Sandbox
	NotEnded() []Sandbox
}

// Sandbox is one of them. Its methods may be called from any goroutine.
type Sandbox interface {
	ID() string
	// Dir is its folder on the host, which nothing inside reaches.
	Dir() string
	// User is whose volumes it uses.
	User() uint32
	// Spec is what it was asked for. Its folders stay as they are.
	Spec() *api.Spec
	// Folders are the sandbox's own, the same as long as it runs.
	Folders() *Set
	// Still calls use while nothing of the sandbox runs but its PID 1, for a reason that its record gives, and nobody
	// else is in Still.
	Still(ctx context.Context, reason string, use func() error) error
	// Mounted is an error where the sandbox was stopped, and its folders are not mounted. It is called in Still.
	Mounted() error
	// Audit notes what was done with its workspace, by whose call as ctx knows.
	Audit(ctx context.Context, kind api.AuditKind, w api.AuditWorkspace)
}

// Creation is the making of one sandbox, as its folders are attached.
type Creation interface {
	// Undo adds how to take back what was done. Lease adds what is given back before the reply to a removal, and by the
	// undo at the latest.
	Undo(back func() error)
	Lease(giveBack func() error)
	// Tell adds a sentence to what its caller is told about the sandbox.
	Tell(text string)
	// Copy copies what sandboxes have written to one folder into another, empty one.
	Copy(from, to string) error
	// DiskError makes an error of the state folder one that says what to do; nil stays nil.
	DiskError(op string, err error) error
}

// Kernel mounts what is no folder of the host's, and takes off what is mounted. Folders of the host's, and overlays,
// are mounted by system calls of this package's own.
type Kernel interface {
	// Tmpfs makes a file system in memory, which Attach mounts at a folder. Unmount takes off what is mounted at a
	// folder, and fails with EINVAL where nothing is.
	Tmpfs(options []sys.FSOption, attributes int) (*os.File, error)
	Attach(mnt *os.File, at string) error
	Unmount(at string) error
}

// Volumes keeps named volumes: runtime/volume.
type Volumes interface {
	// Use opens a user's volume, which is not removed before the file is closed; it is made where it is missing
	// and make says so.
	Use(user uint32, name string, make bool) (*os.File, error)
	// Path is where Use finds it.
	Path(user uint32, name string) string
}

// Host is what is the same for the folders of all sandboxes.
type Host struct {
	// Dir is where the folders of sandboxes are.
	Dir string
	// Forbidden are host folders that no workspace may contain or lie in: the state root, the runtime and config
	// folders, the binaries.
	Forbidden []string
	// Single says that sandboxes have one id only, and with it the user's groups.
	Single bool
	// Mapped says that host folders come as mounts whose ids root has mapped.
	Mapped bool
}

// Workspaces serves the folders of all sandboxes. Its methods may be called from any goroutine.
type Workspaces struct {
	sandboxes Sandboxes
	kernel    Kernel
	volumes   Volumes
	host      Host
	log       *slog.Logger
}

// New serves the folders of sandboxes.
func New(sandboxes Sandboxes, kernel Kernel, volumes Volumes, host Host, log *slog.Logger) *Workspaces {
	return &Workspaces{sandboxes: sandboxes, kernel: kernel, volumes: volumes, host: host, log: log}
}
