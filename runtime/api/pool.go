package api

import "strconv"

// MaxPoolSize is how many sandboxes may wait in one pool.
const MaxPoolSize = 32

// PoolSpec is what pool.create asks for: sandboxes that are all made alike, before anybody needs one.
type PoolSpec struct {
	Name string `json:"name"` // unique among pools
	Size int    `json:"size"` // how many wait, 1 to MaxPoolSize
	// Prewarm makes them now, which is the default; false makes the first when somebody asks for it.
	Prewarm *bool `json:"prewarm,omitempty"`
	// Sandbox is what they are. Name, Owner, Workspace and Mounts are not possible: they belong to one
	// user of a sandbox, who gives the first two to pool.acquire. TTLS counts from then on.
	Sandbox Spec `json:"sandbox"`
}

// Ahead says whether sandboxes are made before anybody asks.
func (p *PoolSpec) Ahead() bool { return p.Prewarm == nil || *p.Prewarm }

// Validate refuses a pool that no machine could have; the error is an *Error with the field at fault.
func (p *PoolSpec) Validate() error {
	if !isName(p.Name) {
		return invalid("name", "%q is not a name", p.Name).
			WithHint("use 1 to 63 of a-z A-Z 0-9 _ . - and start with a letter or digit")
	}
	if err := CheckPoolSize(p.Size); err != nil {
		return err
	}
	const whose = "belongs to one user of a sandbox, and those of a pool wait for anybody"
	switch sp := &p.Sandbox; {
	case sp.Name != "":
		return invalid("sandbox.name", "%s", whose).WithHint("give the name to pool.acquire")
	case sp.Owner != "":
		return invalid("sandbox.owner", "%s", whose).WithHint("give the owner to pool.acquire")
	case len(sp.Uploads) > 0:
		return invalid("sandbox.uploads", "%s", whose).
			WithHint("write files once a sandbox is acquired: fs.write, fs.unpack, fs.sync")
	case sp.Scope != nil:
		return invalid("sandbox.scope", "%s", whose).WithHint("use sandbox.create for a sandbox of a scope")
	case sp.Workspace != nil && sp.Workspace.Mode != ModeNone:
		return invalid("sandbox.workspace", "%s", whose).
			WithHint("use sandbox.create for a sandbox with a workspace, or copy files with fs.write")
	case len(sp.Mounts) > 0:
		return invalid("sandbox.mounts", "%s", whose).
			WithHint("use sandbox.create for a sandbox with mounts, or an image that has the files")
	}
	return p.Sandbox.Validate()
}

// CheckPoolSize refuses a size that no pool may have.
func CheckPoolSize(n int) error {
	if n < 1 || n > MaxPoolSize {
		return invalid("size", "%d sandboxes", n).WithHint("use 1 to %s", strconv.Itoa(MaxPoolSize))
	}
	return nil
}

// PoolCreateParams are pool.create's params.
type PoolCreateParams struct {
	PoolSpec
	Progress bool `json:"progress,omitempty"`
}

// PoolParams name a pool.
type PoolParams struct {
	Pool string `json:"pool"`
}

// PoolResizeParams are those of pool.resize.
type PoolResizeParams struct {
	Pool string `json:"pool"`
	Size int    `json:"size"` // how many are to wait
}

// AcquireParams are those of pool.acquire.
type AcquireParams struct {
	Pool string `json:"pool"`
	// WaitMS is how long, in milliseconds, to wait for a sandbox when none is ready.
	WaitMS float64           `json:"wait_ms,omitempty"`
	Name   string            `json:"name,omitempty"`   // of the sandbox, unique among living ones
	Labels map[string]string `json:"labels,omitempty"` // beside those of the pool
	Owner  string            `json:"owner,omitempty"`  // see Spec.Owner
}

// Validate refuses what no pool could do.
func (p *AcquireParams) Validate() error {
	if p.WaitMS < 0 || p.WaitMS > MaxSeconds*1000 {
		return invalid("wait_ms", "%g", p.WaitMS).WithHint("give milliseconds, 0 for not to wait")
	}
	if err := checkNames(&Spec{Name: p.Name}); err != nil {
		return err
	}
	return checkOwner(p.Owner)
}

// Pool is a pool and how it is filled.
type Pool struct {
	PoolSpec
	Total     int `json:"total"`     // Available and InUse
	Available int `json:"available"` // wait for whoever asks next
	InUse     int `json:"in_use"`    // acquired, and not released yet
	// Error is why the last attempt to make one has failed; it is made again, after a while.
	Error string `json:"error,omitempty"`
	// Configured says that the configuration file has it, and has it again when it is removed.
	Configured bool `json:"configured,omitempty"`
}

// Pools are the pools of a daemon.
type Pools struct {
	Pools []Pool `json:"pools"` // by name
}

// PoolRemoved is the result of pool.remove.
type PoolRemoved struct {
	Removed int `json:"removed"` // sandboxes that waited
	InUse   int `json:"in_use"`  // that go on, and are gone when they are released
}
