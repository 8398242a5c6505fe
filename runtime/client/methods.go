package client

import (
	"context"
	"os"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Do calls a method by its descriptor. The methods of Client do no more, but for those that are written by hand.
func Do[P, R any](ctx context.Context, c *Client, m api.Call[P, R], p P, opts ...CallOption) (R, error) {
	var r R
	err := c.Call(ctx, m.Name, p, &r, opts...)
	return r, err
}

// Peer is who answers a client: the part of Info that does not change, and that needs no
// more to be decoded.
type Peer struct {
	APIVersion int    `json:"api_version"`
	BuildID    string `json:"build_id"`
	IDBase     uint32 `json:"id_base"` // kernel uid of uid 0 in sandboxes: see api.Info
	// Launched is since when sandboxes outlive hutchd: see api.Info.
	Launched time.Time `json:"launched"`
}

// greeting is what Connect needs to know of Info.
type greeting struct {
	Peer
	Ending bool `json:"ending"`
	Paths  struct {
		State string `json:"state"`
	} `json:"paths"`
	Counts struct {
		Sandboxes int `json:"sandboxes"`
	} `json:"counts"`
}

// Peer says who answers. It asks at most once, which Connect has done.
func (c *Client) Peer(ctx context.Context) (Peer, error) {
	c.mu.Lock()
	known := c.peer
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	g, err := c.greet(ctx)
	return g.Peer, err
}

func (c *Client) greet(ctx context.Context) (greeting, error) {
	var g greeting
	if err := c.Call(ctx, api.MethodInfo, nil, &g); err != nil {
		return g, err
	}
	c.mu.Lock()
	c.peer = &g.Peer
	c.mu.Unlock()
	return g, nil
}

// AllChanges is DiffWorkspace with the changes of all its pages. It fails when the sandbox changes something between
// two of them.
func (c *Client) AllChanges(ctx context.Context, p api.WorkspaceDiffParams) (api.WorkspaceDiff, error) {
	all, err := c.DiffWorkspace(ctx, p)
	for err == nil && all.Next != "" {
		var page api.WorkspaceDiff
		p.After = all.Next
		if page, err = c.DiffWorkspace(ctx, p); err != nil {
			break
		}
		if page.Digest != all.Digest {
			return all, api.Errorf(api.FailedPrecondition, "the sandbox has changed something meanwhile").
				WithOp(api.MethodWorkDiff).
				WithHint("try again, or stop what runs in it: hutch pause %s", p.Sandbox)
		}
		all.Changes, all.Next = append(all.Changes, page.Changes...), page.Next
	}
	return all, err
}

// Stdio are the files that a command gets as its standard streams; nil means
// /dev/null. They may be pipes, sockets and character devices, stay the caller's
// and may be the same file. The caller closes its ends of pipes that it only made
// for the command when ExecRun returns, or in the callback for exec.started.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
}

// ExecRun runs a command and returns when it has ended. With stdio nil, what the
// command writes is in the result. progress, which may be nil, learns the exec's
// id as soon as it runs (Kind "exec.started").
//
// A command that fails is no error: see the result's Verdict and ExitCode.
func (c *Client) ExecRun(ctx context.Context, p api.ExecParams, stdio *Stdio,
	progress func(api.Progress)) (api.ExecResult, error) {
	var files []*os.File
	if stdio != nil {
		files, p.Stdio = stdio.indexes(nil)
	}
	p.FDs, p.Progress = len(files), progress != nil
	return Do(ctx, c, api.CallExecRun, p, WithFDs(files...), WithProgress(progress))
}

// indexes adds the distinct files to a list and refers to them.
func (s *Stdio) indexes(files []*os.File) ([]*os.File, *api.Stdio) {
	index := func(f *os.File) *int {
		if f == nil {
			return nil
		}
		for i, g := range files {
			if f == g {
				return &i
			}
		}
		files = append(files, f)
		i := len(files) - 1
		return &i
	}
	p := &api.Stdio{Stdin: index(s.Stdin), Stdout: index(s.Stdout), Stderr: index(s.Stderr)}
	return files, p
}

// ExecStart starts a command and returns when it runs. It lives on without the
// caller; its output is kept. stdio is as for ExecRun.
func (c *Client) ExecStart(ctx context.Context, p api.ExecParams, stdio *Stdio) (api.StartResult, error) {
	var files []*os.File
	if stdio != nil {
		files, p.Stdio = stdio.indexes(nil)
	}
	p.FDs = len(files)
	return Do(ctx, c, api.CallExecStart, p, WithFDs(files...))
}

// one is the number of fds and the index of the one pipe, which may be nil.
func one(pipe *os.File) (fds int, fd *int) {
	if pipe == nil {
		return 0, nil
	}
	return 1, new(int)
}

func withPipe(pipe *os.File) CallOption {
	if pipe == nil {
		return WithFDs()
	}
	return WithFDs(pipe)
}
