package api

import (
	"time"
)

// State is where a sandbox is in its life.
type State string

// The states. See runtime/sandbox for the transitions.
const (
	Creating State = "creating"
	Running  State = "running"
	Paused   State = "paused"
	Waiting  State = "waiting" // in a pool, for whoever acquires it
	Stopped  State = "stopped"
	Failed   State = "failed"
)

// Spec is what sandbox.create asks for.
type Spec struct {
	Image    string            `json:"image,omitempty"`    // reference, or "host"
	Template string            `json:"template,omitempty"` // instead of Image
	Name     string            `json:"name,omitempty"`     // unique among living sandboxes
	Labels   map[string]string `json:"labels,omitempty"`
	Env      map[string]string `json:"env,omitempty"`      // for every exec, over the image's
	Workdir  string            `json:"workdir,omitempty"`  // absolute; default: the image's, then /
	User     string            `json:"user,omitempty"`     // name|uid[:group|gid]; default: the image's, then 0:0
	Hostname string            `json:"hostname,omitempty"` // default: the sandbox's id
	// StopSignal asks commands to end when the sandbox is stopped: a name or number; default: the image's, then
	// SIGTERM.
	StopSignal string     `json:"stop_signal,omitempty"`
	Workspace  *Workspace `json:"workspace,omitempty"`
	Mounts     []Mount    `json:"mounts,omitempty"`
	Limits     Limits     `json:"limits,omitzero"`
	Network    NetPolicy  `json:"network,omitzero"`
	// WritableUsr, with the image "host", lets the sandbox make, remove and replace files in /usr, which is the
	// host's: the host sees nothing of it. Otherwise /usr can only be read. Files that are the host's cannot
	// be changed in place.
	WritableUsr bool `json:"writable_usr,omitempty"`
	// ReadOnly makes everything read-only but the mounts that say otherwise, /dev/shm, and /tmp, /var/tmp and /run,
	// which are then in memory.
	ReadOnly bool   `json:"read_only,omitempty"`
	Hosts    []Host `json:"hosts,omitempty"` // more lines of /etc/hosts
	// CapDrop are capabilities that commands of uid 0 do not have, such as CHOWN or CAP_CHOWN, or ALL. Other users have
	// none.
	CapDrop []string `json:"cap_drop,omitempty"`
	// Seccomp is which system calls commands may make; default SeccompDefault.
	Seccomp SeccompProfile `json:"seccomp,omitempty"`
	// SeccompProfile is, with SeccompCustom, the text of a profile as the OCI runtime specification
	// has it, at most MaxSeccompProfile bytes. It can take away from SeccompDefault and not add.
	SeccompProfile string `json:"seccomp_profile,omitempty"`
	// Landlock is whether commands are in a Landlock domain; default LandlockAuto.
	Landlock Landlock `json:"landlock,omitempty"`
	// IDs is who answers for users and groups that the sandbox does not have; default IDsAuto.
	IDs IDs `json:"ids,omitempty"`
	// AppArmor is whether the sandbox must be under hutch's own AppArmor profile; default AppArmorAuto.
	AppArmor AppArmor `json:"apparmor,omitempty"`
	Scope    *Scope   `json:"scope,omitempty"`
	// Undo keeps what the files were before each call of a tool that may change them, and of code.run, so that
	// checkpoint.restore can take it back. It goes with workspaces in mode overlay or ro.
	Undo bool `json:"undo,omitempty"`
	// Uploads are written to the folder user-uploads in the working directory, also of a scope's sandbox that there is.
	Uploads []Upload `json:"uploads,omitempty"`
	TTLS    float64  `json:"ttl_s,omitempty"`  // life of the sandbox in seconds, 0 = no end
	IdleS   float64  `json:"idle_s,omitempty"` // seconds without an exec that it may be, 0 = any
	// What is done when they are over; default LifeRemove.
	TTLAction  LifeAction `json:"ttl_action,omitempty"`
	IdleAction LifeAction `json:"idle_action,omitempty"`
	Platform   string     `json:"platform,omitempty"` // os/arch[/variant] of the image; default: this machine's
	Pull       PullPolicy `json:"pull,omitempty"`     // default "missing"
	// Keep keeps the sandbox's files on disk without the short cuts that only
	// ephemeral sandboxes may take (overlay `volatile`).
	Keep bool `json:"keep,omitempty"`
	// Owner says whose life the sandbox shares: "" is nobody's; OwnerConnection
	// removes it when the connection that created it is lost.
	Owner string `json:"owner,omitempty"`
}

// SeccompProfile names what system calls the commands of a sandbox may make.
type SeccompProfile string

// The profiles. SeccompStrict allows less than SeccompBuild, that less than SeccompDefault,
// and SeccompBrowser something else.
const (
	SeccompDefault SeccompProfile = "default" // any program, but for what reaches the kernel's rarely used parts
	SeccompStrict  SeccompProfile = "strict"  // pure computation: no sockets but local ones, one user, no debuggers
	SeccompBuild   SeccompProfile = "build"   // package installs and compilers: no debuggers
	SeccompBrowser SeccompProfile = "browser" // for programs that make user namespaces: a weaker wall
	SeccompCustom  SeccompProfile = "custom"  // Spec.SeccompProfile has it
)

// SeccompProfiles are all of them.
var SeccompProfiles = []SeccompProfile{SeccompDefault, SeccompStrict, SeccompBuild, SeccompBrowser, SeccompCustom}

// Landlock says whether the commands of a sandbox are in a Landlock domain: a second wall around
// files, behind the mounts.
type Landlock string

// LandlockOn is refused where the kernel has none, or one before Linux 6.2; LandlockAuto then goes on
// without, and Isolation says so.
const (
	LandlockAuto Landlock = "auto"
	LandlockOn   Landlock = "on"
	LandlockOff  Landlock = "off"
)

// IDs says who answers for users and groups other than root's where a daemon without subordinate ids has no others.
type IDs string

// With IDsEmulate PID 1 does: files can be given to them and processes become them, as far as programs see. It is
// refused where the sandbox has real ones, or the kernel cannot do it (before Linux 5.19). IDsAuto then goes on
// without, and Isolation says so. With IDsReal the kernel answers, which refuses them.
const (
	IDsAuto    IDs = "auto"
	IDsEmulate IDs = "emulate"
	IDsReal    IDs = "real"
)

// AppArmor says whether a sandbox must be under hutch's own AppArmor profile, hutch-sandbox.
type AppArmor string

// AppArmorOn is refused where that profile is not loaded and enforced; AppArmorAuto then goes on without, and
// Isolation says so. There is no off: whoever has loaded the profile wants it.
const (
	AppArmorAuto AppArmor = "auto"
	AppArmorOn   AppArmor = "on"
)

// MaxSeccompProfile bounds the text of a custom profile, in bytes.
const MaxSeccompProfile = 256 << 10

// OwnerConnection ties a sandbox to the connection that created it.
const OwnerConnection = "connection"

// PullPolicy says when an image is fetched from its registry.
type PullPolicy string

// The pull policies, named as docker names them.
const (
	PullMissing PullPolicy = "missing"
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// Host is a name that a sandbox has an address for without asking anybody. Its network policy decides whether it can be
// reached.
type Host struct {
	Name    string `json:"name"`
	Address string `json:"address"` // IPv4 or IPv6
}

// MountMode says what a sandbox may do to a host folder.
type MountMode string

// The mount modes. Overlay lets the sandbox write without the host seeing it. Tmpfs is no host folder: it is empty, in
// memory, and gone with a stop or a fork of the sandbox.
const (
	ModeNone    MountMode = "none"
	ModeRO      MountMode = "ro"
	ModeRW      MountMode = "rw"
	ModeOverlay MountMode = "overlay"
	ModeTmpfs   MountMode = "tmpfs"
)

// Workspace is the host folder that the sandbox works on, at /workspace.
type Workspace struct {
	Path string    `json:"path,omitempty"` // absolute, on the host
	Mode MountMode `json:"mode"`
	// FD is the index, in the request's fds, of an O_PATH fd of Path that the
	// client opened: proof that the caller may see it, and protection against a
	// path that changes under way. A client started by root sends a detached,
	// id-mapped mount instead.
	FD *int `json:"fd,omitempty"`
	// Guard are names, relative to the folder, that a sandbox in mode rw cannot write, beside those that are guarded in
	// any such folder (hutch config guard); Unguarded are those of them that it can. AllNames is all of them.
	Guard     []string `json:"guard,omitempty"`
	Unguarded []string `json:"unguarded,omitempty"` // also a folder of some, such as .git
	// GuardNew is what is done about guarded names that are not there; default GuardAuto.
	GuardNew GuardNew `json:"guard_new,omitempty"`
}

// Mount is a further host folder or file, a volume, or a folder in memory.
type Mount struct {
	Source string    `json:"source,omitempty"` // absolute, on the host
	Volume string    `json:"volume,omitempty"` // a name; instead of Source, and made where there is none and Mode is rw
	Target string    `json:"target"`           // absolute, in the sandbox
	Mode   MountMode `json:"mode"`             // ro, rw or overlay; tmpfs without Source and Volume
	FD     *int      `json:"fd,omitempty"`     // of Source
	// SizeBytes bounds a tmpfs, by default as limits.shm_bytes bounds /dev/shm; NoExec keeps programs in it from being
	// executed; Permissions are its own, octal, by default 1777.
	SizeBytes   int64  `json:"size_bytes,omitempty"`
	NoExec      bool   `json:"no_exec,omitempty"`
	Permissions string `json:"permissions,omitempty"`
	// Guard, Unguarded and GuardNew are as Workspace's, of a folder in mode rw.
	Guard     []string `json:"guard,omitempty"`
	Unguarded []string `json:"unguarded,omitempty"`
	GuardNew  GuardNew `json:"guard_new,omitempty"`
}

// Limits bound a sandbox, or one exec in it. Zero means the default: the
// configuration's for a sandbox, none for an exec. CPUs, MemoryBytes, DiskBytes and PIDs
// may be Unlimited: no limit, not even the default.
type Limits struct {
	// Of all processes together: of the sandbox, or of one exec where it has a
	// cgroup with these controllers.
	CPUs        float64 `json:"cpus,omitempty"`         // CPU time per wall time, 1.5 = one and a half cores
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // memory; with SwapBytes more in swap
	DiskBytes   int64   `json:"disk_bytes,omitempty"`   // what the sandbox may write and keep, and what is in volumes that it may write; workspaces in mode rw do not count
	Inodes      int64   `json:"inodes,omitempty"`       // files and folders that it may make; with DiskBytes there is a default
	PIDs        int64   `json:"pids,omitempty"`         // processes and threads, PID 1's own not counted

	// ShmBytes, of a sandbox only, is the size of /dev/shm, which is in memory and counts there. By default it is half
	// of MemoryBytes; without that of the machine's memory, at most 1 GiB.
	ShmBytes int64 `json:"shm_bytes,omitempty"`

	// Of a sandbox only, where its cgroup has the controllers.
	SwapBytes       int64  `json:"swap_bytes,omitempty"`        // on top of MemoryBytes, which it needs
	MemoryHighBytes int64  `json:"memory_high_bytes,omitempty"` // above it processes are slowed down, not killed; cgroup v2
	CPUWeight       int64  `json:"cpu_weight,omitempty"`        // share of busy CPUs against others, 1 to 10000; 100 is usual
	CPUSet          string `json:"cpuset,omitempty"`            // CPUs to run on, such as "0-1,3"
	IOReadBPS       int64  `json:"io_read_bps,omitempty"`       // bytes a second from the disk of the state folder
	IOWriteBPS      int64  `json:"io_write_bps,omitempty"`      // and to it
	// OOMGroup makes the kernel kill all of an exec that reaches its own MemoryBytes and not
	// one process of it; cgroup v2, execs only.
	OOMGroup bool `json:"oom_group,omitempty"`

	// BestEffort, of a sandbox, allows limits that this host cannot enforce. They are told
	// in Sandbox.Unenforced, with what stands in for them.
	BestEffort bool `json:"best_effort,omitempty"`

	// Of each exec; in a sandbox's limits the default of those that name none.
	TimeoutS float64 `json:"timeout_s,omitempty"` // wall time, seconds; exec.timeout_s goes before it
	// CPUTimeS is how much CPU time, in seconds, an exec may use. Where execs have
	// cgroups it is that of the whole tree; elsewhere each process has it for its
	// own, in whole seconds (RLIMIT_CPU), and what the leader has waited for counts
	// at its end.
	CPUTimeS float64 `json:"cpu_time_s,omitempty"`
	// OutputBytes is how much an exec may write to stdout and stderr together. It
	// needs output that is captured, as a terminal's is without stdio or detachable.
	OutputBytes int64   `json:"output_bytes,omitempty"`
	Rlimits     Rlimits `json:"rlimits,omitzero"`
}

// Unenforced is a limit that is not in force.
type Unenforced struct {
	Limit   string  `json:"limit"`             // "memory_bytes"
	Value   float64 `json:"value"`             // what it would have been
	Why     string  `json:"why"`               // what this host lacks
	Instead string  `json:"instead,omitempty"` // what bounds a part of it all the same
	// Metered says that somebody looks, several times a second, and ends what exceeds it.
	Metered bool `json:"metered,omitempty"`
	// Default says that nobody asked for it but the configuration.
	Default bool `json:"default,omitempty"`
}

// MinDiskBytes and MinInodes are the least that a sandbox's own files need, MinShmBytes that /dev/shm can have.
const (
	MinShmBytes  = 64 << 10
	MinDiskBytes = 1 << 20
	MinInodes    = 64
)

// InitThreads are the threads of a sandbox's PID 1, which makes all it needs at its
// start. They are in the sandbox's cgroup on top of Limits.PIDs.
const InitThreads = 14

// Sandbox is the record of one sandbox.
type Sandbox struct {
	ID       string            `json:"id"`
	Name     string            `json:"name,omitempty"`
	Scope    *Scope            `json:"scope,omitempty"`
	Undo     bool              `json:"undo,omitempty"`     // its calls can be undone
	Existing bool              `json:"existing,omitempty"` // of sandbox.create: its scope had it
	State    State             `json:"state"`
	Reason   string            `json:"reason,omitempty"` // why it stopped, failed or is paused
	Paused   *Pause            `json:"paused,omitempty"` // while it is
	Kept     bool              `json:"kept,omitempty"`   // stopped by sandbox.stop: its files and record outlive the daemon
	Created  time.Time         `json:"created"`
	Expires  *time.Time        `json:"expires,omitempty"` // when its ttl_s is over
	Image    string            `json:"image"`
	Template string            `json:"template,omitempty"`   // that it was made by
	Start    string            `json:"start_exec,omitempty"` // the exec that its template started
	Digest   string            `json:"digest,omitempty"`     // of the image's manifest
	Note     string            `json:"note,omitempty"`       // why Image is another one than was asked for
	Labels   map[string]string `json:"labels,omitempty"`
	Pool     string            `json:"pool,omitempty"` // that it waits in, or was acquired from
	PID      int               `json:"pid,omitempty"`  // PID 1, as the host sees it
	Command  []string          `json:"command"`        // what `run` starts without a command of its own: Entrypoint + Cmd
	// Background, in sandbox.list and get, is the command that exec.start with background began last, as long as its
	// output is kept.
	Background *Exec    `json:"background,omitempty"`
	Entry      []string `json:"entrypoint,omitempty"`
	Workdir    string   `json:"workdir"`
	User       string   `json:"user,omitempty"`
	Hostname   string   `json:"hostname"`
	// StopSignal is what sandbox.stop sends; "" is SIGTERM.
	StopSignal string `json:"stop_signal,omitempty"`
	Limits     Limits `json:"limits"` // that are in force
	// Unenforced are limits that this host cannot enforce: defaults, and with
	// limits.best_effort those that were asked for.
	Unenforced []Unenforced       `json:"unenforced,omitempty"`
	Network    SandboxNetwork     `json:"network"`
	Seccomp    SeccompProfile     `json:"seccomp"` // which system calls its commands may make
	Isolation  Isolation          `json:"isolation"`
	PhasesMS   map[string]float64 `json:"phases_ms"` // how long each step of its making took
	// Debug is set only in the answer to a create that asked for it.
	Debug *SandboxDebug `json:"debug,omitempty"`
}

// SandboxNetwork is the policy in force, and by what.
type SandboxNetwork struct {
	NetPolicy
	Enforcement NetEnforcement `json:"enforcement"`
}

// Wall is one part of the isolation and whether it is in force.
type Wall struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "yes" or "no"
	Detail string `json:"detail"` // how, or why not
}

// Isolation says what stands between a sandbox and the host, read back from the
// kernel, not from the request.
type Isolation struct {
	Walls []Wall `json:"walls"`
	// UserMap is "range" when the daemon has subordinate ids, "single" when only
	// the caller's own uid is mapped.
	UserMap string `json:"user_map"`
	// Cgroups is "v2", "v1" or "none".
	Cgroups string `json:"cgroups"`
	// Enforcement of the network policy: "none" (no network at all), "proxy" or "ebpf".
	Enforcement string `json:"network_enforcement"`
	// LandlockABI is that of the domain that all commands are in; 0 is none.
	LandlockABI int `json:"landlock_abi"`
}
