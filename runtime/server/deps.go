package server

import (
	"context"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// The engines behind the methods, as this package needs them. All methods may be
// called from many goroutines at once. A context is cancelled when the client
// cancels its call, and for Run and Create when the client is gone; the method
// then undoes what it did and returns the context's error. Errors that are not
// *api.Error reach the client as internal.

// System answers for the daemon as a whole.
type System interface {
	Info(ctx context.Context, who Actor) (api.Info, error)
	Doctor(ctx context.Context) (api.Doctor, error)
	// Shutdown starts the end of the daemon and returns without waiting for it,
	// because its own reply must still leave: Server.Shutdown waits.
	Shutdown(ctx context.Context, p api.ShutdownParams) error
	GC(ctx context.Context) (api.GCResult, error)
	// Reload reads the configuration file again.
	Reload(ctx context.Context) error
}

// Sandboxes are the sandboxes of the daemon. A ref is an id or a name.
type Sandboxes interface {
	// Create returns when the sandbox runs. It takes from fds what it needs;
	// progress is never nil and may be called until Create returns.
	Create(ctx context.Context, who Actor, p api.CreateParams, fds *jsonrpc.FDs,
		progress func(api.Progress)) (api.Sandbox, error)
	// RunNew makes a sandbox, runs a command in it and removes it. started is Execs.Run's, with the sandbox; for fds
	// and sent see there.
	RunNew(ctx context.Context, who Actor, p api.RunParams, fds *jsonrpc.FDs, progress func(api.Progress),
		started func(sb *api.Sandbox, exec string, pid int), sent func(func())) (api.RunResult, error)
	Get(ref string) (api.Sandbox, error)
	List(p api.ListParams) []api.Sandbox
	// Claim ties a sandbox whose creator lost its connection with a hutchd before.
	Claim(who Actor, ref string) (api.Sandbox, error)
	Kill(ctx context.Context, ref string) (api.KillResult, error)
	Remove(ctx context.Context, ref string) (api.KillResult, error)
	// Pause and Resume return the record as it is then; neither minds being late.
	Pause(ctx context.Context, ref string) (api.Sandbox, error)
	Resume(ctx context.Context, ref string) (api.Sandbox, error)
	// StopSandbox keeps what StartSandbox goes on from, under the same id.
	StopSandbox(ctx context.Context, p api.StopParams) (api.StopResult, error)
	StartSandbox(ctx context.Context, who Actor, p api.StartParams, fds *jsonrpc.FDs) (api.Sandbox, error)
	// Update changes limits of a sandbox that runs and returns its record.
	Update(ctx context.Context, p api.UpdateParams) (api.Sandbox, error)
	Scopes() []api.ScopeInfo
	ResetScope(ctx context.Context, who Actor, s api.Scope) (api.Sandbox, error)
	EndScope(ctx context.Context, who Actor, s api.Scope) (api.KillResult, error)
	Stats(ref string) (api.Stats, error)
	Processes(ref string) (api.Processes, error)
}

// Ports are those of sandboxes that the host reaches.
type Ports interface {
	// ExposePort takes the listener that p names from fds.
	ExposePort(ctx context.Context, p api.PortExposeParams, fds *jsonrpc.FDs) (api.Port, error)
	Ports(ref string) ([]api.Port, error) // of all sandboxes where ref is ""
	ClosePort(ctx context.Context, p api.PortCloseParams) ([]api.Port, error)
}

// Snapshots are files of sandboxes as they were, each one user's.
type Snapshots interface {
	CreateSnapshot(ctx context.Context, who Actor, p api.SnapshotCreateParams) (api.Snapshot, error)
	ListSnapshots(who Actor, p api.SnapshotListParams) ([]api.Snapshot, error)
	DiffSnapshot(ctx context.Context, who Actor, p api.SnapshotDiffParams) (api.SnapshotDiff, error)
	RestoreSnapshot(ctx context.Context, who Actor, p api.SnapshotRestoreParams,
		fds *jsonrpc.FDs) (api.SnapshotRestored, error)
	RemoveSnapshot(who Actor, p api.SnapshotParams) error
	Fork(ctx context.Context, who Actor, p api.ForkParams, fds *jsonrpc.FDs) (api.Forked, error)
	// Checkpoints are what the files of a sandbox were before its last calls.
	Checkpoints(ctx context.Context, ref string) (api.Checkpoints, error)
	RestoreCheckpoint(ctx context.Context, p api.CheckpointRestoreParams,
		fds *jsonrpc.FDs) (api.CheckpointRestored, error)
}

// Volumes are folders that outlive sandboxes, each one user's.
type Volumes interface {
	CreateVolume(who Actor, p api.VolumeParams) (api.Volume, error)
	ListVolumes(ctx context.Context, who Actor, p api.VolumeListParams) ([]api.Volume, error)
	RemoveVolume(who Actor, p api.VolumeParams) error
}

// Templates are what sandboxes can be made by.
type Templates interface {
	// CreateTemplate takes the archive that p names from fds.
	CreateTemplate(ctx context.Context, who Actor, p api.TemplateCreateParams, fds *jsonrpc.FDs) (api.Template, error)
	ListTemplates() ([]api.Template, error)
	Template(p api.TemplateParams) (api.Template, error)
	RemoveTemplate(p api.TemplateParams) (api.TemplateRemoved, error)
	BuildTemplate(ctx context.Context, who Actor, p api.TemplateBuildParams,
		progress func(api.Progress)) (api.TemplateBuildResult, error)
}

// Pools are sandboxes that were made before anybody asks.
type Pools interface {
	// CreatePool returns when the first sandbox waits, or where none is to be made ahead at once.
	CreatePool(ctx context.Context, who Actor, p api.PoolSpec, progress func(api.Progress)) (api.Pool, error)
	// Acquire returns nil when none is ready within the time that p says.
	Acquire(ctx context.Context, who Actor, p api.AcquireParams) (*api.Sandbox, error)
	Release(ctx context.Context, ref string) (api.KillResult, error)
	Pool(name string) (api.Pool, error)
	Pools() []api.Pool
	ResizePool(name string, size int) (api.Pool, error)
	RemovePool(name string) (api.PoolRemoved, error)
}

// Workspaces are what sandboxes have changed in folders of mode overlay. The sandbox stands still meanwhile.
type Workspaces interface {
	DiffWorkspace(ctx context.Context, p api.WorkspaceDiffParams) (api.WorkspaceDiff, error)
	ApplyWorkspace(ctx context.Context, p api.WorkspaceApplyParams, fds *jsonrpc.FDs) (api.WorkspaceApplied, error)
	DiscardWorkspace(ctx context.Context, p api.WorkspaceParams) (api.WorkspaceDiscarded, error)
}

// Code runs pieces of code in sandboxes.
type Code interface {
	RunCode(ctx context.Context, who Actor, p api.CodeParams, progress func(api.Progress)) (api.CodeResult, error)
	CodeContexts(ref string) ([]api.CodeContext, error)
	ScanCode(ctx context.Context, p api.ScanParams) (api.ScanResult, error)
	EndCodeContext(ctx context.Context, p api.CodeContextParams) error
}

// Modes decide where commands run.
type Modes interface {
	// Decide returns host only when it has recorded that.
	Decide(ctx context.Context, who Actor, p api.DecideParams) (api.Decision, error)
	EndHost(who Actor, p api.HostEndParams) error
}

// Tools are what a language model works with in a sandbox.
type Tools interface {
	Tools() []api.Tool
	// CallTool calls started, which is never nil, when a command of the tool's runs.
	CallTool(ctx context.Context, p api.ToolCallParams, started func(exec string, pid int)) (api.ToolResult, error)
}

// Execs are the commands that run in sandboxes.
type Execs interface {
	// Run returns when the command has ended. It takes from fds what it needs
	// before it calls started, which is never nil; fds that it did not take stay
	// open until it returns unless it closes them (FDs.Close). What it gives to sent is
	// called when the client has the result, or is gone.
	Run(ctx context.Context, who Actor, p api.ExecParams, fds *jsonrpc.FDs, started func(exec string, pid int),
		sent func(func())) (api.ExecResult, error)
	// Start returns when the command runs; it lives on without its caller.
	Start(ctx context.Context, who Actor, p api.ExecParams, fds *jsonrpc.FDs) (api.StartResult, error)
	Wait(ctx context.Context, p api.WaitParams) (api.ExecResult, error)
	Read(ctx context.Context, p api.ReadParams) (api.Chunk, error)
	// Attach starts to follow an exec's output.
	Attach(p api.AttachParams) (Output, error)
	Write(ctx context.Context, p api.WriteParams) error
	CloseStdin(ctx context.Context, p api.ExecRef) error
	KillExec(ctx context.Context, p api.ExecRef) (api.ExecResult, error)
	Execs(sandbox string) ([]api.Exec, error)
	Exec(p api.ExecRef) (api.Exec, error)
	Signal(ctx context.Context, p api.SignalParams) error
	Resize(p api.ResizeParams) error
}

// Shells are the stateful shells in sandboxes.
type Shells interface {
	OpenShell(ctx context.Context, p api.ShellParams) (api.Shell, error)
	// RunShell returns when the command has ended; the end of ctx kills it, and leaves
	// the shell as it was before.
	RunShell(ctx context.Context, p api.ShellRunParams) (api.ShellResult, error)
	CloseShell(ctx context.Context, p api.ShellRef) (api.ExecResult, error)
	Shells(sandbox string) ([]api.Shell, error)
}

// Output is a place in an exec's output. It is used by one goroutine.
type Output interface {
	From() api.Offsets
	// Await waits until Next has something, or until more fires. Without credit
	// that is only what needs none: the end, and what is lost.
	Await(ctx context.Context, credit bool, more <-chan struct{}) error
	// Next returns what comes next, with at most as many bytes as buf holds, and
	// does not wait; ok is false when there is nothing.
	Next(buf []byte) (piece sandbox.Piece, ok bool)
}

// Files are the files in sandboxes. Calls with fds take the one that they need.
type Files interface {
	ReadFile(ctx context.Context, p api.FileReadParams, fds *jsonrpc.FDs) (api.FileChunk, error)
	WriteFile(ctx context.Context, p api.FileWriteParams, fds *jsonrpc.FDs) (api.FileWritten, error)
	ListFiles(ctx context.Context, p api.FileListParams) (api.FileList, error)
	StatFile(ctx context.Context, p api.FileStatParams) (api.File, error)
	MakeFolder(ctx context.Context, p api.FileMkdirParams) (api.FileMade, error)
	RemoveFile(ctx context.Context, p api.FileRemoveParams) (api.FileRemoved, error)
	MoveFile(ctx context.Context, p api.FileMoveParams) error
	PackFiles(ctx context.Context, p api.FilePackParams, fds *jsonrpc.FDs) (api.FileArchive, error)
	UnpackFiles(ctx context.Context, p api.FileUnpackParams, fds *jsonrpc.FDs) (api.FileArchive, error)
	SyncFiles(ctx context.Context, p api.FileSyncParams) (api.FileSynced, error)
}

// Networks are what sandboxes may reach.
type Networks interface {
	Network(ref string) (api.Network, error)
	// UpdateNetwork returns when the new policy is in force and what it forbids is closed.
	UpdateNetwork(ctx context.Context, p api.NetUpdateParams) (api.Network, error)
	CheckNetwork(p api.NetCheckParams) (api.NetVerdict, error)
	// Asks are the questions about connections that are held.
	Asks() (api.Asks, error)
	Answer(ctx context.Context, p api.AnswerParams) error
	Forget(p api.ForgetParams) (api.Asks, error)
}

// Events is the log of what happened in the daemon.
type Events interface {
	// Subscribe starts to read it, and knows what happened before the call. The
	// result's id is the caller's to set.
	Subscribe(ctx context.Context, p api.SubscribeParams) (EventCursor, api.Subscribed, error)
}

// Audit are the logs of what was done with sandboxes. A ref is an id, or the name of a
// sandbox that lives.
type Audit interface {
	// ReadAudit waits for the next record where there is none and p says so.
	ReadAudit(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error)
	VerifyAudit(ctx context.Context, p api.AuditVerifyParams) (api.AuditVerified, error)
	AuditHead(ctx context.Context, ref string) (api.AuditHead, error)
	AuditLogs(ctx context.Context) ([]api.AuditLog, error)
}

// EventCursor is a place in the log. It is used by one goroutine.
type EventCursor interface {
	// Await waits until Read may have something. It returns io.EOF when there will
	// be no more.
	Await(ctx context.Context) error
	// Read returns the next events, at most so many, and does not wait. It may
	// return none.
	Read(most int) ([]api.Event, error)
}

// Images is the image store.
type Images interface {
	Pull(ctx context.Context, p api.PullParams, progress func(api.Progress)) (api.Image, error)
	List() ([]api.Image, error)
	Inspect(ref string) (api.Image, error)
	Remove(ref string) error
	Tag(p api.TagParams) (api.Image, error)
	DiskUse(ctx context.Context) (api.ImageDisk, error)
	Prune(p api.PruneParams) (api.Pruned, error)
	Verify(ctx context.Context, p api.VerifyParams) (api.Verified, error)
	Commit(ctx context.Context, p api.CommitParams, progress func(api.Progress)) (api.Committed, error)
	Push(ctx context.Context, p api.PushParams, progress func(api.Progress)) (api.Pushed, error)
	// Login keeps the password out of its errors.
	Login(ctx context.Context, p api.LoginParams) (api.Login, error)
	Logout(ctx context.Context, registry string) error
	GetLogin(ctx context.Context, registry string) (api.Login, error)
	// Export takes the one fd that p names from fds.
	Export(ctx context.Context, p api.ExportParams, fds *jsonrpc.FDs) (api.Exported, error)
	// Import takes the one fd that p names from fds.
	Import(ctx context.Context, p api.ImportParams, fds *jsonrpc.FDs, progress func(api.Progress)) (api.Image, error)
}
