// Package keep is what of sandboxes outlives their processes: snapshots of their files, and what is made of them
// (forks, restored sandboxes, differences); what templates have built; and the folders of sandboxes that are stopped.
// All of it lies on the shelf (package shelf), which is shared by the daemons of a state folder. How a sandbox is
// made, ended and started again is the daemon's, behind the interfaces below.
//
// A snapshot is a copy of what a sandbox has written, as a layer of the shelf, and a record of what the sandbox is.
// Layers are never written to again, so that they can be below any number of overlays. Who needs one is looked up and
// not counted (Collect): snapshots, stopped sandboxes, and the records of all sandboxes. See runtime/DESIGN.md,
// "Snapshots and forks".
//
// The life of a folder: a sandbox that is stopped pins its image (Pin), gets a mark (Mark), and from then on its folder
// is put on the shelf whatever happens (Shelve), by the next hutchd if need be. A start takes it back, and takes the
// mark away when it has succeeded (Begun).
//
// There is no mutex here: what is of one sandbox (Files) is used by who has its turn (Sandboxes.Turn), and what is on
// the shelf is guarded by the shelf's own lock, a flock, which other processes take as well. With that lock held images
// are pinned, and nothing else of the interfaces is called.
package keep

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep/shelf"
	"github.com/hutch-sh/hutch/runtime/spec"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds one by id or name.
	Find(ref string) (Sandbox, error)
	// Turn finds one by id or name, and gives the caller its turn: until done is called nobody else stops, starts or
	// removes it, or gives it other files.
	Turn(ctx context.Context, ref string) (s Sandbox, done func(), err error)
	// Room refuses so many more sandboxes with these limits where a user may not have them.
	Room(user uint32, l *api.Limits, more int) error
	// Limits are those that were asked for, with what is other now.
	Limits(asked, now api.Limits) api.Limits
	// Early launches what Fork can take for a sandbox of a spec, unless it is of no use for that. The caller calls Drop
	// of it in the end.
	Early(sp api.Spec) Early
	// Fork makes a sandbox that goes on from the files of another one. When it fails nothing is left.
	Fork(ctx context.Context, r Fork) (api.Sandbox, error)
	// Remove removes a sandbox whose creation cannot be completed, also after the end of ctx.
	Remove(ctx context.Context, id string)
	// Behind has something removed that nobody sees any more. It reports false when the daemon ends, or much is to be
	// removed already: then the caller does it, and waits.
	Behind(remove func() error) bool
}

// Early is a sandbox that is launched beside the copy of what it goes on from.
type Early interface {
	// Drop ends it unless somebody has taken it.
	Drop()
}

// Folder is the folder of a sandbox of which the caller has the turn.
type Folder interface {
	// Dir is the folder on the host, which nothing inside reaches.
	Dir() string
	// Files are the sandbox's own.
	Files() *Files
	// Save writes the record, so that it outlives a crash of the machine.
	Save() error
}

// Sandbox is one of them. Its methods may be called from any goroutine.
type Sandbox interface {
	Folder
	ID() string
	// User is who has created it.
	User() uint32
	// Now are its spec and its record, of one moment.
	Now() (api.Spec, api.Sandbox)
	// Root is the image that it was made of.
	Root() *spec.Root
	// Stopped reports whether it was stopped: it has no process, its folder is on the shelf, and nothing is mounted.
	Stopped() bool
	// MustRun is why it does not run; nil of one that does.
	MustRun() error
	// Folders says which folders of the host's it has, by target.
	Folders() (map[string]workspace.ID, error)
	// Still calls use while nothing of the sandbox runs but its PID 1, for a reason that its record gives.
	Still(ctx context.Context, reason string, use func() error) error
	// Audit notes what was done with it, by whose call as ctx knows.
	Audit(ctx context.Context, kind api.AuditKind, data any)
	// Stop ends its processes and puts it on the shelf, for a reason that its record gives, and returns what is in its
	// place, and what has ended with the processes. One that was stopped is left alone. The caller has the turn.
	Stop(ctx context.Context, grace time.Duration, reason string) (Sandbox, api.Ended, error)
	// Start makes a running sandbox of one that was stopped, by a spec with the folders of this call. When it fails the
	// sandbox is stopped as before. The caller has the turn.
	Start(ctx context.Context, sp api.Spec, by Caller) (api.Sandbox, error)
}

// Images are the images of the daemon.
type Images interface {
	// Resolve finds the image that a reference means, and keeps its layers until Release.
	Resolve(ctx context.Context, ref, platform string, pull api.PullPolicy, progress func(api.Progress)) (*spec.Root,
		error)
	// Hold keeps the layers of a root that was resolved before.
	Hold(lower []string) (release func(), err error)
	// Pin keeps layers, which are held, beyond this daemon, until Unpin of the same name.
	Pin(name string, lower []string) error
	Unpin(name string) error
	Pins() ([]string, error)
}

// Caller is who calls, and what came with the call.
type Caller struct {
	User uint32
	Conn uint64
	FDs  packet.Taker
}

// Origin is what a sandbox goes on from.
type Origin struct {
	Root   *spec.Root    // of the image, whatever its name means now
	Layers []string      // of the shelf, top-most first
	Base   diskuse.Usage // that they take
	Built  bool          // by a template: a sandbox that is new but for its files
	Record api.Sandbox   // what the image said
	Over   string        // of a fork: what was written to overlays other than the root, by their number
	// Folders are those of the host's that were mounted, by target; nil when nobody has noted them.
	Folders map[string]workspace.ID
}

// Fork is a request for one fork.
type Fork struct {
	Spec   api.Spec
	FDs    packet.Taker // of the folders that Spec names by them
	By     Caller
	Origin Origin
	Early  Early // that may become it; nil of most
}

// Config is what a Keep needs.
type Config struct {
	Sandboxes Sandboxes
	Images    Images
	Shelf     *shelf.Store
	Dir       string // this daemon's folder of sandboxes: <state>/daemons/<daemon>/sandboxes
	// Kept are the names in a sandbox's folder of what a stop keeps, beside its files and the mark.
	Kept []string
	// Own are the files in a root's upper folder that the daemon has made.
	Own []string
	// DiskError makes an error of the state folder one that says what to do.
	DiskError func(op string, err error) error
}

// Keep is what a daemon keeps of sandboxes. Its methods may be called from any goroutine.
type Keep struct {
	cfg       Config
	sandboxes Sandboxes
	images    Images
	shelf     *shelf.Store
}

// New makes a Keep over a shelf, and changes nothing there.
func New(cfg Config) *Keep {
	return &Keep{cfg: cfg, sandboxes: cfg.Sandboxes, images: cfg.Images, shelf: cfg.Shelf}
}
