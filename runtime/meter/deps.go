// Package meter watches what sandboxes use, and what of that they may: their limits of disk space, memory, CPUs and
// processes, how these change, and what sandbox.stats and the list of processes say.
//
// A sandbox has a Meter from before anything of it is made (Meters.New); one that is started again has another. Its
// creation makes the limit of disk space (LimitDisk), or a hutchd that takes over knows it again (AdoptDisk); Watch
// begins when the sandbox runs, and ends with its PID 1. Commands are measured when they begin and end (BeginUse,
// EndUse: a Meter is most of exec.Meter), file calls when they begin (Admit). What is over a limit is ended by Ender,
// as only the sandbox knows who may be ended and how nobody starts anything meanwhile.
//
// Locks. Disk.mu guards what is known of the disk space of one sandbox. Meters.mu guards which CPUs each sandbox has.
// Neither is held when the other is taken, or when anything else is called. Two channels bound work: Disk.turn, which
// is held while one sandbox is measured, and Meters.walks, taken after it, for measurements of all sandboxes. Limits
// are the record's, and so the sandbox's own: they change one change after the other (Limits.Change), of which Update
// holds the turn while it asks for quotas, cgroups and the disk. Raise compares with the quotas and notes at once, so
// that two sandboxes never share what is left of one.
package meter

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// Config is what Meters need. All fields are required but Projects.
type Config struct {
	Sandboxes  Sandboxes
	Host       Host
	Kernel     Kernel
	Cgroups    Cgroups
	Projects   Projects   // nil where there are no project quotas
	Background Background // waits for the watches
	Log        *slog.Logger
}

// Host is the machine.
type Host struct {
	CPUs        int    // that there are: the highest online, and one
	Allowed     []int  // of these, what sandboxes may use, in order
	Possible    []int  // that there could be, in order
	MemoryBytes int64  // that there is
	Dir         string // that sandboxes write below
	Disk        string // number of its disk; "" when it is on none
	// Controllers are those that cgroups have here, and CgroupMode is "v2", "v1" or "none". CgroupReason says why there
	// are none.
	Controllers                            []string
	CgroupMode, CgroupReason, CgroupRemedy string
	Hard                                   exec.HardLimits // that no command can go above
}

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Living finds one by id or name that has processes, and its PID 1.
	Living(ref string) (t *Meter, pid1 int, err error)
	// All are the meters of all that are listed.
	All() []*Meter
	// Settings are the limits of sandboxes that ask for none, and the longest timeout that a command may have.
	Settings() (defaults api.Limits, maxTimeoutS float64)
}

// Sandbox is one that is metered. Its methods may be called from any goroutine.
type Sandbox interface {
	Place
	Ender
	Limits
}

// Place is what is looked at.
type Place interface {
	ID() string
	// Record is a copy of its record.
	Record() api.Sandbox
	// Commands are those that run in it.
	Commands() *exec.Set
	// Cgroup is the path of its cgroup, "" where it has none; own says that commands have theirs below it.
	Cgroup() (path string, own bool)
	// Exited is closed when PID 1 is gone.
	Exited() <-chan struct{}
	// Idle reports that nothing of anybody's runs in it.
	Idle() bool
	// Used reports whether PID 1 may have children that hutchd has told it to make.
	Used() bool
}

// Ender ends what is over a limit.
type Ender interface {
	// EndAll ends, for a cause, all that runs but PID 1, and waits for that. Nothing is started meanwhile, and who
	// hears of an end and starts another command waits until all is over. hit is told where no command ran. again is ""
	// the first time; later, when what goes on is no command's, it is why the sandbox is ended where nothing tells its
	// processes apart.
	EndAll(ctx context.Context, why *exec.Cause, hit api.LimitEvent, again string) error
	// End ends the sandbox.
	End(ctx context.Context, reason string) error
	// Hit tells of a limit that was met, by no command that is known.
	Hit(hit api.LimitEvent)
	// Ended refuses what needs processes.
	Ended() error
}

// Limits are what a sandbox has on record, and change.
type Limits interface {
	// Change waits for the turn to change what the sandbox may do, until done is called.
	Change() (done func())
	// Raise counts other limits for the quotas of its user from now on, if they allow it, and notes them. Set notes
	// them without asking.
	Raise(next api.Limits) error
	Set(l api.Limits)
	// SetMissing notes what of those that were asked for this host cannot enforce.
	SetMissing(missing []api.Unenforced)
	// Tell writes what the sandbox may do now where it looks for that, and to the audit log.
	Tell(ctx context.Context)
	// Save writes the record, for the next hutchd. Extend gives it so many seconds to live as well, 0 for no end.
	Save()
	Extend(ttl float64) (api.Sandbox, error)
}

// Kernel is what the kernel does.
type Kernel interface {
	// Tmpfs makes a file system in memory, which Attach mounts at a folder; Reconfigure changes options of one that is
	// mounted. Unmount takes off what is mounted at a folder.
	Tmpfs(options []sys.FSOption, attributes int) (*os.File, error)
	Attach(mnt *os.File, at string) error
	Reconfigure(at string, options []sys.FSOption) error
	Unmount(at string) error
	// Proc is the folder that tells of a process, as proc(5) says.
	Proc(pid int) string
}

// Cgroups are those of sandboxes, by their paths. No method waits for a process.
type Cgroups interface {
	// Usage is what was used in all of a sandbox's where exec is "".
	Usage(sandbox, exec string) (cpu time.Duration, memory int64, err error)
	// Stats is what it has counted.
	Stats(sandbox string) (api.Stats, error)
	// Processes lists the pids of all processes, in ascending order; an error where the cgroup does not say.
	Processes(sandbox string) ([]int, error)
	// Limit sets those limits that l has.
	Limit(sandbox string, l api.Limits) error
}

// Projects are limits of disk space that the file system itself holds.
type Projects interface {
	// Limit bounds all that is below the folder fs of a sandbox, which must be empty the first time; 0 and 0 ends that.
	Limit(ctx context.Context, sandbox string, bytes, inodes int64) error
}

// Background does work in goroutines that somebody waits for. Go returns at once.
type Background interface{ Go(f func()) }

// Meters are those of all sandboxes of a daemon. Its methods may be called from any goroutine.
type Meters struct {
	cfg   Config
	walks chan struct{} // tokens: of measuring what sandboxes have written

	mu sync.Mutex // guards Meter.cpus of all
}

// NewMeters has none yet.
func NewMeters(cfg Config) *Meters { return &Meters{cfg: cfg, walks: make(chan struct{}, maxWalks)} }

// Meter is that of one sandbox. But for LimitDisk, AdoptDisk and TakeDisk, of which its creation calls one before
// anything runs, its methods may be called from any goroutine.
type Meter struct {
	all  *Meters
	of   Sandbox
	disk *Disk         // nil without a limit
	wake chan struct{} // wakes watchMemory
	cpus seenCPUs      // Meters.mu guards it
}

// New is the meter of a sandbox of which nothing is made yet.
func (m *Meters) New(s Sandbox) *Meter { return &Meter{all: m, of: s, wake: make(chan struct{}, 1)} }

// Watch looks after the limits of disk space and of memory that nothing else holds, until PID 1 is gone.
func (t *Meter) Watch() {
	t.watchDisk()
	t.watchMemory()
}

func (t *Meter) limits() api.Limits { return t.of.Record().Limits }

// ms are milliseconds.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
