// Package launchapi is the protocol between hutchd and hutch-launch, and
// hutchd's side of it. The channel is a SOCK_SEQPACKET socketpair
// (internal/packet) that hutch-launch makes before it starts hutchd.
//
//	hutchd -> hutch-launch                     hutch-launch -> hutchd
//	create  {id, config, root, ...}  fds       result {seq, create: {...}} fds
//	kill    {id}                               result {seq}
//	destroy {id}                               result {seq}
//	spool   {id, exec, size}         fds       result {seq} fds
//	flush   {id, exec}                         result {seq, spooled}
//	drop    {id, exec}                         result {seq}
//	                                           exited {id, status}
//
// Both ends have the same kernel uid and trust each other; hutch-launch is
// separate because libcontainer re-executes its own binary for every sandbox
// and because it is to outlive hutchd.
package launchapi

import "encoding/json"

// Version of the protocol; hutchd and hutch-launch of one build always agree.
const Version = 1

// Operations.
const (
	OpCreate  = "create"
	OpKill    = "kill"
	OpDestroy = "destroy"
	// OpSpool hands over the read ends of an exec's pipes, non-blocking. For each
	// the result has two fds: the spool (internal/spool) for reading and the
	// eventfd that counts its bytes.
	OpSpool = "spool"
	OpFlush = "flush" // spool what the pipes hold now
	OpDrop  = "drop"  // forget the streams
)

// Request is a message from hutchd.
type Request struct {
	Seq uint64 `json:"seq"` // echoed in the result
	Op  string `json:"op"`
	ID  string `json:"id"` // the sandbox, chosen by hutchd

	Create *Create `json:"create,omitempty"`
	Spool  *Spool  `json:"spool,omitempty"` // of spool, flush and drop
}

// Spool names the streams of an exec.
type Spool struct {
	Exec string `json:"exec"`
	Size int64  `json:"size,omitempty"` // bytes kept of each stream, see spool.LayoutOf
}

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
	// child "init" of its cgroup, beside which execs get theirs.
	CgroupMount string `json:"cgroup_mount,omitempty"`
	// Seccomp names the profile for commands; "" is the default one.
	Seccomp string `json:"seccomp,omitempty"`
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
	Status int    `json:"status"` // wait status, as wait4(2) gives it
}

// Error is a failure of hutch-launch, with the code of runtime/api.
type Error struct {
	Code string `json:"code"`
	Op   string `json:"op"`
	Msg  string `json:"msg"`
	Hint string `json:"hint,omitempty"`
}
