// Package guestapi is the protocol between hutchd and hutch-init, PID 1 of a
// sandbox, and hutchd's side of it.
//
// The channel is one SOCK_SEQPACKET socketpair made before the sandbox exists:
// hutch-launch keeps one end and lends it to hutchd, hutch-init inherits the
// other as fd 3. There is no listener, so nothing inside can connect to it.
//
// One message is one packet: a JSON object, at most MaxPacket bytes. A request
// whose JSON is larger (long argv or environment) is written to a sealed memfd
// that rides as the first fd of a packet {"op":"large"}.
//
//	hutchd -> hutch-init                       hutch-init -> hutchd
//	setup  {exec_filter, hostname,      fds    ready   {version}
//	        cgroups, landlock}
//	exec   {exec, argv, env, ...}       fds    started {exec, pid}
//	                                           failed  {exec, reason, errno, message}
//	                                           exited  {exec, status, rusage, killed}
//	signal {exec, signal}
//	kill   {exec}
//	stop   {exec}                              ready   {exec}
//	go_on  {exec}                              ready   {exec}
//	hold   {exec, wait_ms}                     ready   {exec, moving}
//	release {exec}                             ready   {exec}
//	made   {exec, acks}                        ready   {exec, made, more}
//	                                           refused {refused}
//	list   {}                                  started | pending | failed | exited ...
//	                                           listed  {}
//
// hutch-init remembers how an exec failed or ended until hutchd has acknowledged it,
// which it does with a later exec. So no end is lost when hutchd dies: its successor
// asks for a list.
//
// Trust: hutch-init trusts hutchd. hutchd trusts nothing that comes back: the
// sandbox may have taken over PID 1. hutchd therefore receives without a
// control buffer (no fd ever comes out), bounds every packet, and ignores
// messages about execs that it did not start or that have already ended.
package guestapi

// Version of the protocol. hutchd refuses a PID 1 that says another.
const Version = 4

// MaxPacket bounds one packet in bytes, in both directions. It is below
// net.core.wmem_max's default of 212992, so that it always fits.
const MaxPacket = 128 << 10

// MaxLarge bounds a request carried in a memfd, in bytes. The kernel's own
// limit for argv and envp together is a quarter of the stack limit, 2 MiB by
// default (execve(2)).
const MaxLarge = 4 << 20

// MaxMessage bounds Event.Message, in bytes.
const MaxMessage = 4096

// MaxKilled bounds the pids that Event.Killed lists.
const MaxKilled = 1024

// ChannelFD is where hutch-init finds its end of the channel: the first of
// libcontainer's ExtraFiles.
const ChannelFD = 3

// Operations that hutchd asks for.
const (
	OpSetup  = "setup"  // first message, once; fds: [0] BPF of the exec filter, [1] with Cgroups their mount
	OpGuard  = "guard"  // before the first command: what no command may make, in place of what setup said
	OpExec   = "exec"   // fds: stdin, stdout, stderr; or one pty slave when TTY
	OpSignal = "signal" // to the exec's leader
	OpKill   = "kill"   // SIGKILL to the exec and everything it left behind
	OpStop   = "stop"   // SIGSTOP to every process but PID 1; Exec is the number of the answer
	OpGoOn   = "go_on"  // SIGCONT to them
	// OpHold keeps folders from being moved (ArgMoves) until OpRelease. It is answered when none is, or after WaitMS
	// with the one that is.
	OpHold    = "hold"
	OpRelease = "release"
	// OpMade asks which repositories were made since the last answer, where that is allowed (Guard). Acks has the
	// number of that answer: without, what it said is said again.
	OpMade  = "made"
	OpList  = "list"  // report every exec that runs or whose end was not acknowledged; Exec is the list's id
	OpLarge = "large" // fds: [0] sealed memfd with the real request, then its fds
)

// WorkerFiles is the worker that serves files: see filesapi.
const WorkerFiles = "files"

// WorkerShell is the worker that keeps a shell: see shellapi. What it starts is found by
// its cgroup, or its session, as that of any command.
const WorkerShell = "shell"

// Events that hutch-init reports.
const (
	EvReady   = "ready"   // answer to setup, guard, stop, go_on, hold, release and made
	EvStarted = "started" // execve succeeded
	EvFailed  = "failed"  // the command never ran
	EvExited  = "exited"  // the leader is gone
	EvPending = "pending" // in a list: accepted, not started yet
	EvListed  = "listed"  // end of the list of the id Exec
	EvListen  = "listen"  // somebody in the sandbox is about to call listen(2)
	EvRefused = "refused" // the filter has refused a system call
)

// Request is a message from hutchd. Only the fields of its Op are set.
type Request struct {
	Op   string `json:"op"`
	Exec uint64 `json:"exec,omitempty"` // chosen by hutchd, never reused

	// exec
	Argv    []string `json:"argv,omitempty"`
	Command string   `json:"command,omitempty"` // instead of Argv: run by the sandbox's shell
	Env     []string `json:"env,omitempty"`     // complete; PATH decides the search; HOME is filled in when absent
	Cwd     string   `json:"cwd,omitempty"`     // absolute; "" is /
	MkCwd   bool     `json:"mk_cwd,omitempty"`  // create Cwd when missing (an image's WorkingDir)
	User    string   `json:"user,omitempty"`    // name|uid[:group|gid], resolved against the sandbox's /etc/passwd and /etc/group; "" is 0:0
	TTY     bool     `json:"tty,omitempty"`     // fds[0] is a pty slave: becomes stdio and controlling terminal
	Rlimits []Rlimit `json:"rlimits,omitempty"`
	// CPUs is the sched_setaffinity(2) mask of the command, little-endian words of 8 bytes; none leaves it as it is.
	CPUs []byte `json:"cpus,omitempty"`
	// CapDrop has a bit for each capability that the command does not have.
	CapDrop uint64 `json:"cap_drop,omitempty"`
	// Cgroup is the folder below the mount of setup that the exec starts in. Who
	// made it kills the exec's tree by it: OpKill then ends the leader alone.
	Cgroup string `json:"cgroup,omitempty"`
	// Acks are execs whose end hutchd has put on record.
	Acks []uint64 `json:"acks,omitempty"`

	// Worker is a role of hutch-init's own binary, instead of Argv and Command. One of
	// WorkerFiles starts nothing, and a kill ends its leader alone.
	Worker string `json:"worker,omitempty"`

	// signal
	Signal int `json:"signal,omitempty"`

	// hold
	WaitMS int64 `json:"wait_ms,omitempty"`

	// setup
	Hostname string `json:"hostname,omitempty"`
	// Cgroups says that a detached read-only mount of the sandbox's cgroup rides
	// along, in which execs have theirs.
	Cgroups bool `json:"cgroups,omitempty"`
	// Landlock is the ABI of the domain that commands are to be in; 0 is none.
	Landlock int `json:"landlock,omitempty"`
	// Guard is what no command may make. It takes a domain, and a sandbox that was launched for it (ArgMakes).
	Guard *Guard `json:"guard,omitempty"`
}

// Guard says what cannot be made: what internal/guard has for each of some folders.
type Guard struct {
	Roots []GuardRoot `json:"roots"`
}

// GuardRoot is a folder with a guard.
type GuardRoot struct {
	Path      string   `json:"path"`          // absolute
	Own       []string `json:"own,omitempty"` // more names, relative to it
	Unguarded []string `json:"unguarded,omitempty"`
	Except    []string `json:"except,omitempty"` // mounts in it that have no guard, absolute
}

// Rlimit is one setrlimit(2) call made before execve. Values are the kernel's.
type Rlimit struct {
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Reason says why a command never ran.
type Reason string

// The reasons, and the exit code that `hutch run` makes of them.
const (
	ReasonNotFound      Reason = "not_found"      // no such command: 127
	ReasonNotExecutable Reason = "not_executable" // EACCES, ENOEXEC, a folder: 126
	ReasonBadUser       Reason = "bad_user"       // unknown or unmapped user or group: 125
	ReasonBadCwd        Reason = "bad_cwd"        // cannot enter the working directory: 125
	ReasonTooBig        Reason = "too_big"        // E2BIG: 125
	ReasonNoProcess     Reason = "no_process"     // fork failed: EAGAIN, ENOMEM: 125
	ReasonInternal      Reason = "internal"       // 125
)

// Event is a message from hutch-init: untrusted.
type Event struct {
	Ev      string `json:"ev"`
	Version int    `json:"version,omitempty"`
	Exec    uint64 `json:"exec,omitempty"`
	PID     int    `json:"pid,omitempty"` // in the sandbox's pid namespace

	Reason  Reason `json:"reason,omitempty"`
	Errno   int    `json:"errno,omitempty"`
	Message string `json:"message,omitempty"` // what was tried, with values

	Status int    `json:"status,omitempty"` // wait status, as wait4(2) gives it
	Usage  *Usage `json:"usage,omitempty"`
	Killed []int  `json:"killed,omitempty"` // pids that a kill ended, leader first

	Moving string   `json:"moving,omitempty"` // of EvReady: the folder that is being moved
	Made   []string `json:"made,omitempty"`   // of EvReady: folders that have become repositories, absolute
	More   bool     `json:"more,omitempty"`   // of EvReady: there were more than Made has room for

	Refused *Refused `json:"refused,omitempty"`
	IDs     bool     `json:"ids,omitempty"`      // of EvReady: ids are emulated
	CapDrop bool     `json:"cap_drop,omitempty"` // of EvReady: Request.CapDrop and CPUs mean something
}

// Refused is a system call that failed because of PID 1's filter. The same calls of the
// same exec are reported at once and then once a second.
type Refused struct {
	NR      uint32    `json:"nr"`
	Args    [6]uint64 `json:"args"`
	Errno   int       `json:"errno"`
	Count   int64     `json:"count"` // with those before that were not reported
	PID     int       `json:"pid"`   // in the sandbox's pid namespace
	Session int       `json:"session,omitempty"`
	Cgroup  string    `json:"cgroup,omitempty"` // folder of its exec's, where there is one
	Command string    `json:"command,omitempty"`
	// File is set of a call that the filter allows, and that fails by the permissions of a file as far as
	// can be foreseen. Only of a sandbox that was launched to tell of them (ArgFiles).
	File *RefusedFile `json:"file,omitempty"`
}

// RefusedFile is what a call wanted of a file.
type RefusedFile struct {
	Op   string    `json:"op"`   // one of FileOps
	Path string    `json:"path"` // without symlinks, from the root of the process
	At   RefusedAt `json:"at"`
}

// RefusedAt is the file or folder whose mode or mount decides.
type RefusedAt struct {
	Path  string `json:"path,omitempty"` // of a folder above the file; "" when it is the file itself
	UID   uint32 `json:"uid"`
	GID   uint32 `json:"gid"`
	Mode  uint32 `json:"mode"`  // st_mode
	FSUID uint32 `json:"fsuid"` // whom the kernel asks about
	FSGID uint32 `json:"fsgid"`
}

// What is done to a file.
const (
	FileRead   = "read"
	FileWrite  = "write"
	FileCreate = "create"
	FileRemove = "remove"
	FileRename = "rename"
	FileMode   = "change the mode of"
	FileOwner  = "change the owner of"
	// FileRepository is what hutch-init of an earlier build says of a repository that has been made where that is
	// allowed (Guard). It is not refused, and has no errno. OpMade is in its place.
	FileRepository = "make a repository of"
)

// FileOps are all of them.
var FileOps = []string{FileRead, FileWrite, FileCreate, FileRemove, FileRename, FileMode, FileOwner, FileRepository}

// ArgFiles is the argument with which PID 1 tells of refused files too. Each call that names one takes
// a way through PID 1 then.
const ArgFiles = "tell-files"

// ArgMakes is the argument with which PID 1 makes names for commands where they cannot (Request.Guard). Each call that
// makes one takes a way through PID 1 then. ArgAnd is between two arguments.
const (
	ArgMakes = "make-names"
	ArgAnd   = "+"
)

// ArgMoves is the argument with which PID 1 moves folders in overlays of folders, where the kernel does not. Each
// rename and link takes a way through PID 1 then. ArgMakes has it as well.
const ArgMoves = "move-folders"

// ArgIDs is the argument with which PID 1 answers for ids that the sandbox does not have. Each call about ids and
// owners takes a way through PID 1 then. Event.IDs says whether it can.
const ArgIDs = "pretend-ids"

// What hutch-init tells of refused calls at most; more is not hutch-init any more.
const (
	RefusedBurst = 100 // at once
	RefusedRate  = 20  // and a second, from then on
)

// What hutch-init remembers of new repositories between two OpMade.
const (
	MaxMade      = 200
	MaxMadeBytes = 64 << 10 // of their names, on disk and as JSON
)

// MaxPath bounds the name of a file in what is reported, in bytes: PATH_MAX.
const MaxPath = 4096

// Usage is the leader's and its waited-for children's resource use.
type Usage struct {
	UserUS   int64 `json:"user_us"`   // CPU time in user mode, microseconds
	SystemUS int64 `json:"system_us"` // CPU time in the kernel, microseconds
	MaxRSSKB int64 `json:"maxrss_kb"` // peak resident set, KiB
}
