package api

import "time"

// Checkpoint is what the files of a sandbox were before a call that may have changed them.
type Checkpoint struct {
	ID   string    `json:"id"`
	Call string    `json:"call"` // id of the call, as its result has it
	Tool string    `json:"tool"` // name of the tool, or code.run, or checkpoint.restore
	Time time.Time `json:"time"`
	// Bytes and Inodes are what it takes beside what others have in common with it.
	Bytes  int64    `json:"bytes"`
	Inodes int64    `json:"inodes"`
	Paths  []string `json:"paths,omitempty"` // that the call named; a command may have changed any
	Undone bool     `json:"undone"`          // the files are not what the call made of them
}

// Bounds of the checkpoints of one sandbox; the oldest go first. With limits.disk_bytes and limits.inodes checkpoints
// may take as much again as the files, else these.
const (
	MaxCheckpoints       = 50
	MaxCheckpointBytes   = 4 << 30
	MaxCheckpointInodes  = 1 << 20
	MaxCheckpointPaths   = 20
	maxCheckpointCallLen = 64
)

// Checkpoints is checkpoint.list's result, oldest first.
type Checkpoints struct {
	Checkpoints []Checkpoint `json:"checkpoints"`
	TotalBytes  int64        `json:"total_bytes"` // that all of them take
	// NotCovered are where the sandbox has volumes: what is in these stays as it is.
	NotCovered []string `json:"not_covered,omitempty"`
}

// CheckpointRestoreParams are checkpoint.restore's params: the sandbox gets the files that it had before a call. It is
// stopped for that and started again, with the policy and limits that it has now.
type CheckpointRestoreParams struct {
	Sandbox string `json:"sandbox"`
	// ToCall is the call, or the id of its checkpoint; default: the last that was not undone.
	ToCall   string        `json:"to_call,omitempty"`
	TimeoutS *float64      `json:"timeout_s,omitempty"` // as of StopParams; default 0
	Folders  []StartFolder `json:"folders,omitempty"`   // as of StartParams; those of a sandbox that runs need not be handed over
	FDs      int           `json:"fds,omitempty"`
}

// CheckpointRestored is checkpoint.restore's result.
type CheckpointRestored struct {
	Sandbox
	ToCall string   `json:"to_call"` // the files are those of before it
	Call   string   `json:"call"`    // of this restore: checkpoint.restore to it takes it back
	Undone []string `json:"undone"`  // calls, the last one first
	Ended  Ended    `json:"ended"`
	// NotCovered are as of Checkpoints.
	NotCovered []string `json:"not_covered,omitempty"`
}

// Validate refuses impossible params.
func (p CheckpointRestoreParams) Validate() error {
	if len(p.ToCall) > maxCheckpointCallLen {
		return invalid("to_call", "%d bytes", len(p.ToCall)).WithHint("checkpoint.list shows the calls")
	}
	return StopParams{TimeoutS: p.TimeoutS}.Validate()
}

// checkUndo refuses folders of the host's that the sandbox writes to directly: what is in them is the host's, and not
// the sandbox's to take back.
func checkUndo(s *Spec) error {
	if !s.Undo {
		return nil
	}
	if w := s.Workspace; w != nil && w.Mode == ModeRW {
		return invalid("undo", "the workspace %s is in mode rw: what is written there cannot be taken back", w.Path).
			WithHint("use mode overlay (--workspace PATH:overlay), and bring what is good into the folder with hutch workspace apply")
	}
	if s.ReadOnly {
		return invalid("undo", "with read_only there is nothing to take back").WithHint("give one of them")
	}
	for i := range s.Mounts {
		if m := &s.Mounts[i]; m.Mode == ModeTmpfs {
			return invalid("undo", "%s is in memory: what is written there cannot be taken back", m.Target).
				WithHint("leave the tmpfs out: what is written elsewhere goes with the sandbox as well")
		} else if m.Volume == "" && m.Mode == ModeRW {
			return invalid("undo", "%s is mounted at %s in mode rw: what is written there cannot be taken back",
				m.Source, m.Target).
				WithHint("mount it in mode overlay or ro (-v SRC:DST:overlay)")
		}
	}
	return nil
}
