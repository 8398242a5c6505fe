package api

import "time"

// IDCount is how many ids, from IDBase on, there are in sandboxes of a daemon that root has started: as many as images
// use, so that nobody (65534) exists.
const IDCount = 65536

// Ranges of IDCount ids for daemons of root lie between these: above what useradd(8) and systemd hand out
// (systemd.io/UIDS-GIDS: containers end at 0x6fffffff), below 2^31, which some programs cannot hold.
const (
	FirstIDBase = 0x70000000
	LastIDBase  = 0x80000000 - IDCount
)

// Info is system.info's result.
type Info struct {
	APIVersion int       `json:"api_version"`      // version of this contract
	BuildID    string    `json:"build_id"`         // equal for all binaries of one build
	Version    string    `json:"version"`          // of hutch
	PID        int       `json:"pid"`              // the daemon's, as the host sees it
	Started    time.Time `json:"started"`          // when the daemon was
	Launched   time.Time `json:"launched"`         // since then sandboxes outlive the daemon: what was made later and is not there was removed, or never made
	Ending     bool      `json:"ending,omitempty"` // it was told to shut down: what is asked of it now fails
	Isolation  Isolation `json:"isolation"`        // what a sandbox of this daemon gets
	// IDBase is the kernel uid, as the initial user namespace counts
	// them, of uid 0 in sandboxes: the caller's own, or, started by root, the
	// start of the daemon's range, which then is the gid of gid 0 as well.
	IDBase uint32     `json:"id_base"`
	Counts Counts     `json:"counts"`
	Paths  Paths      `json:"paths"`
	Exec   ExecBounds `json:"exec"`
	// Defaults are limits of sandboxes that ask for none, as far as this host has them.
	Defaults Limits `json:"defaults"`
	// Network is what sandboxes that ask for nothing may reach.
	Network NetPolicy `json:"network"`
	Quotas  Quotas    `json:"quotas"`
	// Mode is where commands run whose caller names none, and HostExecution whether any may run on the host.
	Mode          ExecMode      `json:"mode"`
	HostExecution HostExecution `json:"host_execution"`
}

// ExecBounds are what the daemon's configuration says about commands.
type ExecBounds struct {
	TimeoutS    float64 `json:"timeout_s"`     // of commands that name none, seconds
	MaxTimeoutS float64 `json:"max_timeout_s"` // the most that one may ask for, seconds
}

// Quotas are what the sandboxes of one user may have together; 0 is no quota. A limit that
// a sandbox does not have counts as all that the machine has.
type Quotas struct {
	Sandboxes   int     `json:"sandboxes,omitempty"`    // how many
	CPUs        float64 `json:"cpus,omitempty"`         // CPU time per wall time
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // of their limits together
}

// Counts are how many of each a daemon holds.
type Counts struct {
	Sandboxes int `json:"sandboxes"` // that live
	Execs     int `json:"execs"`     // that run
	Images    int `json:"images"`    // in the store
	Ready     int `json:"ready"`     // launched ahead, of no image yet, for whoever creates a sandbox
	// Removing counts what sandbox.remove has answered for, and whose mounts, cgroup or folder are still being removed.
	Removing int `json:"removing"`
}

// Paths are where a daemon keeps things, as the caller sees them.
type Paths struct {
	Socket  string `json:"socket"`  // socket of the daemon
	State   string `json:"state"`   // folder of all that lasts
	Runtime string `json:"runtime"` // folder of sockets
	Config  string `json:"config"`  // file of the configuration
	Log     string `json:"log"`     // file that the daemon logs to
}

// Check is one of the doctor's probes.
type Check struct {
	Name     string `json:"name"`
	Status   string `json:"status"` // yes, no or inconclusive
	Detail   string `json:"detail"`
	Remedy   string `json:"remedy"`   // an exact command, "" when nothing is to be done
	Required bool   `json:"required"` // sandboxes cannot run without it
}

// Doctor is system.doctor's result.
type Doctor struct {
	Checks []Check `json:"checks"`
}

// ShutdownParams are system.shutdown's params.
type ShutdownParams struct {
	// Mode: "kill" ends every sandbox; with "keep", the default, they live on, and the
	// daemon that is started next has them. Only a private daemon refuses to keep.
	Mode string `json:"mode,omitempty"`
}

// GCResult is system.gc's result: what was swept.
type GCResult struct {
	Removed []string `json:"removed"` // paths and ids
	Bytes   int64    `json:"bytes"`   // freed on disk
}
