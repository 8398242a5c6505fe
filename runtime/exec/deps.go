// Package exec is the commands of sandboxes: each an Exec, from its start to the day on which its output is forgotten.
//
// The life of one: an id is taken, bounds are decided and a cgroup is entered, its stdio crosses (package stdio),
// hutch-launch holds what is to outlive hutchd, and PID 1 starts it. It is then in the Table, by its id, and in the Set
// of its sandbox. It ends by itself, or is ended for a Cause; supervise waits for either, settle collects what it has
// written, judge says how it ended, and the end is noted, told and kept for who asks. The oldest of a sandbox's is
// forgotten when there are too many, all of them with the sandbox (Table.Forget), and one that was answered in the call
// that has run it at once. A hutchd that takes over reads the notes (ReadHeld) and goes on (Table.Adopt).
//
// Locks. Table.mu guards which ids there are: started, kept, answered and being started. Set.mu guards what runs in a
// sandbox and has run there, and of each Exec what is said to be so. Who holds both has taken Table.mu first. Neither
// is held when something else is called, with two exceptions. Init.PIDOf and Process.PID, which look a number up, are
// asked with Set.mu held: what is refused to a command that is starting is held until it is known to run, and between
// the question and the holding it may not come to run. Table.dropping, which is taken before Table.mu, is held while
// hutch-launch drops the output of what was answered, so that its id is free for who waits for that.
//
// A sandbox that is removed while a command starts in it: Table.Forget closes the Set, ends what is in it and waits.
// A command that comes later is in no list and is ended at once; one that came before is among those that Forget ends.
// In between, when the sandbox is in no list any more but Forget is yet to come, Sandbox.Here says so, and the command
// is ended, too. Ids are taken before anything is made and given back when all of it is undone, so that two commands
// never share one.
package exec

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
)

// Config is what a Table needs. All fields are required.
type Config struct {
	Sandboxes  Sandboxes
	Launcher   Launcher
	Cgroups    Cgroups
	Events     Events
	Audit      Audit
	Background Background // waits for who follows commands
	Hard       HardLimits
	Log        *slog.Logger
}

// Sandboxes are those of the daemon.
type Sandboxes interface {
	// Find finds one by id or name.
	Find(ref string) (Sandbox, error)
	// Bounds are the configuration's, of all commands.
	Bounds() api.ExecBounds
}

// Sandbox is one in which commands run: where they do, what counts what they use, and what explains their ends. Its
// methods may be called from any goroutine.
type Sandbox interface {
	Place
	Meter
	Explainer
}

// Place is what commands of a sandbox run in.
type Place interface {
	ID() string
	// Commands are the sandbox's own, the same as long as it has processes.
	Commands() *Set
	// Record is a copy of its record.
	Record() api.Sandbox
	// Env is the environment of its image, as NAME=VALUE, and its own, whose values may be secrets.
	Env() (image []string, own map[string]string)
	// CapDrop are the capabilities that its commands do not have.
	CapDrop() []string
	// Cgroup is the path of its cgroup, "" where it has none; own says that commands have theirs below it.
	Cgroup() (path string, own bool)
	// Pts opens the folder of its own terminals, as PID 1 sees it.
	Pts() (*os.File, error)
	// Init is its PID 1.
	Init() Init
	// Enter resumes it if it is paused, and keeps it from being paused until leave is called, which may be more than
	// once.
	Enter(ctx context.Context) (leave func(), err error)
	// BeginCall and EndCall enclose what is not to be taken for idleness.
	BeginCall()
	EndCall()
	// Here reports whether it is listed: it is not being removed.
	Here() bool
	// Exited is closed when PID 1 is gone, and with it everything in the sandbox. AwaitEnd waits for that after the
	// channel to PID 1 has told it, and not for ever.
	Exited() <-chan struct{}
	AwaitEnd()
	// WhyEnded is the verdict of a command that ended with its sandbox.
	WhyEnded() api.Verdict
	// Distrust has the sandbox removed, in the background: its PID 1 does not do what it must.
	Distrust(why string)
	// CheckNetwork refuses a policy of a single command that cannot be honoured; Narrow puts one in force, and on
	// record, before there is a process in the command's cgroup.
	CheckNetwork(p *api.NetPolicy) error
	Narrow(exec, group string, p *api.NetPolicy) error
}

// Init is the PID 1 of a sandbox, which may be hostile.
type Init interface {
	// NewID is an id for Start, and no other's.
	NewID() uint64
	// Start starts a command as guestapi.Client.Start does.
	Start(ctx context.Context, req guestapi.Request, fds []*os.File) (Process, error)
	// PIDOf is the PID of the command with an id once PID 1 has told it, else 0.
	PIDOf(id uint64) int
	// Ended stands for the process of a command of a hutchd before that has ended.
	Ended(id uint64, pid int) Process
	// Err says why nobody can talk to it any more, nil while somebody can.
	Err() error
}

// Process is the leader of a command, as PID 1 knows it.
type Process interface {
	PID() int // as the sandbox counts
	// Wait returns when it has ended, or ctx ends.
	Wait(ctx context.Context) (guestapi.Event, error)
	Signal(sig syscall.Signal) error
	// Kill kills it and all that it has left behind; Wait tells when that is done.
	Kill() error
	// Ack says that its end is on record, so that PID 1 may forget it.
	Ack()
	// Resume waits until one of a hutchd before runs, or has ended.
	Resume(ctx context.Context) error
}

// Meter counts what commands of a sandbox use beside what their cgroups do, and knows what they may.
type Meter interface {
	// BeginUse notes how it is when a command begins. Started says that it runs now. EndUse measures, where that is
	// worth it, how it is after so long; full says that the command has met the limit of disk space.
	BeginUse() Use
	Started()
	EndUse(begun Use, took time.Duration, failed bool) (used diskuse.Usage, full bool)
	// DiskLimit explains an end by the limit of disk space; peak is the most that was used.
	DiskLimit(peak diskuse.Usage) (api.Denial, *api.LimitHit)
	// FileSize is the size that no single file may have, where there is one.
	FileSize() (bytes uint64, bounded bool)
	// CheckControllers refuses limits of a command's own cgroup that this host cannot enforce.
	CheckControllers(l *api.Limits) error
	// StandIns are limits of each process that stand in for those of the sandbox; data is 0 for none.
	StandIns() (nproc, data uint64)
	// CPUs is the mask of the CPUs of a command that may use so many, 0 for all; nil where that is all there are.
	CPUs(most float64) []byte
}

// Use is how it was when a command began.
type Use struct {
	Over bool          // the sandbox was over its limit of disk space
	Disk diskuse.Usage // what it took
	Gone diskuse.Usage // what its file system had lost
}

// Explainer says why commands of a sandbox fail.
type Explainer interface {
	// Unrouted is how often there was no route for what the sandbox wanted to send, and how often of that for IPv4; 0
	// where something tells of each.
	Unrouted() (all, v4 int64)
	// TellLate tells what nothing has told yet: connections that wait for their servers since a time, and so many for
	// which there was no route. It may call Table.Attribute.
	TellLate(since time.Time, unrouted int64)
	// Policy is what its policy says about what was refused, where that is to be quoted; mostly "".
	Policy(refused []api.Denial) string
	// SettleRefused waits until all that the kernel has refused so far is told.
	SettleRefused()
	// TellRefused tells what PID 1 says of a refused call.
	TellRefused(r guestapi.Refused)
	// Hint is what to do about a command that ended so. ShmHint is the same for one whose wait status /dev/shm may
	// explain, ForeignHint for one that may have met files of others in host folders; said is what it has written, and
	// seen says that all of that was seen. "" is nothing.
	Hint(code int, argv ...string) string
	ShmHint(status int) string
	ForeignHint(said []byte, seen bool) string
	// Unguarded tells what of guarded names has turned up, after the command.
	Unguarded(exec string) []api.Unguarded
}

// Launcher is hutch-launch, which holds what outlives hutchd. id is a sandbox's.
type Launcher interface {
	// Hold makes the files of an exec, and what the next hutchd must know of it, outlive this one; await returns what
	// is spooled. The files stay the caller's. Flush stores, or passes on, what the pipes hold now. Note replaces what
	// the next hutchd is told beside that, End notes how the exec ended, Drop forgets it. Loosen closes the duplicates
	// of files that Hold only keeps.
	Hold(id string, e launchapi.Exec, files ...*os.File) (await func() ([]launchapi.Stream, error), err error)
	Flush(ctx context.Context, id, exec string) ([]launchapi.Spooled, error)
	Note(id, exec string, note json.RawMessage) error
	End(id, exec string, end json.RawMessage) error
	Drop(id, exec string) error
	Loosen(id, exec string) error
}

// Cgroups are those of commands, below their sandboxes' own, whose paths they are called with. Only Kill waits for a
// process.
type Cgroups interface {
	// Make makes one, with the limits that are its own. Reusable says that one that was not killed is as good as new
	// but for its Usage: CPU time, and the peak of memory, 0 where that is not known.
	Make(sandbox, exec string, l api.Limits) error
	Reusable(sandbox, exec string) bool
	Usage(sandbox, exec string) (cpu time.Duration, memory int64, err error)
	// Number is the number by which the kernel knows it, 0 of one that is gone.
	Number(sandbox, exec string) uint64
	// Kill kills all its processes, waits until they are gone or ctx ends, and lists their pids as the sandbox counts.
	Kill(ctx context.Context, sandbox, exec string) ([]int, error)
	// Retire removes it once its last process has ended.
	Retire(sandbox, exec string)
	// Stats is what the sandbox's has counted. Events counts its processes that were killed for memory and the forks
	// that were refused, or with the path of a command's, that one's.
	Stats(sandbox string) (api.Stats, error)
	Events(sandbox string) (oom, pids uint64)
}

// Events is the daemon's log of what happened. Emit takes microseconds.
type Events interface {
	Emit(kind api.EventKind, sandbox, exec string, data any)
}

// Audit is the log of what is done with sandboxes.
type Audit interface {
	// Note takes microseconds. Wants says whether it does anything, Full whether contents are recorded.
	Note(e audit.Entry)
	Wants(kind api.AuditKind) bool
	Full() bool
}

// Background does work in goroutines that somebody waits for. Go returns at once.
type Background interface{ Go(f func()) }
