package api

import "encoding/json"

// SandboxDebug is what `hutch debug` shows of how a sandbox was made.
type SandboxDebug struct {
	// Config is the libcontainer configuration that the sandbox was launched
	// with. Its shape is libcontainer's and changes with it.
	Config json.RawMessage `json:"config,omitempty"`
	// Steps are what was done, in order.
	Steps []DebugStep `json:"steps"`
	// Seccomp are the rules of the profile that commands are under, in order: the first that
	// matches a call decides. None of a custom profile, whose text the caller has.
	Seccomp []DebugRule `json:"seccomp,omitempty"`
	// SeccompOther is what a call that no rule names fails with.
	SeccompOther string `json:"seccomp_other,omitempty"`
}

// DebugStep is a step of a creation.
type DebugStep struct {
	Name   string  `json:"name"`
	MS     float64 `json:"ms"`               // how long it took
	Detail string  `json:"detail,omitempty"` // what came of it, for people
}

// DebugPhases are the names of a creation's steps, in order.
var DebugPhases = []string{"image", "folders", "mounts", "netns", "about", "spec", "launch", "enforce", "limits",
	"guest", "isolation", "record"}

// Break stops a creation behind one of its steps. Before it stops it sends a progress notification
// of kind ProgressBreak, with the BreakPoint; it goes on when the other end of the pipe is closed or
// written to, or fails when the request is canceled.
type Break struct {
	Phase string `json:"phase"` // one of DebugPhases
	FD    int    `json:"fd"`    // index, in the request's fds, of the end of a pipe that can be read
}

// ProgressBreak is the Kind of the Progress that tells of a Break.
const ProgressBreak = "debug.break"

// BreakPoint is what there is of a sandbox behind a step.
type BreakPoint struct {
	Sandbox string `json:"sandbox"`
	Folder  string `json:"folder"`           // the sandbox's own, through hutchd's /proc/PID/root
	PID     int    `json:"pid,omitempty"`    // PID 1, as the host sees it
	Cgroup  string `json:"cgroup,omitempty"` // relative to the hierarchies' mount points
}

// DebugRule is a rule of a seccomp profile.
type DebugRule struct {
	Syscalls []string `json:"syscalls"`       // names of the calls
	When     string   `json:"when,omitempty"` // the arguments that it is about, such as "arg1&0xffffffff == 0x5412"
	Action   string   `json:"action"`         // "allow" or the errno, such as "EPERM"
	Reason   string   `json:"reason"`
}
