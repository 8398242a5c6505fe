package client

import (
	"context"
	"os"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

func get[R any](ctx context.Context, c *Client, method string, params any, opts ...CallOption) (R, error) {
	var r R
	err := c.Call(ctx, method, params, &r, opts...)
	return r, err
}

// Info says which daemon answers and what isolation its sandboxes get.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	return get[api.Info](ctx, c, api.MethodInfo, nil)
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
	g, err := get[greeting](ctx, c, api.MethodInfo, nil)
	if err != nil {
		return g, err
	}
	c.mu.Lock()
	c.peer = &g.Peer
	c.mu.Unlock()
	return g, nil
}

// Doctor probes what this machine offers.
func (c *Client) Doctor(ctx context.Context) (api.Doctor, error) {
	return get[api.Doctor](ctx, c, api.MethodDoctor, nil)
}

// Shutdown ends the daemon. It returns when the daemon has agreed; Done tells
// when it is gone.
func (c *Client) Shutdown(ctx context.Context, p api.ShutdownParams) error {
	return c.Call(ctx, api.MethodShutdown, p, nil)
}

// GC sweeps what a killed daemon left behind.
func (c *Client) GC(ctx context.Context) (api.GCResult, error) {
	return get[api.GCResult](ctx, c, api.MethodGC, nil)
}

// Reload makes the daemon read its configuration file again.
func (c *Client) Reload(ctx context.Context) error {
	return c.Call(ctx, api.MethodReload, nil, nil)
}

// CreateSandbox creates a sandbox and returns when it runs. files are what
// p.FDs announces: the fds that p's workspace and mounts refer to by index.
// progress may be nil.
func (c *Client) CreateSandbox(ctx context.Context, p api.CreateParams, files []*os.File,
	progress func(api.Progress)) (api.Sandbox, error) {
	p.FDs, p.Progress = len(files), progress != nil
	return get[api.Sandbox](ctx, c, api.MethodSandboxCreate, p, WithFDs(files...), WithProgress(progress))
}

// CreatePool makes a pool of sandboxes that wait for whoever asks. progress, where it is not nil, tells of a download.
func (c *Client) CreatePool(ctx context.Context, p api.PoolSpec, progress func(api.Progress)) (api.Pool, error) {
	return get[api.Pool](ctx, c, api.MethodPoolCreate, api.PoolCreateParams{PoolSpec: p, Progress: progress != nil},
		WithProgress(progress))
}

// Acquire takes a sandbox out of a pool; nil when none is ready within p.WaitMS.
func (c *Client) Acquire(ctx context.Context, p api.AcquireParams) (*api.Sandbox, error) {
	return get[*api.Sandbox](ctx, c, api.MethodPoolAcquire, p)
}

// Release destroys a sandbox that was acquired from a pool, and returns the pids of what ran.
func (c *Client) Release(ctx context.Context, ref string) ([]int, error) {
	r, err := get[api.KillResult](ctx, c, api.MethodPoolRelease, api.SandboxParams{Sandbox: ref})
	return r.Killed, err
}

// Pool says how a pool is filled.
func (c *Client) Pool(ctx context.Context, name string) (api.Pool, error) {
	return get[api.Pool](ctx, c, api.MethodPoolStatus, api.PoolParams{Pool: name})
}

// Pools lists the pools by name.
func (c *Client) Pools(ctx context.Context) ([]api.Pool, error) {
	r, err := get[api.Pools](ctx, c, api.MethodPoolList, nil)
	return r.Pools, err
}

// ResizePool changes how many sandboxes wait in a pool.
func (c *Client) ResizePool(ctx context.Context, name string, size int) (api.Pool, error) {
	return get[api.Pool](ctx, c, api.MethodPoolResize, api.PoolResizeParams{Pool: name, Size: size})
}

// RemovePool removes a pool with what waits in it; what was acquired goes on.
func (c *Client) RemovePool(ctx context.Context, name string) (api.PoolRemoved, error) {
	return get[api.PoolRemoved](ctx, c, api.MethodPoolRemove, api.PoolParams{Pool: name})
}

// CreateVolume makes an empty volume. One that a sandbox mounts with mode rw is made when it is missing.
func (c *Client) CreateVolume(ctx context.Context, name string) (api.Volume, error) {
	return get[api.Volume](ctx, c, api.MethodVolumeCreate, api.VolumeParams{Name: name})
}

// Volumes lists the caller's volumes by name.
func (c *Client) Volumes(ctx context.Context, p api.VolumeListParams) ([]api.Volume, error) {
	r, err := get[api.Volumes](ctx, c, api.MethodVolumeList, p)
	return r.Volumes, err
}

// RemoveVolume removes a volume that no sandbox has mounted, with all that is in it.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	_, err := get[api.Empty](ctx, c, api.MethodVolumeRemove, api.VolumeParams{Name: name})
	return err
}

// Scopes lists the scopes that have a sandbox, oldest first.
func (c *Client) Scopes(ctx context.Context) ([]api.ScopeInfo, error) {
	r, err := get[api.Scopes](ctx, c, api.MethodScopeList, nil)
	return r.Scopes, err
}

// ResetScope replaces a scope's sandbox by a new one, made as it was, and returns its record.
func (c *Client) ResetScope(ctx context.Context, s api.Scope) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, c, api.MethodScopeReset, api.ScopeParams{Scope: s})
}

// EndScope removes a scope's sandbox and returns the pids that were killed.
func (c *Client) EndScope(ctx context.Context, s api.Scope) ([]int, error) {
	r, err := get[api.KillResult](ctx, c, api.MethodScopeEnd, api.ScopeParams{Scope: s})
	return r.Killed, err
}

// RunCode runs a piece of code and returns when it is done. When ctx ends first, it is interrupted.
func (c *Client) RunCode(ctx context.Context, p api.CodeParams) (api.CodeResult, error) {
	return get[api.CodeResult](ctx, c, api.MethodCodeRun, p)
}

// ScanCode looks through code for what reaches beyond the program, without running it. It is a hint: code without
// findings may still do harm.
func (c *Client) ScanCode(ctx context.Context, p api.ScanParams) (api.ScanResult, error) {
	return get[api.ScanResult](ctx, c, api.MethodCodeScan, p)
}

// Decide asks where a command is to run. Of one that it says is for the host, the caller reports the end with
// HostEnded, on the same connection.
func (c *Client) Decide(ctx context.Context, p api.DecideParams) (api.Decision, error) {
	return get[api.Decision](ctx, c, api.MethodExecDecide, p)
}

// HostEnded reports how a command on the host has ended.
func (c *Client) HostEnded(ctx context.Context, p api.HostEndParams) error {
	return c.Call(ctx, api.MethodExecHostEnd, p, nil)
}

// CodeContexts lists the interpreters that are kept in a sandbox.
func (c *Client) CodeContexts(ctx context.Context, sandbox string) ([]api.CodeContext, error) {
	r, err := get[api.CodeContexts](ctx, c, api.MethodCodeContexts, api.SandboxParams{Sandbox: sandbox})
	return r.Contexts, err
}

// EndCodeContext ends an interpreter that is kept.
func (c *Client) EndCodeContext(ctx context.Context, p api.CodeContextParams) error {
	return c.Call(ctx, api.MethodCodeEnd, p, nil)
}

// Tools lists the tools that a language model can work with.
func (c *Client) Tools(ctx context.Context) ([]api.Tool, error) {
	r, err := get[api.ToolList](ctx, c, api.MethodToolsList, nil)
	return r.Tools, err
}

// CallTool calls a tool in a sandbox. progress, which may be nil, is called when a command of the tool's runs. When ctx
// ends first, that is killed.
func (c *Client) CallTool(ctx context.Context, p api.ToolCallParams, progress func(api.Progress)) (api.ToolResult,
	error) {
	p.Progress = progress != nil
	return get[api.ToolResult](ctx, c, api.MethodToolsCall, p, WithProgress(progress))
}

// DiffWorkspace tells what a sandbox has changed in its workspace of mode overlay.
func (c *Client) DiffWorkspace(ctx context.Context, p api.WorkspaceDiffParams) (api.WorkspaceDiff, error) {
	return get[api.WorkspaceDiff](ctx, c, api.MethodWorkDiff, p)
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

// ApplyWorkspace brings what a sandbox has changed into the folder that it works on. files are the fds that p.FDs
// announces.
func (c *Client) ApplyWorkspace(ctx context.Context, p api.WorkspaceApplyParams,
	files ...*os.File) (api.WorkspaceApplied, error) {
	p.FDs = len(files)
	return get[api.WorkspaceApplied](ctx, c, api.MethodWorkApply, p, WithFDs(files...))
}

// DiscardWorkspace makes what a sandbox has changed as it is in the folder.
func (c *Client) DiscardWorkspace(ctx context.Context, p api.WorkspaceParams) (api.WorkspaceDiscarded, error) {
	return get[api.WorkspaceDiscarded](ctx, c, api.MethodWorkDiscard, p)
}

// GetSandbox returns the record of a sandbox, by id or name.
func (c *Client) GetSandbox(ctx context.Context, ref string) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, c, api.MethodSandboxGet, api.SandboxParams{Sandbox: ref})
}

// ListSandboxes returns the sandboxes that have all of labels, oldest first.
func (c *Client) ListSandboxes(ctx context.Context, labels map[string]string) ([]api.Sandbox, error) {
	var r api.SandboxList
	err := c.Call(ctx, api.MethodSandboxList, api.ListParams{Labels: labels}, &r)
	return r.Sandboxes, err
}

// Kill kills every process of a sandbox and returns their pids.
func (c *Client) Kill(ctx context.Context, ref string) ([]int, error) {
	var r api.KillResult
	err := c.Call(ctx, api.MethodSandboxKill, api.SandboxParams{Sandbox: ref}, &r)
	return r.Killed, err
}

// Claim ties a sandbox of owner connection, whose creator lost its connection when the
// daemon was killed, to this one. It must come within ten seconds of the restart.
func (c *Client) Claim(ctx context.Context, ref string) (api.Sandbox, error) {
	var s api.Sandbox
	err := c.Call(ctx, api.MethodSandboxClaim, api.SandboxParams{Sandbox: ref}, &s)
	return s, err
}

// Remove kills a sandbox, deletes its record and files, and returns the pids it
// killed.
func (c *Client) Remove(ctx context.Context, ref string) ([]int, error) {
	var r api.KillResult
	err := c.Call(ctx, api.MethodSandboxRemove, api.SandboxParams{Sandbox: ref}, &r)
	return r.Killed, err
}

// Pause stops the processes of a sandbox where they are, and the clocks of its commands.
// Starting a command in it, or using its files, resumes it.
func (c *Client) Pause(ctx context.Context, ref string) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, c, api.MethodSandboxPause, api.SandboxParams{Sandbox: ref})
}

// Resume lets a paused sandbox go on.
func (c *Client) Resume(ctx context.Context, ref string) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, c, api.MethodSandboxResume, api.SandboxParams{Sandbox: ref})
}

// StopSandbox ends the processes of a sandbox and keeps its files and what it is for StartSandbox, also beyond the
// daemon.
func (c *Client) StopSandbox(ctx context.Context, p api.StopParams) (api.StopResult, error) {
	return get[api.StopResult](ctx, c, api.MethodSandboxStop, p)
}

// StartSandbox starts a sandbox that was stopped. files are the fds that p.FDs announces.
func (c *Client) StartSandbox(ctx context.Context, p api.StartParams, files ...*os.File) (api.Sandbox, error) {
	p.FDs = len(files)
	return get[api.Sandbox](ctx, c, api.MethodSandboxStart, p, WithFDs(files...))
}

// Fork makes sandboxes that go on from the files of another, or of a snapshot. files are the fds that p.FDs announces.
func (c *Client) Fork(ctx context.Context, p api.ForkParams, files ...*os.File) (api.Forked, error) {
	p.FDs = len(files)
	return get[api.Forked](ctx, c, api.MethodSandboxFork, p, WithFDs(files...))
}

// CreateSnapshot keeps what the files of a sandbox are now, and what it is.
func (c *Client) CreateSnapshot(ctx context.Context, p api.SnapshotCreateParams) (api.Snapshot, error) {
	return get[api.Snapshot](ctx, c, api.MethodSnapCreate, p)
}

// Snapshots lists the caller's snapshots, oldest first.
func (c *Client) Snapshots(ctx context.Context, p api.SnapshotListParams) ([]api.Snapshot, error) {
	r, err := get[api.Snapshots](ctx, c, api.MethodSnapList, p)
	return r.Snapshots, err
}

// DiffSnapshot lists which files of a sandbox are others than in a snapshot.
func (c *Client) DiffSnapshot(ctx context.Context, p api.SnapshotDiffParams) (api.SnapshotDiff, error) {
	return get[api.SnapshotDiff](ctx, c, api.MethodSnapDiff, p)
}

// RestoreSnapshot gives a sandbox the files that it had when a snapshot was taken of it. files are the fds that p.FDs
// announces.
func (c *Client) RestoreSnapshot(ctx context.Context, p api.SnapshotRestoreParams,
	files ...*os.File) (api.SnapshotRestored, error) {
	p.FDs = len(files)
	return get[api.SnapshotRestored](ctx, c, api.MethodSnapRestore, p, WithFDs(files...))
}

// Checkpoints lists what the files of a sandbox were before its last calls, oldest first.
func (c *Client) Checkpoints(ctx context.Context, ref string) (api.Checkpoints, error) {
	return get[api.Checkpoints](ctx, c, api.MethodCheckList, api.SandboxParams{Sandbox: ref})
}

// RestoreCheckpoint gives a sandbox the files that it had before a call. files are the fds that p.FDs announces.
func (c *Client) RestoreCheckpoint(ctx context.Context, p api.CheckpointRestoreParams,
	files ...*os.File) (api.CheckpointRestored, error) {
	p.FDs = len(files)
	return get[api.CheckpointRestored](ctx, c, api.MethodCheckRestore, p, WithFDs(files...))
}

// RemoveSnapshot removes a snapshot.
func (c *Client) RemoveSnapshot(ctx context.Context, ref string) error {
	_, err := get[api.Empty](ctx, c, api.MethodSnapRemove, api.SnapshotParams{Snapshot: ref})
	return err
}

// Update changes limits and life of a sandbox that runs and returns its record.
func (c *Client) Update(ctx context.Context, p api.UpdateParams) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, c, api.MethodSandboxUpdate, p)
}

// Stats says what a sandbox uses now and has used.
func (c *Client) Stats(ctx context.Context, ref string) (api.Stats, error) {
	return get[api.Stats](ctx, c, api.MethodSandboxStats, api.SandboxParams{Sandbox: ref})
}

// Processes lists the processes of a sandbox, PID 1 first.
func (c *Client) Processes(ctx context.Context, ref string) (api.Processes, error) {
	return get[api.Processes](ctx, c, api.MethodSandboxProcs, api.SandboxParams{Sandbox: ref})
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
	return get[api.ExecResult](ctx, c, api.MethodExecRun, p, WithFDs(files...), WithProgress(progress))
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
	return get[api.StartResult](ctx, c, api.MethodExecStart, p, WithFDs(files...))
}

// ExecWait waits for the end of a command; it never kills it. When p.WaitS is over
// it fails with deadline_exceeded.
func (c *Client) ExecWait(ctx context.Context, p api.WaitParams) (api.ExecResult, error) {
	return get[api.ExecResult](ctx, c, api.MethodExecWait, p)
}

// ExecRead reads a piece of a command's output.
func (c *Client) ExecRead(ctx context.Context, p api.ReadParams) (api.Chunk, error) {
	return get[api.Chunk](ctx, c, api.MethodExecRead, p)
}

// ExecWrite writes to a command's stdin and returns when all of it is in the pipe.
func (c *Client) ExecWrite(ctx context.Context, p api.WriteParams) error {
	return c.Call(ctx, api.MethodExecWrite, p, nil)
}

// ExecCloseStdin closes a command's stdin.
func (c *Client) ExecCloseStdin(ctx context.Context, exec string) error {
	return c.Call(ctx, api.MethodExecEOF, api.ExecRef{Exec: exec}, nil)
}

// ExecKill kills a command and everything it started, and returns its result.
func (c *Client) ExecKill(ctx context.Context, exec string) (api.ExecResult, error) {
	return get[api.ExecResult](ctx, c, api.MethodExecKill, api.ExecRef{Exec: exec})
}

// ListExecs lists the commands of a sandbox that run or ended lately, oldest first.
func (c *Client) ListExecs(ctx context.Context, sandbox string) ([]api.Exec, error) {
	list, err := get[api.Execs](ctx, c, api.MethodExecList, api.SandboxParams{Sandbox: sandbox})
	return list.Execs, err
}

// GetExec returns the record of one command.
func (c *Client) GetExec(ctx context.Context, exec string) (api.Exec, error) {
	return get[api.Exec](ctx, c, api.MethodExecGet, api.ExecRef{Exec: exec})
}

// Signal sends a signal, such as "SIGINT", to a running command.
func (c *Client) Signal(ctx context.Context, exec, signal string) error {
	return c.Call(ctx, api.MethodExecSignal, api.SignalParams{Exec: exec, Signal: signal}, nil)
}

// Resize sets the size of a command's terminal.
func (c *Client) Resize(ctx context.Context, exec string, size api.Pty) error {
	return c.Call(ctx, api.MethodExecResize, api.ResizeParams{Exec: exec, Pty: size}, nil)
}

// OpenShell opens a shell, whose state lasts from command to command. It lives until
// CloseShell, or as long as the sandbox.
func (c *Client) OpenShell(ctx context.Context, p api.ShellParams) (api.Shell, error) {
	return get[api.Shell](ctx, c, api.MethodShellOpen, p)
}

// RunShell runs a command in a shell and returns when it has ended. When ctx ends
// first, the command is killed, and the shell is as it was before. A command that fails
// is no error.
func (c *Client) RunShell(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error) {
	return get[api.ShellResult](ctx, c, api.MethodShellRun, p)
}

// CloseShell kills a shell and everything it started, and returns its result.
func (c *Client) CloseShell(ctx context.Context, shell string) (api.ExecResult, error) {
	return get[api.ExecResult](ctx, c, api.MethodShellClose, api.ShellRef{Shell: shell})
}

// ListShells returns the shells of a sandbox, oldest first.
func (c *Client) ListShells(ctx context.Context, sandbox string) ([]api.Shell, error) {
	list, err := get[api.Shells](ctx, c, api.MethodShellList, api.SandboxParams{Sandbox: sandbox})
	return list.Shells, err
}
