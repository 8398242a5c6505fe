// Package monitorapi is the protocol between the monitor, which stays in the
// caller's namespaces, and hutchd, which lives in a user namespace of its own.
// The channel is a SOCK_SEQPACKET socketpair (internal/packet).
//
//	monitor -> hutchd                  hutchd -> monitor
//	config {...}   hutch-scan, maps    ready {} | failed {...}
//	conn   {actor}          fd
//	stop   {reason, keep}              ending {}
//	swept  {removed, error}            sweep {}
//	probed {checks}                    probe {}
//	reloaded {settings | failed}       reload {}
//	projected {sandbox, error}         project {home, sandbox, bytes, inodes}
//
// Authentication happens in the monitor, because inside a user namespace
// SO_PEERCRED shows every unmapped uid as 65534.
package monitorapi

import (
	"github.com/hutch-sh/hutch/cgroups"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Message is one packet in either direction; exactly one field is set, and the number where it is a question of
// hutchd's or the answer.
type Message struct {
	// Question is the number of a question, which its answer repeats; the first is 1.
	Question uint64 `json:"question,omitempty"`

	// Monitor to hutchd.
	Config *Config `json:"config,omitempty"` // first, once
	Conn   *Conn   `json:"conn,omitempty"`   // fd: an accepted, authenticated connection
	Stop   *Stop   `json:"stop,omitempty"`
	Swept  *Swept  `json:"swept,omitempty"`
	Probed *Probed `json:"probed,omitempty"`
	// Reloaded answers Reload, and tells of a reload that nobody of hutchd's asked for.
	Reloaded  *Reloaded  `json:"reloaded,omitempty"`
	Projected *Projected `json:"projected,omitempty"`

	// hutchd to monitor.
	Ready   *Ready   `json:"ready,omitempty"`   // serves from now on
	Failed  *Failed  `json:"failed,omitempty"`  // could not start; hutchd exits
	Sweep   *Sweep   `json:"sweep,omitempty"`   // remove cgroups of dead daemons
	Probe   *Probe   `json:"probe,omitempty"`   // run the doctor's probes
	Reload  *Reload  `json:"reload,omitempty"`  // read the configuration file again
	Project *Project `json:"project,omitempty"` // limit what a sandbox may write
	Ending  *Ending  `json:"ending,omitempty"`  // takes no connection any more
}

// Config is what hutchd cannot find out inside its namespaces. Its first fd is the hutch-scan binary.
type Config struct {
	// Data is where hutchd keeps everything, as hutchd sees it.
	Data  string    `json:"data"`
	Paths api.Paths `json:"paths"` // as the caller sees them
	// Forbidden are folders that no sandbox may get a mount of.
	Forbidden []string      `json:"forbidden"`
	Cgroups   *cgroups.Tree `json:"cgroups"`
	IDBase    uint32        `json:"id_base"` // kernel uid of hutchd's uid 0
	Owner     uint32        `json:"owner"`   // uid of who started the daemon
	// SingleReason says why only one id is mapped; "" when there is a range.
	SingleReason string `json:"single_reason,omitempty"`
	// Private says that the daemon ends with its one connection.
	Private  bool     `json:"private"`
	Settings Settings `json:"settings"`
	// PID is the monitor's, in its own pid namespace: the daemon's pid for users.
	PID int `json:"pid"`
	// Projects says that the data folder's file system has project quotas in force, which
	// the monitor may set.
	Projects bool `json:"projects,omitempty"`
	// EBPF says whether eBPF programs are in force around all sandboxes. Their maps are the
	// message's fds behind hutch-scan's, unless the monitor has taken over from another: hutch-launch has them.
	EBPF EBPF `json:"ebpf"`
}

// EBPF is what hutch-netd has done.
type EBPF struct {
	On     bool   `json:"on"`
	Errnos bool   `json:"errnos,omitempty"` // refusals have other errnos than EPERM
	Reason string `json:"reason,omitempty"` // why it is not on
}

// Settings are of the configuration file, which hutchd may not be able to open.
type Settings struct {
	Exec      api.ExecBounds     `json:"exec"`
	Defaults  api.Limits         `json:"defaults"`
	Network   api.NetPolicy      `json:"network"`
	Quotas    api.Quotas         `json:"quotas"`
	Audit     api.AuditSettings  `json:"audit"`
	Mode      api.ExecMode       `json:"mode"`
	Host      api.HostExecution  `json:"host_execution"`
	Ready     int                `json:"ready"` // sandboxes launched ahead
	Pools     []api.PoolSpec     `json:"pools,omitempty"`
	Templates []api.TemplateSpec `json:"templates,omitempty"`
	// Runtimes are names for images, see internal/config.
	Runtimes map[string]string `json:"runtimes,omitempty"`
	// Tokens are digests of clients' tokens, by name: see runtime/server.
	Tokens map[string]string `json:"tokens,omitempty"`
}

// Conn is a connection whose peer the monitor has authenticated.
type Conn struct {
	UID uint32 `json:"uid"` // as the monitor sees it
	GID uint32 `json:"gid"`
	PID int32  `json:"pid"`
	// Private marks the connection whose end ends the daemon.
	Private bool `json:"private"`
}

// Stop asks hutchd to remove every sandbox and exit; with Keep, to exit with ExitLeft
// when there are any, which then live on.
type Stop struct {
	Reason string `json:"reason"`
	Keep   bool   `json:"keep"`
}

// Exit codes of a hutchd that ended as it was asked to (sysexits.h). With 0 it has left
// nothing; with any other, or by a signal, it has crashed, and another takes over, unless
// it has said that it is Ending.
const (
	ExitLeft   = 75 // EX_TEMPFAIL: it has left sandboxes for the next daemon
	ExitFailed = 74 // EX_IOERR: not all could be removed; what is left is for hutch gc
)

// Ending says that hutchd is about to exit and takes no more connections: a client that
// comes now is for the next daemon. With Keep it leaves its sandboxes to that one.
type Ending struct {
	Keep bool `json:"keep"`
}

// Reload asks for the configuration file to be read again; the answer is Reloaded.
type Reload struct{}

// Reloaded says what the configuration file holds now, or why that is not in force.
type Reloaded struct {
	Settings *Settings `json:"settings,omitempty"`
	Failed   *Failed   `json:"failed,omitempty"`
	Asked    bool      `json:"asked,omitempty"` // it answers Reload
	Again    bool      `json:"again,omitempty"` // nothing has happened: what a new hutchd may have missed
}

// Project asks for limits of all that is in the folder of a sandbox of this daemon's home;
// 0 and 0 takes them away. The answer is Projected.
type Project struct {
	Home    string `json:"home"`
	Sandbox string `json:"sandbox"`
	Bytes   int64  `json:"bytes"`
	Inodes  int64  `json:"inodes"`
}

// Projected says that the limits are in force, or why not.
type Projected struct {
	Sandbox string `json:"sandbox"`
	Error   string `json:"error,omitempty"`
}

// Sweep asks for a sweep of cgroups; the answer is Swept.
type Sweep struct{}

// Swept lists the cgroups that were removed.
type Swept struct {
	Removed []string `json:"removed"`
	Error   string   `json:"error,omitempty"`
}

// Ready says that hutchd serves connections.
type Ready struct{}

// Failed says why hutchd could not start.
type Failed struct {
	Code api.Code `json:"code"`
	Msg  string   `json:"msg"`
	Hint string   `json:"hint"`
}

// Probe asks for the doctor's probes, which make sense only outside hutchd's own
// user namespace; the answer is Probed.
type Probe struct{}

// Probed are the probes' results.
type Probed struct {
	Checks []api.Check `json:"checks"`
}
