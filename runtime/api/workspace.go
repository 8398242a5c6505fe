package api

// WorkspaceParams name what was changed in a sandbox's workspace of mode overlay.
type WorkspaceParams struct {
	Sandbox string `json:"sandbox"`
	// Paths, relative to the workspace, choose what is meant, each with all that is below it; none means all.
	Paths []string `json:"paths,omitempty"`
	// Exact leaves out what is below Paths.
	Exact bool `json:"exact,omitempty"`
}

// WorkspaceDiffParams are workspace.diff's params.
type WorkspaceDiffParams struct {
	WorkspaceParams
	// Unified asks for the text of the diff, as git writes it.
	Unified bool `json:"unified,omitempty"`
	// Context is how many lines around a change it has; default 3.
	Context *int `json:"context,omitempty"`
	// MaxBytes bounds the text; default and most DefaultDiffBytes.
	MaxBytes int `json:"max_bytes,omitempty"`
	// After asks for the changes that follow those of this path: Next of the page before. The text is that of the first
	// page's call.
	After string `json:"after,omitempty"`
}

// DefaultDiffBytes is how long the text of a diff may be.
const DefaultDiffBytes = 1 << 20

// checkDiff refuses impossible texts of diffs.
func checkDiff(context *int, maxBytes int) error {
	if context != nil && (*context < 0 || *context > 1000) {
		return invalid("context", "%d lines", *context).WithHint("use 0 to 1000")
	}
	if maxBytes < 0 || maxBytes > DefaultDiffBytes {
		return invalid("max_bytes", "%d bytes", maxBytes).WithHint("use 1 to %d, or choose less", DefaultDiffBytes)
	}
	return nil
}

// WorkspaceChange is a name that is another in the sandbox than in the folder.
type WorkspaceChange struct {
	Path string `json:"path"`           // relative to the workspace
	Kind string `json:"kind"`           // added, modified, deleted or renamed
	From string `json:"from,omitempty"` // the path before, of one that was renamed
	// Type is the first letter of ls -l: - d l, or p s c b, which stay in the sandbox.
	Type string `json:"type"`
	Mode string `json:"mode,omitempty"` // octal permission bits that are new
	Size int64  `json:"size,omitempty"` // in bytes, of a file
	// Conflict says what somebody else has done to it in the folder since the sandbox touched it.
	Conflict string `json:"conflict,omitempty"`
	// Guarded is the name of the guard (GuardedNames) that it is or lies below: it is applied only when Paths name it.
	Guarded string `json:"guarded,omitempty"`
}

// WorkspaceDiff is the result of workspace.diff.
type WorkspaceDiff struct {
	Path    string            `json:"path"` // of the folder, on the host
	Changes []WorkspaceChange `json:"changes"`
	// Digest stands for all changes, whatever Paths say: given to workspace.apply it keeps that from applying what came
	// later.
	Digest    string `json:"digest"`
	Diff      string `json:"diff,omitempty"`
	Truncated bool   `json:"truncated,omitempty"` // Diff is not all
	// Next is the path of the last change of this page where more follow: pages end behind 4 MiB of names. Each page
	// has the same Digest, or the sandbox has changed something meanwhile.
	Next string `json:"next_after,omitempty"`
}

// WorkspaceApplyParams are workspace.apply's params.
type WorkspaceApplyParams struct {
	WorkspaceParams
	// Digest, where it is not "", must be that of the diff that was looked at.
	Digest string `json:"digest,omitempty"`
	// Force applies also what somebody else has changed in the folder, whose changes are lost.
	Force bool `json:"force,omitempty"`
	// Hunks choose parts of modified text files: by path the numbers of its hunks, from 1, in a diff with Context lines
	// around each change (default 3). The rest of such a file stays as it is in the folder.
	Hunks   map[string][]int `json:"hunks,omitempty"`
	Context *int             `json:"context,omitempty"`
	// FD is the index, in the request's fds, of the workspace's folder, for this call to write to. Root's folders are
	// read-only for the daemon otherwise, which lives as another user and never gets more than it is handed.
	FD  *int `json:"fd,omitempty"`
	FDs int  `json:"fds,omitempty"`
}

// WorkspaceApplied is the result of workspace.apply.
type WorkspaceApplied struct {
	Applied []string           `json:"applied"` // paths
	Failed  []WorkspaceFailure `json:"failed"`  // that were left alone
	// More is how many of both are not listed, of very many.
	More int `json:"more,omitempty"`
}

// WorkspaceFailure is a change that was not applied.
type WorkspaceFailure struct {
	Path     string `json:"path"`
	Why      string `json:"why"`
	Conflict bool   `json:"conflict,omitempty"` // force would apply it
	Guarded  bool   `json:"guarded,omitempty"`  // naming it would
}

// WorkspaceDiscarded is the result of workspace.discard.
type WorkspaceDiscarded struct {
	Discarded []string           `json:"discarded"` // paths
	Failed    []WorkspaceFailure `json:"failed"`
	More      int                `json:"more,omitempty"` // as WorkspaceApplied's
}
