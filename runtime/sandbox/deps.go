package sandbox

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/isolation"
	"github.com/hutch-sh/hutch/runtime/launch/launchapi"
	"github.com/hutch-sh/hutch/runtime/ports"
	"github.com/hutch-sh/hutch/runtime/spec"
)

// Kernel is what the kernel itself does for the sandboxes of a daemon, and says of them: Linux, and nothing else in a
// daemon. What belongs to a cgroup or a network namespace is Cgroups' and Networks'.
type Kernel interface {
	// Tmpfs makes a file system in memory, which Attach mounts at a folder; Reconfigure changes options of one that is
	// mounted. Unmount takes off what is mounted at a folder, and fails with EINVAL where nothing is.
	Tmpfs(options []sys.FSOption, attributes int) (*os.File, error)
	Attach(mnt *os.File, at string) error
	Reconfigure(at string, options []sys.FSOption) error
	Unmount(at string) error
	// Proc is the folder that tells of a process, as proc(5) says.
	Proc(pid int) string
	// Channel carries the packets of a guest channel, whose hutchd's end it owns.
	Channel(conn *os.File) (guestapi.Conn, error)
	// Kill sends SIGKILL to the process of a pidfd, which may have ended. Exited says whether it has; AwaitExit waits
	// until it has, or the pidfd is closed.
	Kill(pidfd *os.File) error
	Exited(pidfd *os.File) (bool, error)
	AwaitExit(pidfd *os.File)
}

// ImageSource resolves image references. cmd/hutchd joins it with package images.
type ImageSource interface {
	// Resolve pulls the image where the policy says so and pins its layers until
	// Release. It blocks for as long as the network does; ctx ends it.
	Resolve(ctx context.Context, ref, platform string, pull api.PullPolicy, progress func(api.Progress)) (*spec.Root,
		error)
	// Hold pins again the layers of a root that a hutchd before has resolved.
	Hold(lower []string) (release func(), err error)
	// Pin keeps layers, which are held, beyond this daemon, until Unpin of the same name.
	Pin(name string, lower []string) error
	Unpin(name string) error
	Pins() ([]string, error)
}

// Launcher starts and ends sandboxes: hutch-launch, through launchapi.
type Launcher interface {
	Create(ctx context.Context, id string, c launchapi.Create, netns *os.File) (*launchapi.Created, error)
	// Claim gives a sandbox that was created as a generic one its root. When it fails, the sandbox
	// is destroyed.
	Claim(ctx context.Context, id string, c launchapi.Claim) error
	// Take makes a sandbox that was claimed ahead one that the next hutchd is reported.
	Take(id string) error
	Kill(ctx context.Context, id string) error
	// Destroy kills, waits, and unmounts. It is idempotent.
	Destroy(ctx context.Context, id string) error

	// Hold makes the files of an exec, and what the next hutchd must know of it,
	// outlive this one; await returns what is spooled. The files stay the caller's. Flush
	// stores, or passes on, what the pipes hold now; Note replaces what the next hutchd is told
	// beside that; End notes how the exec ended; Drop forgets it.
	Hold(id string, e launchapi.Exec, files ...*os.File) (await func() ([]launchapi.Stream, error), err error)
	Flush(ctx context.Context, id, exec string) ([]launchapi.Spooled, error)
	Note(id, exec string, note json.RawMessage) error
	End(id, exec string, end json.RawMessage) error
	Drop(id, exec string) error
	// Settle returns when hutch-launch has closed what it was told to hold no longer.
	Settle(ctx context.Context) error
	// Loosen closes the duplicates of files that Hold only keeps.
	Loosen(id, exec string) error
}

// Projects are limits of disk space that the file system itself holds: project quotas,
// which only somebody outside of the daemon's user namespace may set.
type Projects interface {
	// Limit bounds all that is below the folder fs of a sandbox, which must be empty the
	// first time; 0 and 0 ends that.
	Limit(ctx context.Context, sandbox string, bytes, inodes int64) error
}

// Cgroups are those of execs, below their sandboxes' own; package cgroups, joined
// by cmd/hutchd. sandbox is the path of a sandbox's cgroup. No method waits for a
// process but Kill, KillAll and Freeze.
type Cgroups interface {
	// Enabled says whether execs have cgroups. Otherwise only what is about sandboxes may
	// be called: Limit, Watch, Stats, Events, Forget, Reclaim.
	Enabled() bool
	// Hasten makes it short to put a process into a sandbox's cgroup soon. It is for a goroutine of its own.
	Hasten()
	// Mount is a detached read-only mount of the sandbox's cgroup, the caller's.
	Mount(sandbox string) (*os.File, error)
	// Make makes an exec's cgroup, with the limits that are the cgroup's.
	Make(sandbox, exec string, l api.Limits) error
	// Reusable says that an exec's cgroup, which was not killed, is as good as new but
	// for its Usage.
	Reusable(sandbox, exec string) bool
	// Number is the number by which the kernel knows an exec's cgroup, 0 of one that is gone.
	Number(sandbox, exec string) uint64
	// Usage is what was used in an exec's cgroup, or in all of the sandbox's where exec is
	// ""; memory is 0 where that is not known.
	Usage(sandbox, exec string) (cpu time.Duration, memory int64, err error)
	// Kill kills all processes of an exec, waits until they are gone or ctx ends,
	// and lists their pids as the sandbox counts them.
	Kill(ctx context.Context, sandbox, exec string) ([]int, error)
	// Freeze stops every process of a sandbox but PID 1 and waits until they stand still
	// or ctx ends; Thaw lets them go on. There is no Make meanwhile.
	Freeze(ctx context.Context, sandbox string) error
	Thaw(sandbox string) error
	// Reclaim takes page cache of a sandbox back, behind the caller's back, and calls told with what that has gained,
	// unless nothing can be or it is stopped. Before its cgroup is removed or its processes go on stop must have
	// returned, which waits for less than a millisecond's work of the kernel's; told is not called any more then, and
	// must not call stop.
	Reclaim(sandbox string, told func(bytes int64)) (stop func())
	// Processes lists the pids of all processes of a sandbox, in ascending order; an error where its cgroup does not
	// say.
	Processes(sandbox string) ([]int, error)
	// KillAll kills every process of a sandbox but PID 1, as Kill does.
	KillAll(ctx context.Context, sandbox string) error
	// Retire removes an exec's cgroup once its last process has ended; Forget
	// forgets those of a sandbox, whose cgroup goes with all below it.
	Retire(sandbox, exec string)
	Forget(sandbox string)
	// Limit sets those limits of a sandbox's cgroup that l has.
	Limit(sandbox string, l api.Limits) error
	// Watch calls hit when a sandbox has met its limit of memory or processes, until stop,
	// which is never nil, is called. hit must not wait.
	Watch(sandbox string, hit func(api.Verdict)) (stop func(), err error)
	// Stats is what a sandbox's cgroup has counted.
	Stats(sandbox string) (api.Stats, error)
	// Events counts the sandbox's processes that were killed for memory, and the
	// forks that the limit of processes refused. Kernels before 6.11 count the latter in
	// the cgroup of who forked alone: sandbox may be an exec's path, too.
	Events(sandbox string) (oom, pids uint64)
}

// Networks makes the networks of sandboxes: package netfilter, joined by cmd/hutchd.
type Networks interface {
	// Plain is a namespace with a loopback interface and a resolver that refuses, which is what mode none means:
	// Manager.Denied is told about each lookup of the sandbox id before that has its answer. AdoptPlain makes that of a
	// hutchd before refuse again; it owns the file, which is the namespace.
	Plain(id string) (Namespace, error)
	AdoptPlain(id string, netns *os.File) (Namespace, error)
	// Check says whether Open and Update would take a policy.
	Check(p api.NetPolicy) error
	// CheckNarrower refuses a policy of an exec that its sandbox's does not hold.
	CheckNarrower(sandbox, exec api.NetPolicy) error
	// Ahead makes a namespace for a sandbox that is launched before anybody has a policy for it: until Open
	// there is nothing to reach in it.
	Ahead() (Namespace, error)
	// Open makes a network with a policy in force that is not none; dir is the sandbox's
	// folder. at is the namespace, the network's from then on; nil makes one.
	Open(id, dir string, p api.NetPolicy, at Namespace) (Network, error)
	// Adopt takes over the network that a hutchd before has opened.
	Adopt(id, dir string, p api.NetPolicy) (Network, error)
	// Ports are the ports of a sandbox that the host reaches, of which there are none yet; netns stays the caller's.
	Ports(id string, netns *os.File) (ports.Carrier, error)
	// Resolver is the address of the resolver in each that Open makes.
	Resolver() netip.Addr
	// NoResolver is the address of the one that refuses.
	NoResolver() netip.Addr
	// Enforce puts a sandbox's policy in force in the kernel, where there is eBPF: until
	// then its processes reach nothing there, their own loopback included. cgroup is the
	// path of the sandbox's; n is nil in mode none.
	Enforce(id, cgroup string, n Network) (Enforced, error)
}

// Namespace is a network namespace without a network: of mode none, or before there is one.
type Namespace interface {
	// File is the namespace, which a sandbox joins. It is the Namespace's.
	File() *os.File
	// Close gives it back, unless a network was opened in it.
	Close() error
}

// Enforced is a sandbox whose policy the kernel may hold.
type Enforced interface {
	// Settle waits, for microseconds, until all that the kernel has refused so far is told
	// of: it does not wait with its answer to the program.
	Settle()
	// Narrow puts a policy in force for the cgroup of one exec, with this number, beside the
	// sandbox's, as long as there is such a cgroup; unavailable where the kernel enforces nothing. Widen
	// forgets one whose cgroup is gone.
	Narrow(cgroup uint64, p api.NetPolicy) error
	Widen(cgroup uint64) error
	// Close makes the sandbox's processes reach nothing any more.
	Close() error
}

// Network is the network of one sandbox whose policy is not none. What it refuses, what fails outside, and
// what it lets pass in mode learn, it tells by Manager.Denied, Failed and Passed, before
// the sandbox can see that.
type Network interface {
	// Unanswered tells of the connections that were begun since a time and have waited for their servers for a while: a
	// command that has ended has not.
	Unanswered(since time.Time)
	// File is the namespace, which the sandbox joins. It is the network's.
	File() *os.File
	// Update puts a policy in force, and returns when connections that it does not allow
	// are closed. On an error the old one stays.
	Update(p api.NetPolicy) error
	// Uses counts connections by rule, in no order, and what was refused of them.
	Uses() []api.NetUse
	// State says how the policy is enforced: api.Isolation.Enforcement,
	// api.NetEnforcement.Proxy, and a detail for people.
	State() (enforcement, proxy, detail string)
	// Close ends all connections and gives the namespace back.
	Close() error
}

// Seccomp knows profiles, which hutch-launch compiles: package seccomp, joined by cmd/hutchd.
type Seccomp interface {
	// Check reads the text of a custom profile.
	Check(text string) error
	// Explain says why a profile refuses a call to a command; a probe is one that programs do as well without.
	Explain(profile string, nr uint32, args [6]uint64) (call, why, howToAllow string, probe bool)
	// Describe is a built-in profile for people; nothing of an unknown one.
	Describe(name string) (rules []api.DebugRule, other string)
}

// Events is the daemon's log of what happened.
type Events interface {
	// Emit notes an event, whose data must not change any more. It takes
	// microseconds: it is on the way of every exec.
	Emit(kind api.EventKind, sandbox, exec string, data any)
}

// Audit are the logs of what is done with sandboxes, and by them.
type Audit interface {
	// Note takes microseconds, as Emit does. Wants says whether it does anything, Full
	// whether contents are recorded, beside their digests.
	Note(e audit.Entry)
	Wants(kind api.AuditKind) bool
	Full() bool
}

// Host is what the daemon found out about itself at start, for all sandboxes.
type Host struct {
	isolation.Host // what can stand around a sandbox here

	UIDs, GIDs []spec.Extent // hutchd's own id maps
	NoFileHard uint64        // hard RLIMIT_NOFILE for sandboxes
	NProc      uint64        // RLIMIT_NPROC of commands: processes of one uid in one sandbox

	CPUs        int    // that there are: the highest online, and one
	Allowed     []int  // of these, what sandboxes may use, in order
	Possible    []int  // that there could be, in order
	MemoryBytes int64  // that there is
	Disk        string // number of the disk of the state folder; "" when it is on none

	CgroupPath   string // parent of sandboxes' cgroups below each mount, "" with none
	CgroupV2     bool   // a cgroup2 hierarchy is mounted
	CgroupRemedy string

	// Forbidden are host folders that no workspace may contain or lie in: the
	// state root, the runtime and config folders, the binaries.
	Forbidden []string
	// FoldersMapped says that host folders come as mounts whose ids root has mapped.
	FoldersMapped bool
}
