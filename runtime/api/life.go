package api

import "time"

// Pause is how a paused sandbox stands still.
type Pause struct {
	Since time.Time  `json:"since"`
	By    PauseMeans `json:"by"`
}

// PauseMeans is what stops the processes of a paused sandbox.
type PauseMeans string

// The means. The freezer needs a cgroup v2 hierarchy that the daemon may use; processes do
// not notice it. Elsewhere they get SIGSTOP, which their parents are told of, and SIGCONT at
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
	LifeStop   LifeAction = "stop" // its commands get SIGTERM, and ten seconds later SIGKILL
	LifeKill   LifeAction = "kill"
)

// LifeActions are all of them.
var LifeActions = []LifeAction{LifePause, LifeStop, LifeKill, LifeRemove}
