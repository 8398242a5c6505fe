package api

import "time"

// Pause is how a paused sandbox stands still.
type Pause struct {
	Since time.Time  `json:"since"`
	By    PauseMeans `json:"by"`
	// ReclaimedBytes is what memory it uses less since its page cache was taken back, behind the reply to
	// sandbox.pause; absent before that, and where it cannot be (cgroup v1 or none, before Linux 5.19). The event
	// sandbox.reclaimed tells of it.
	ReclaimedBytes *int64 `json:"reclaimed_bytes,omitempty"`
}

// ReclaimedEvent is the data of sandbox.reclaimed: the page cache of a paused sandbox was taken back.
type ReclaimedEvent struct {
	Bytes int64 `json:"bytes"` // what memory it uses less; 0 when there was nothing to take
}

// PauseMeans is what stops the processes of a paused sandbox.
type PauseMeans string

// The means. The freezer needs a cgroup v2 hierarchy that the daemon may use; processes do
// not notice it. Elsewhere they get SIGSTOP, which their parents are reported, and SIGCONT at
// the end, which also wakes those that had been stopped before.
const (
	PauseFreezer PauseMeans = "freezer"
	PauseSignal  PauseMeans = "sigstop"
)

// LifeAction is what happens to a sandbox when ttl_s or idle_s is over.
type LifeAction string

// The actions. One that was stopped or killed keeps its record and files until it is
// removed; one that was paused goes on with the next command, and its ttl_s runs on.
const (
	LifeRemove LifeAction = "remove" // the default: killed, and its files deleted
	LifePause  LifeAction = "pause"
	LifeStop   LifeAction = "stop" // sandbox.stop: its commands get its stop signal, and ten seconds later SIGKILL
	LifeKill   LifeAction = "kill"
)

// LifeActions are all of them.
var LifeActions = []LifeAction{LifePause, LifeStop, LifeKill, LifeRemove}

// StopParams are sandbox.stop's params.
type StopParams struct {
	Sandbox string `json:"sandbox"`
	// TimeoutS is how long commands may take to end after the sandbox's stop signal, in seconds; default 10, at most
	// MaxStopS, 0 is none.
	TimeoutS *float64 `json:"timeout_s,omitempty"`
}

// MaxStopS is the most that StopParams.TimeoutS may be.
const MaxStopS = 300

// Ended is what ended with the processes of a sandbox: files are kept, processes are not.
type Ended struct {
	Execs    []string `json:"execs"`    // that ran
	Shells   []string `json:"shells"`   // that were open
	Contexts []string `json:"contexts"` // of code.run
	// Ports are those that the host reached. Nothing opens them again but port.expose.
	Ports []EndedPort `json:"ports,omitempty"`
	Note  string      `json:"note"` // for people
}

// EndedPort is a port that a stop has closed.
type EndedPort struct {
	Port    int    `json:"port"`
	Address string `json:"address"` // as Port.Address
	Token   bool   `json:"token"`   // requests had to have one
}

// StopResult is sandbox.stop's result.
type StopResult struct {
	Sandbox
	Ended Ended `json:"ended"`
}

// StartParams are sandbox.start's params.
type StartParams struct {
	Sandbox string `json:"sandbox"`
	// Folders hand over folders of the host's that the sandbox had mounted: by root, whose folders the daemon cannot
	// open itself. Those that are not among them the daemon opens by their paths. Each must be the very folder that it
	// was.
	Folders []StartFolder `json:"folders,omitempty"`
	FDs     int           `json:"fds,omitempty"`
}

// StartFolder is a folder that is handed over.
type StartFolder struct {
	Target string `json:"target"` // where the sandbox has it: /workspace, or the target of a mount
	FD     int    `json:"fd"`     // index in the request's fds; as in Workspace
}

// Validate refuses impossible times.
func (p StopParams) Validate() error {
	if t := p.TimeoutS; t != nil && (*t < 0 || *t > MaxStopS) {
		return invalid("timeout_s", "%v seconds", *t).WithHint("use 0 to %d", MaxStopS)
	}
	return nil
}
