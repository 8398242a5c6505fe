package api

// About is what a sandbox finds about itself in /run/hutch/policy.json, for the programs and models
// inside. It names nothing of the host. Fields may be added; Version changes when one
// that was there means something else.
type About struct {
	Version int    `json:"version"`
	Text    string `json:"text"` // the same for a model, in a paragraph; also in policy.txt
	Sandbox string `json:"sandbox"`
	Image   string `json:"image"`
	// WritableUsr: see Spec.
	WritableUsr bool           `json:"writable_usr,omitempty"`
	Folders     []AboutFolder  `json:"folders,omitempty"` // of the host's, the workspace among them
	Network     AboutNetwork   `json:"network"`
	Limits      Limits         `json:"limits"`
	Seccomp     SeccompProfile `json:"seccomp"`
}

// AboutFolder is a folder of the host's, or a volume, as the sandbox sees it.
type AboutFolder struct {
	Path   string    `json:"path"`
	Mode   MountMode `json:"mode"`
	Volume bool      `json:"volume,omitempty"`
	// Guarded are names below Path that can only be read, and are not to be made.
	Guarded []string `json:"guarded,omitempty"`
}

// AboutNetwork is what the sandbox may reach: the lists of its NetPolicy.
type AboutNetwork struct {
	Mode       NetMode  `json:"mode"`
	Allow      []string `json:"allow,omitempty"`
	Block      []string `json:"block,omitempty"`
	AllowCIDRs []string `json:"allow_cidrs,omitempty"`
	BlockCIDRs []string `json:"block_cidrs,omitempty"`
	Ask        bool     `json:"ask,omitempty"` // somebody is asked about what is not allowed
}
