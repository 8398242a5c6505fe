package client

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hutch-sh/hutch/internal/terse"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Run is what became of RunNew.
type Run struct {
	Exec    api.ExecResult
	sandbox json.RawMessage
}

// Brief is what most want to know of a sandbox that has gone: its id, and what was not as it was asked for.
type Brief struct {
	ID         string           `json:"id"`
	Note       string           `json:"note"`
	Unenforced []api.Unenforced `json:"unenforced"`
}

// Brief is a part of Sandbox.
func (r *Run) Brief() (b Brief, err error) {
	err = terse.Unmarshal(r.sandbox, &b)
	return b, err
}

// Sandbox is what the sandbox was when its command was started.
func (r *Run) Sandbox() (sb api.Sandbox, err error) {
	err = json.Unmarshal(r.sandbox, &sb) // only for who asks: it takes a short process longer than the call
	return sb, err
}

// RunNew makes a sandbox, runs a command in it and removes it. folders are what the spec's workspace and mounts, and
// p.Gate, refer to by index; with stdio the command gets these files and nothing of it is captured. progress, where it
// is not nil, hears of a download, and when the command runs (Kind "exec.started") of the sandbox's id.
func (c *Client) RunNew(ctx context.Context, p api.RunParams, folders []*os.File, stdio *Stdio,
	progress func(api.Progress), opts ...CallOption) (Run, error) {
	files := folders
	if stdio != nil {
		files, p.Exec.Stdio = stdio.indexes(folders)
	}
	p.FDs, p.Progress = len(files), progress != nil
	var r struct {
		Sandbox json.RawMessage `json:"sandbox"`
		Exec    api.ExecResult  `json:"exec"`
	}
	err := c.Call(ctx, api.MethodSandboxRun, p, &r, append(opts, WithFDs(files...), WithProgress(progress))...)
	return Run{Exec: r.Exec, sandbox: r.Sandbox}, err
}

// IfBuild is the build that a call is for which the next daemon may take as well: an eager client's must say it.
func IfBuild() string { return version.BuildID }

// IfState is the state folder that an eager client's call is for.
func IfState() string {
	places, err := resolve(nil)
	if err != nil {
		return "" // connecting has said so
	}
	return places.State
}

// NotRun reports whether err, of a call that has said IfBuild, says that it was not even looked at: the daemon is
// another build's, is ending, or has ended without reading it. Connect without Eager knows what to do.
func NotRun(err error) bool {
	var e *api.Error
	if errors.As(err, &e) && (e.Code == api.FailedPrecondition && (e.Field == "if_build" || e.Field == "if_state") ||
		e.Code == api.Unimplemented) {
		return true // by this build's daemon, or by one that is too old to know the method
	}
	if errors.Is(err, ErrLost) && errors.As(err, new(unsent)) {
		return true // the daemon closed the connection before there was anything to read
	}
	// What nobody has read resets the connection (net/unix/af_unix.c, unix_release_sock); what was read before the end
	// does not.
	return errors.Is(err, ErrLost) && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

// LikelyIDBase is what Peer's IDBase will be, as far as that can be told without asking; ok is false where it cannot.
// Who passes files by it loses nothing when it is wrong: the daemon looks at each itself.
func LikelyIDBase() (base uint32, ok bool) {
	if uid := os.Geteuid(); uid != 0 {
		return uint32(uid), true
	}
	places, err := resolve(nil)
	if err != nil {
		return 0, false
	}
	st, err := os.Lstat(filepath.Join(places.State, "data"))
	if err != nil || !st.IsDir() {
		return 0, false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return sys.Uid, ok
}
