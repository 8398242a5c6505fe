// Package launchapi is the protocol between hutchd and hutch-launch, and
// hutchd's side of it. The channel is a SOCK_SEQPACKET socketpair
// (internal/packet) that hutch-launch makes before it starts hutchd.
//
//	hutchd -> hutch-launch                     hutch-launch -> hutchd
//	create  {id, config, root, ...}  fds       result {seq, create: {...}} fds
//	kill    {id}                               result {seq}
//	destroy {id}                               result {seq}
//	claim   {id, claim}                        result {seq}
//	hold    {id, exec, roles, meta}  fds       result {seq} fds
//	flush   {id, exec}                         result {seq, spooled}
//	end     {id, exec, end}
//	note    {id, exec, note}
//	loosen  {id, exec}
//	drop    {id, exec}
//	keep    {key}                    fd
//	unkeep  {key}                              result {seq}
//	adopt   {}                                 adopted {...} fds, once for each thing
//	                                           result {seq}
//	                                           exited {id, status}
//
// Both ends have the same kernel uid and trust each other; hutch-launch is
// separate because libcontainer re-executes its own binary for every sandbox
// and because it outlives hutchd. What a hutchd must not take with it when it is
// killed, it hands to hutch-launch before it acts on it: fds as a service manager's
// fd store has them (sd_notify(3), FDSTORE), and a few bytes that tell the next
// hutchd what they are. That one gets everything back with adopt, its first request.
//
// Messages without a seq have no answer: once they are sent, no death of hutchd
// can undo them.
package launchapi

import "encoding/json"

// Version of the protocol. hutchd and hutch-launch of one build always agree; a
// hutchd of another build that takes over living sandboxes must speak the same.
const Version = 5

// Operations.
const (
	OpCreate  = "create"
	OpKill    = "kill"
	OpDestroy = "destroy"
	// OpClaim gives a generic sandbox its root, once. When it fails, the sandbox is destroyed.
	OpClaim = "claim"
	OpTake  = "take" // a sandbox that was claimed ahead is somebody's now; no answer
	// OpHold hands over the fds of an exec that must outlive hutchd, before PID 1 is
	// asked to start it. When all are to be kept only, it has no answer.
	OpHold  = "hold"
	OpFlush = "flush" // spool, or pass on, what the pipes hold now
	OpEnd   = "end"   // note the end of an exec; no answer
	OpNote  = "note"  // replace the note of an exec; no answer
	OpDrop  = "drop"  // forget an exec; no answer

	OpLoosen = "loosen" // close the fds of an exec that are only kept; no answer

	OpKeep   = "keep"   // hold an fd of hutchd's own under a key; no answer
	OpUnkeep = "unkeep" // close it; no answer
	OpAdopt  = "adopt"  // give everything back to a new hutchd
)

// Request is a message from hutchd.
type Request struct {
	Seq uint64 `json:"seq,omitempty"` // echoed in the result; 0 wants none
	Op  string `json:"op"`
	ID  string `json:"id,omitempty"`  // the sandbox, chosen by hutchd
	Key string `json:"key,omitempty"` // of keep and unkeep

	Create *Create `json:"create,omitempty"`
	Claim  *Claim  `json:"claim,omitempty"`
	Exec   *Exec   `json:"exec,omitempty"` // of hold, flush, end, note, loosen and drop
}

// Exec is an exec of a sandbox as hutch-launch knows it.
type Exec struct {
	ID   string `json:"id"`
	Size int64  `json:"size,omitempty"` // bytes kept of each spool, see spool.LayoutOf
	// Roles are what the fds of a hold are for, one for each.
	Roles []Role `json:"roles,omitempty"`
	// Meta, Note and End are hutchd's own words to its successor: what the exec is, what
	// has become of it since, and how it ended.
	Meta json.RawMessage `json:"meta,omitempty"`
	Note json.RawMessage `json:"note,omitempty"`
	End  json.RawMessage `json:"end,omitempty"`
}

// Role is what hutch-launch does with an fd of a hold.
type Role string

// The roles.
const (
	// RoleSpool is a pipe's read end or a terminal's master, non-blocking, whose bytes
	// are spooled. The result has two fds for it: the spool (internal/spool) for
	// reading, and the eventfd that counts its bytes.
	RoleSpool Role = "spool"
	// RoleFrom is a file of a caller's, and the next fd, of RoleTo, the write end of a
	// pipe or a terminal's master: what the caller writes is passed on, and its end.
	RoleFrom Role = "from"
	RoleTo   Role = "to"
	// RoleOut is a pipe's read end or a terminal's master, non-blocking, and the next
	// fd, of RoleInto, a file of a caller's: what the command has written when it ends
	// is passed on by the flush of its end.
	RoleOut  Role = "out"
	RoleInto Role = "into"
	// RoleInto may also follow a RoleSpool that is a terminal's master: what appears is
	// passed on as well, at the caller's pace, until the caller goes, which is no end
	// of the terminal's. RoleKeys in the place of RoleTo says the same of what is typed:
	// the end of the caller's file is not the end of input.
	RoleKeys Role = "keys"
	// RoleKeep is held open until the exec ends or is loosened: a pipe's write end,
	// the master of a terminal.
	RoleKeep Role = "keep"
)

// Spooled is the state of one stream after a flush.
type Spooled struct {
	Total int64 `json:"total"` // bytes so far
	Lost  int64 `json:"lost"`  // offset from which on the disk took nothing, -1 while it takes all
}

// Create asks for a sandbox. The fd that rides along is its network namespace.
//
// Folders are absolute and hutchd's own: <state>/sandboxes/<id>/{root,upper,work,run}
// exist and are empty. hutch-launch mounts the root file system on root and
// keeps libcontainer's state in run.
type Create struct {
	// Config is a libcontainer configs.Config as spec.Build made it, with
	// Rootfs = the root folder. hutch-launch fills in only what it alone knows:
	// the path of the network namespace fd.
	Config json.RawMessage `json:"config"`
	// Overlay is the root file system.
	Overlay Overlay `json:"overlay"`
	// RunDir is where libcontainer keeps the sandbox's state.
	RunDir string `json:"run_dir"`
	// PtsDir, when set, is a folder on which hutch-launch mounts the devpts
	// instance that the config binds to /dev/pts; hutchd opens ptys there. It
	// must be trusted: it is opened before any code of the sandbox runs.
	PtsDir string `json:"pts_dir,omitempty"`
	// CgroupV2 is the path below the cgroup2 mount that PID 1 must be in, read
	// back from /proc/PID/cgroup before anything runs; "" when cgroups are not
	// used.
	CgroupV2 string `json:"cgroup_v2,omitempty"`
	// CgroupMount, when set, is where cgroup2 is mounted: PID 1 is moved into the
	// child "init" of its cgroup, beside which execs get theirs. That is for a v2
	// hierarchy with the controllers, which refuses processes beside groups.
	CgroupMount string `json:"cgroup_mount,omitempty"`
	// Seccomp names the profile for commands; "" is the default one. The text of a custom one is
	// in SeccompProfile, and is compiled here.
	Seccomp        string `json:"seccomp,omitempty"`
	SeccompProfile string `json:"seccomp_profile,omitempty"`
	// InitArg is an argument of PID 1's, such as guestapi.ArgFiles.
	InitArg string `json:"init_arg,omitempty"`
	// Generic makes a sandbox that waits for a claim. It belongs to this hutchd alone: its death ends
	// it, and it is not handed to the next.
	Generic bool `json:"generic,omitempty"`
}

// Claim gives a generic sandbox, in which nothing but PID 1 has ever run, another root file
// system, mounts and a name. See runtime/DESIGN.md, "Claiming by a root swap".
type Claim struct {
	// Overlay is the root file system; Target is that of the create. It has a folder, made for this,
	// at each place where the create's config mounts something.
	Overlay Overlay `json:"overlay"`
	// Binds are mounted in this order, with nosuid, nodev and what is mounted below them.
	Binds    []ClaimBind `json:"binds,omitempty"`
	Hostname string      `json:"hostname"`
	// Ahead claims a sandbox before anybody has asked for it: it remains a generic one until OpTake.
	Ahead bool `json:"ahead,omitempty"`
}

// ClaimBind is a folder or file of hutchd's in a claimed sandbox.
type ClaimBind struct {
	Source   string `json:"source"` // absolute
	Target   string `json:"target"` // absolute, in the sandbox; made where it is missing
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Overlay is one overlay mount. Layers are immutable and shared.
type Overlay struct {
	Dir      string   `json:"dir"`   // folder that relative Lower names start from
	Lower    []string `json:"lower"` // top-most first, as overlayfs orders them
	Upper    string   `json:"upper"` // absolute
	Work     string   `json:"work"`  // absolute, same file system as Upper
	Target   string   `json:"target"`
	Volatile bool     `json:"volatile"` // no fsync: for sandboxes whose files die with them
}

// Reply is a message from hutch-launch: a result (Seq set) or an event.
type Reply struct {
	Seq     uint64        `json:"seq,omitempty"`
	Error   *Error        `json:"error,omitempty"`
	Create  *CreateResult `json:"create,omitempty"`
	Spooled []Spooled     `json:"spooled,omitempty"` // of flush, in the order of the pipes
	Exited  *Exited       `json:"exited,omitempty"`  // event, Seq is 0
	Adopted *Adopted      `json:"adopted,omitempty"` // event, before the result of adopt
}

// Adopted is one thing that hutch-launch has held for the hutchd before. Exactly one
// field is set. Sandboxes come before their execs.
type Adopted struct {
	// Key names an fd of a keep: fds [0].
	Key string `json:"key,omitempty"`
	// Sandbox has fds [0] the guest channel and [1] a pidfd of PID 1.
	Sandbox *AdoptedSandbox `json:"sandbox,omitempty"`
	// Exec has the fds of its hold: for each spool its file and a new eventfd, which
	// counts from the first byte on; for each keep the fd itself.
	Exec *AdoptedExec `json:"exec,omitempty"`
}

// AdoptedSandbox is a sandbox that was created and not destroyed. PID 1 may have
// ended: then its exited event comes as well.
type AdoptedSandbox struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
}

// AdoptedExec is an exec that was held and not dropped.
type AdoptedExec struct {
	Sandbox string `json:"sandbox"`
	Exec
}

// CreateResult describes a sandbox whose PID 1 is running and waits for setup.
// Its fds: [0] the guest channel, [1] the sealed BPF of the exec filter,
// [2] a pidfd of PID 1, and [3], when PtsDir was set, the ptmx of its devpts.
type CreateResult struct {
	PID    int                `json:"pid"` // as hutchd's pid namespace sees it
	Phases map[string]float64 `json:"phases_ms"`
}

// Exited says that a sandbox's PID 1 is gone, for whatever reason.
type Exited struct {
	ID     string `json:"id"`
	PID    int    `json:"pid"`
	Status int    `json:"status"` // wait status, as wait4(2) gives it
}

// Error is a failure of hutch-launch, with the code of runtime/api.
type Error struct {
	Code  string `json:"code"`
	Op    string `json:"op"`
	Msg   string `json:"msg"`
	Field string `json:"field,omitempty"`
	Hint  string `json:"hint,omitempty"`
}
