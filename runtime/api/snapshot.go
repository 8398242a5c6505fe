package api

import "time"

// SnapshotCreateParams are snapshot.create's params.
type SnapshotCreateParams struct {
	Sandbox string            `json:"sandbox"`
	Name    string            `json:"name,omitempty"` // for people and for later calls; unique among a user's snapshots
	Labels  map[string]string `json:"labels,omitempty"`
}

// SnapshotParams name a snapshot by id or name.
type SnapshotParams struct {
	Snapshot string `json:"snapshot"`
}

// SnapshotListParams ask for the snapshots, of one sandbox if Sandbox, an id, says so.
type SnapshotListParams struct {
	Sandbox string `json:"sandbox,omitempty"`
}

// Snapshot is what the files of a sandbox were at a time, with its spec, policy, environment and labels. It is one
// user's, and stays when the sandbox and the daemon are gone.
type Snapshot struct {
	ID      string            `json:"id"`
	Name    string            `json:"name,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Sandbox string            `json:"sandbox"` // the id of the one it was taken of
	Image   string            `json:"image"`
	Created time.Time         `json:"created"`
	// Bytes and Inodes are what it takes by itself, as limits.disk_bytes counts; where the file system has reflinks,
	// the sandbox and the snapshot share blocks. TotalBytes is with the snapshots that the sandbox had been forked
	// from.
	Bytes      int64 `json:"bytes"`
	Inodes     int64 `json:"inodes"`
	TotalBytes int64 `json:"total_bytes"`
	// NotCovered are where the sandbox has folders of the host's in mode rw, and volumes: these are as they are.
	NotCovered []string `json:"not_covered,omitempty"`
	Note       string   `json:"note"` // for people: processes are not in it
}

// SnapshotDiffParams are snapshot.diff's params: what is other in To, another snapshot of the same sandbox, than in
// Snapshot. Without To it is the sandbox as it is now, which stands still meanwhile.
type SnapshotDiffParams struct {
	Snapshot string `json:"snapshot"`
	To       string `json:"to,omitempty"` // another snapshot; default: the sandbox as it is now
	// Offset leaves out so many changes, and Limit bounds them: default DefaultSnapshotChanges, at most
	// MaxSnapshotChanges.
	Offset int `json:"offset,omitempty"`
	Limit  int `json:"limit,omitempty"`
	// Unified, Context and MaxBytes are as of WorkspaceDiffParams; the text is about the changes of this reply.
	Unified  bool `json:"unified,omitempty"`
	Context  *int `json:"context,omitempty"`
	MaxBytes int  `json:"max_bytes,omitempty"`
}

// Bounds of the changes of one reply.
const (
	DefaultSnapshotChanges = 10_000
	MaxSnapshotChanges     = 20_000
)

// SnapshotChange is a name that is another than in the snapshot.
type SnapshotChange struct {
	Path string `json:"path"` // in the sandbox
	// Kind is added, modified (its content, and maybe its mode), deleted, type (a file has become a folder, say) or
	// mode (permissions or owner alone). Of a folder that was added or deleted all that is in it is listed, too.
	Kind string `json:"kind"`
	Type string `json:"type"`           // as of WorkspaceChange
	Was  string `json:"was,omitempty"`  // the type before, where it is another
	Mode string `json:"mode,omitempty"` // octal permission bits that are new
	Size int64  `json:"size,omitempty"` // in bytes, of a file
}

// SnapshotDiff is snapshot.diff's result, in the order of a walk.
type SnapshotDiff struct {
	Snapshot   string           `json:"snapshot"`     // ids
	To         string           `json:"to,omitempty"` // "" is the sandbox as it is now
	Sandbox    string           `json:"sandbox"`
	Changes    []SnapshotChange `json:"changes"`
	NextOffset int              `json:"next_offset,omitempty"` // there are more from here on
	Diff       string           `json:"diff,omitempty"`
	Truncated  bool             `json:"truncated,omitempty"` // Diff is not all
	// NotCovered are as in Snapshot, a writable /usr and, while the sandbox does not run, folders of the host's in mode
	// overlay.
	NotCovered []string `json:"not_covered,omitempty"`
}

// Validate refuses impossible bounds.
func (p SnapshotDiffParams) Validate() error {
	switch {
	case p.Offset < 0 || p.Offset > MaxListOffset:
		return invalid("offset", "%d is not possible", p.Offset).WithHint("use 0 to %d", MaxListOffset)
	case p.Limit < 0 || p.Limit > MaxSnapshotChanges:
		return invalid("limit", "%d is not possible", p.Limit).
			WithHint("use 1 to %d, 0 for the default", MaxSnapshotChanges)
	case p.To != "" && p.To == p.Snapshot:
		return invalid("to", "%q is the same snapshot", p.To).
			WithHint("name another one, or none for the sandbox as it is now")
	}
	return checkDiff(p.Context, p.MaxBytes)
}

// Snapshots is snapshot.list's result, oldest first.
type Snapshots struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// MaxSnapshots is how many snapshots one user can have, MaxForks how many forks one call makes, and MaxForkDepth how
// often what was forked can be forked again.
const (
	MaxSnapshots = 256
	MaxForks     = 100
	MaxForkDepth = 32
)

// SnapshotRestoreParams are snapshot.restore's params: the sandbox that a snapshot was taken of gets the files that it
// had then. It is stopped for that and started again, with the policy and limits that it has now.
type SnapshotRestoreParams struct {
	Snapshot string        `json:"snapshot"`
	TimeoutS *float64      `json:"timeout_s,omitempty"` // as of StopParams; default 0
	Folders  []StartFolder `json:"folders,omitempty"`   // as of StartParams
	FDs      int           `json:"fds,omitempty"`
}

// SnapshotRestored is snapshot.restore's result.
type SnapshotRestored struct {
	Sandbox
	Snapshot string `json:"snapshot"`
	Ended    Ended  `json:"ended"`
}

// ForkParams are sandbox.fork's params: exactly one of Sandbox, as it is now, and Snapshot.
type ForkParams struct {
	Sandbox  string            `json:"sandbox,omitempty"`
	Snapshot string            `json:"snapshot,omitempty"` // instead of Sandbox
	Count    int               `json:"count,omitempty"`    // 1 to MaxForks; default 1
	Name     string            `json:"name,omitempty"`     // of a single one
	Labels   map[string]string `json:"labels,omitempty"`   // over those of the sandbox
	// Folders, for a single fork, are as of StartParams. Those of a sandbox that runs need not be handed over.
	Folders []StartFolder `json:"folders,omitempty"`
	FDs     int           `json:"fds,omitempty"`
}

// Forked is sandbox.fork's result. Either all are made, or none.
type Forked struct {
	Sandboxes []Sandbox `json:"sandboxes"`
	// NotCovered are as in Snapshot: all forks share them.
	NotCovered []string `json:"not_covered,omitempty"`
	Note       string   `json:"note"`
}

// Validate refuses impossible names.
func (p SnapshotCreateParams) Validate() error {
	if p.Name != "" && !volumeName(p.Name) {
		return invalid("name", "%q is no name of a snapshot", p.Name).
			WithHint("use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
	}
	return nil
}

// Validate refuses impossible times.
func (p SnapshotRestoreParams) Validate() error { return StopParams{TimeoutS: p.TimeoutS}.Validate() }

// Validate refuses what cannot be forked, or so often.
func (p ForkParams) Validate() error {
	switch {
	case (p.Sandbox == "") == (p.Snapshot == ""):
		return invalid("sandbox", "exactly one of sandbox and snapshot is needed").
			WithHint("hutch ps and hutch snapshot ls list them")
	case p.Count < 0 || p.Count > MaxForks:
		return invalid("count", "%d forks", p.Count).WithHint("use 1 to %d", MaxForks)
	case p.Count > 1 && p.Name != "":
		return invalid("name", "a name for %d forks", p.Count).WithHint("fork one at a time, or use labels")
	case p.Count > 1 && len(p.Folders) > 0:
		return invalid("folders", "folders handed over are for a single fork").WithHint("fork one at a time")
	}
	return nil
}
