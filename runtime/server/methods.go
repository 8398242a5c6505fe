package server

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// handler is one method: strict decoding, then the engine.
type handler struct {
	run            func(ctx context.Context, call *Call, params json.RawMessage) (any, error)
	params, result reflect.Type
}

// handle makes a handler of a function with the method's own types.
func handle[P, R any](f func(ctx context.Context, call *Call, p P) (R, error)) handler {
	return handler{
		run: func(ctx context.Context, call *Call, raw json.RawMessage) (any, error) {
			var p P
			if err := params.Decode(raw, &p); err != nil {
				return nil, err
			}
			return f(ctx, call, p)
		},
		params: reflect.TypeFor[P](),
		result: reflect.TypeFor[R](),
	}
}

// done is handle for methods without a result.
func done[P any](f func(ctx context.Context, call *Call, p P) error) handler {
	return handle(func(ctx context.Context, call *Call, p P) (api.Empty, error) {
		return api.Empty{}, f(ctx, call, p)
	})
}

// handlers is every method of this build. checkHandlers compares it with
// api.Methods.
func (s *Server) handlers() map[string]handler {
	type empty = api.Empty
	system, boxes, execs, files, images := s.cfg.System, s.cfg.Sandboxes, s.cfg.Execs, s.cfg.Files, s.cfg.Images
	snapshots, modes := s.cfg.Snapshots, s.cfg.Modes
	events, audit, shells, networks, ports, pools, volumes, workspaces, tools, code := s.cfg.Events, s.cfg.Audit,
		s.cfg.Shells, s.cfg.Networks, s.cfg.Ports, s.cfg.Pools, s.cfg.Volumes, s.cfg.Workspaces, s.cfg.Tools, s.cfg.Code
	all := map[string]handler{
		api.MethodInfo: handle(func(ctx context.Context, c *Call, _ empty) (api.Info, error) {
			return system.Info(ctx, c.Actor)
		}),
		api.MethodAuthenticate: handle(func(ctx context.Context, c *Call, p api.AuthenticateParams) (api.Authenticated,
			error) {
			return c.authenticate(ctx, p)
		}),
		api.MethodDoctor: handle(func(ctx context.Context, _ *Call, _ empty) (api.Doctor, error) {
			return system.Doctor(ctx)
		}),
		api.MethodShutdown: done(func(ctx context.Context, _ *Call, p api.ShutdownParams) error {
			return system.Shutdown(ctx, p)
		}),
		api.MethodGC: handle(func(ctx context.Context, _ *Call, _ empty) (api.GCResult, error) {
			return system.GC(ctx)
		}),
		api.MethodReload: done(func(ctx context.Context, _ *Call, _ empty) error {
			return system.Reload(ctx)
		}),
		api.MethodSandboxCreate: handle(func(ctx context.Context, c *Call, p api.CreateParams) (api.Sandbox, error) {
			return boxes.Create(ctx, c.Actor, p, c.FDs, c.Progress)
		}),
		api.MethodSandboxGet: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Sandbox, error) {
			return boxes.Get(p.Sandbox)
		}),
		api.MethodSandboxList: handle(func(_ context.Context, _ *Call, p api.ListParams) (api.SandboxList, error) {
			return api.SandboxList{Sandboxes: orEmpty(boxes.List(p))}, nil
		}),
		api.MethodSandboxClaim: handle(func(_ context.Context, c *Call, p api.SandboxParams) (api.Sandbox, error) {
			return boxes.Claim(c.Actor, p.Sandbox)
		}),
		api.MethodSandboxKill: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.KillResult, error) {
			r, err := boxes.Kill(ctx, p.Sandbox)
			r.Killed = orEmpty(r.Killed)
			return r, err
		}),
		api.MethodSandboxRemove: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.KillResult,
			error) {
			r, err := boxes.Remove(ctx, p.Sandbox)
			r.Killed = orEmpty(r.Killed)
			return r, err
		}),
		api.MethodSandboxPause: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.Sandbox, error) {
			return boxes.Pause(ctx, p.Sandbox)
		}),
		api.MethodSandboxResume: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.Sandbox, error) {
			return boxes.Resume(ctx, p.Sandbox)
		}),
		api.MethodSandboxStop: handle(func(ctx context.Context, _ *Call, p api.StopParams) (api.StopResult, error) {
			return boxes.StopSandbox(ctx, p)
		}),
		api.MethodSandboxStart: handle(func(ctx context.Context, c *Call, p api.StartParams) (api.Sandbox, error) {
			return boxes.StartSandbox(ctx, c.Actor, p, c.FDs)
		}),
		api.MethodSandboxFork: handle(func(ctx context.Context, c *Call, p api.ForkParams) (api.Forked, error) {
			return snapshots.Fork(ctx, c.Actor, p, c.FDs)
		}),
		api.MethodSnapCreate: handle(func(ctx context.Context, c *Call, p api.SnapshotCreateParams) (api.Snapshot,
			error) {
			return snapshots.CreateSnapshot(ctx, c.Actor, p)
		}),
		api.MethodSnapList: handle(func(_ context.Context, c *Call, p api.SnapshotListParams) (api.Snapshots, error) {
			list, err := snapshots.ListSnapshots(c.Actor, p)
			return api.Snapshots{Snapshots: orEmpty(list)}, err
		}),
		api.MethodSnapDiff: handle(func(ctx context.Context, c *Call, p api.SnapshotDiffParams) (api.SnapshotDiff,
			error) {
			d, err := snapshots.DiffSnapshot(ctx, c.Actor, p)
			d.Changes = orEmpty(d.Changes)
			return d, err
		}),
		api.MethodSnapRestore: handle(func(ctx context.Context, c *Call,
			p api.SnapshotRestoreParams) (api.SnapshotRestored, error) {
			return snapshots.RestoreSnapshot(ctx, c.Actor, p, c.FDs)
		}),
		api.MethodSnapRemove: done(func(_ context.Context, c *Call, p api.SnapshotParams) error {
			return snapshots.RemoveSnapshot(c.Actor, p)
		}),
		api.MethodCheckList: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.Checkpoints, error) {
			r, err := snapshots.Checkpoints(ctx, p.Sandbox)
			r.Checkpoints = orEmpty(r.Checkpoints)
			return r, err
		}),
		api.MethodCheckRestore: handle(func(ctx context.Context, c *Call,
			p api.CheckpointRestoreParams) (api.CheckpointRestored, error) {
			r, err := snapshots.RestoreCheckpoint(ctx, p, c.FDs)
			r.Undone = orEmpty(r.Undone)
			return r, err
		}),
		api.MethodSandboxUpdate: handle(func(ctx context.Context, _ *Call, p api.UpdateParams) (api.Sandbox, error) {
			return boxes.Update(ctx, p)
		}),
		api.MethodSandboxStats: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Stats, error) {
			return boxes.Stats(p.Sandbox)
		}),
		api.MethodSandboxProcs: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Processes, error) {
			list, err := boxes.Processes(p.Sandbox)
			list.Processes = orEmpty(list.Processes)
			return list, err
		}),
		api.MethodPoolCreate: handle(func(ctx context.Context, c *Call, p api.PoolCreateParams) (api.Pool, error) {
			return pools.CreatePool(ctx, c.Actor, p.PoolSpec, c.Progress)
		}),
		api.MethodPoolAcquire: handle(func(ctx context.Context, c *Call, p api.AcquireParams) (*api.Sandbox, error) {
			return pools.Acquire(ctx, c.Actor, p)
		}),
		api.MethodPoolRelease: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.KillResult, error) {
			r, err := pools.Release(ctx, p.Sandbox)
			r.Killed = orEmpty(r.Killed)
			return r, err
		}),
		api.MethodPoolStatus: handle(func(_ context.Context, _ *Call, p api.PoolParams) (api.Pool, error) {
			return pools.Pool(p.Pool)
		}),
		api.MethodPoolList: handle(func(context.Context, *Call, empty) (api.Pools, error) {
			return api.Pools{Pools: orEmpty(pools.Pools())}, nil
		}),
		api.MethodPoolResize: handle(func(_ context.Context, _ *Call, p api.PoolResizeParams) (api.Pool, error) {
			return pools.ResizePool(p.Pool, p.Size)
		}),
		api.MethodPoolRemove: handle(func(_ context.Context, _ *Call, p api.PoolParams) (api.PoolRemoved, error) {
			return pools.RemovePool(p.Pool)
		}),
		api.MethodWorkDiff: handle(func(ctx context.Context, _ *Call, p api.WorkspaceDiffParams) (api.WorkspaceDiff,
			error) {
			r, err := workspaces.DiffWorkspace(ctx, p)
			r.Changes = orEmpty(r.Changes)
			return r, err
		}),
		api.MethodWorkApply: handle(func(ctx context.Context, c *Call,
			p api.WorkspaceApplyParams) (api.WorkspaceApplied, error) {
			r, err := workspaces.ApplyWorkspace(ctx, p, c.FDs)
			r.Applied, r.Failed = orEmpty(r.Applied), orEmpty(r.Failed)
			return r, err
		}),
		api.MethodWorkDiscard: handle(func(ctx context.Context, _ *Call, p api.WorkspaceParams) (api.WorkspaceDiscarded,
			error) {
			r, err := workspaces.DiscardWorkspace(ctx, p)
			r.Discarded, r.Failed = orEmpty(r.Discarded), orEmpty(r.Failed)
			return r, err
		}),
		api.MethodScopeList: handle(func(context.Context, *Call, empty) (api.Scopes, error) {
			return api.Scopes{Scopes: orEmpty(boxes.Scopes())}, nil
		}),
		api.MethodScopeReset: handle(func(ctx context.Context, c *Call, p api.ScopeParams) (api.Sandbox, error) {
			return boxes.ResetScope(ctx, c.Actor, p.Scope)
		}),
		api.MethodScopeEnd: handle(func(ctx context.Context, c *Call, p api.ScopeParams) (api.KillResult, error) {
			r, err := boxes.EndScope(ctx, c.Actor, p.Scope)
			r.Killed = orEmpty(r.Killed)
			return r, err
		}),
		api.MethodVolumeCreate: handle(func(_ context.Context, c *Call, p api.VolumeParams) (api.Volume, error) {
			return volumes.CreateVolume(c.Actor, p)
		}),
		api.MethodVolumeList: handle(func(ctx context.Context, c *Call, p api.VolumeListParams) (api.Volumes, error) {
			list, err := volumes.ListVolumes(ctx, c.Actor, p)
			return api.Volumes{Volumes: orEmpty(list)}, err
		}),
		api.MethodVolumeRemove: done(func(_ context.Context, c *Call, p api.VolumeParams) error {
			return volumes.RemoveVolume(c.Actor, p)
		}),
		api.MethodPortExpose: handle(func(ctx context.Context, c *Call, p api.PortExposeParams) (api.Port, error) {
			return ports.ExposePort(ctx, p, c.FDs)
		}),
		api.MethodPortList: handle(func(_ context.Context, _ *Call, p api.PortListParams) (api.Ports, error) {
			list, err := ports.Ports(p.Sandbox)
			return api.Ports{Ports: orEmpty(list)}, err
		}),
		api.MethodPortClose: handle(func(ctx context.Context, _ *Call, p api.PortCloseParams) (api.Ports, error) {
			list, err := ports.ClosePort(ctx, p)
			return api.Ports{Ports: orEmpty(list)}, err
		}),
		api.MethodCodeRun: handle(func(ctx context.Context, c *Call, p api.CodeParams) (api.CodeResult, error) {
			return code.RunCode(ctx, c.Actor, p, c.Progress)
		}),
		api.MethodCodeScan: handle(func(ctx context.Context, _ *Call, p api.ScanParams) (api.ScanResult, error) {
			return code.ScanCode(ctx, p)
		}),
		api.MethodCodeContexts: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.CodeContexts, error) {
			list, err := code.CodeContexts(p.Sandbox)
			return api.CodeContexts{Contexts: orEmpty(list)}, err
		}),
		api.MethodCodeEnd: done(func(ctx context.Context, _ *Call, p api.CodeContextParams) error {
			return code.EndCodeContext(ctx, p)
		}),
		api.MethodExecDecide: handle(func(ctx context.Context, c *Call, p api.DecideParams) (api.Decision, error) {
			return modes.Decide(ctx, c.Actor, p)
		}),
		api.MethodExecHostEnd: done(func(_ context.Context, c *Call, p api.HostEndParams) error {
			return modes.EndHost(c.Actor, p)
		}),
		api.MethodToolsList: handle(func(context.Context, *Call, empty) (api.ToolList, error) {
			return api.ToolList{Tools: tools.Tools()}, nil
		}),
		api.MethodToolsCall: handle(func(ctx context.Context, c *Call, p api.ToolCallParams) (api.ToolResult, error) {
			return tools.CallTool(ctx, p, func(exec string, pid int) {
				c.Progress(api.Progress{Kind: api.ProgressStarted, Exec: exec, PID: pid})
			})
		}),
		api.MethodExecWait: handle(func(ctx context.Context, _ *Call, p api.WaitParams) (api.ExecResult, error) {
			return execs.Wait(ctx, p)
		}),
		api.MethodExecRead: handle(func(ctx context.Context, _ *Call, p api.ReadParams) (api.Chunk, error) {
			return execs.Read(ctx, p)
		}),
		api.MethodExecAttach: handle(func(_ context.Context, c *Call, p api.AttachParams) (api.Attached, error) {
			return c.attach(execs, p)
		}),
		api.MethodExecCredit: done(func(_ context.Context, c *Call, p api.CreditParams) error {
			return c.subs.credit(p)
		}),
		api.MethodExecDetach: done(func(_ context.Context, c *Call, p api.DetachParams) error {
			return c.subs.detach(p)
		}),
		api.MethodExecWrite: done(func(ctx context.Context, _ *Call, p api.WriteParams) error {
			return execs.Write(ctx, p)
		}),
		api.MethodExecEOF: done(func(ctx context.Context, _ *Call, p api.ExecRef) error {
			return execs.CloseStdin(ctx, p)
		}),
		api.MethodExecKill: handle(func(ctx context.Context, _ *Call, p api.ExecRef) (api.ExecResult, error) {
			return execs.KillExec(ctx, p)
		}),
		api.MethodExecList: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Execs, error) {
			list, err := execs.Execs(p.Sandbox)
			return api.Execs{Execs: orEmpty(list)}, err
		}),
		api.MethodExecGet: handle(func(_ context.Context, _ *Call, p api.ExecRef) (api.Exec, error) {
			return execs.Exec(p)
		}),
		api.MethodExecSignal: done(func(ctx context.Context, _ *Call, p api.SignalParams) error {
			return execs.Signal(ctx, p)
		}),
		api.MethodExecResize: done(func(_ context.Context, _ *Call, p api.ResizeParams) error {
			return execs.Resize(p)
		}),
		api.MethodShellOpen: handle(func(ctx context.Context, _ *Call, p api.ShellParams) (api.Shell, error) {
			return shells.OpenShell(ctx, p)
		}),
		api.MethodShellRun: handle(func(ctx context.Context, _ *Call, p api.ShellRunParams) (api.ShellResult, error) {
			return shells.RunShell(ctx, p)
		}),
		api.MethodShellClose: handle(func(ctx context.Context, _ *Call, p api.ShellRef) (api.ExecResult, error) {
			return shells.CloseShell(ctx, p)
		}),
		api.MethodShellList: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Shells, error) {
			list, err := shells.Shells(p.Sandbox)
			return api.Shells{Shells: orEmpty(list)}, err
		}),
		api.MethodFSRead: handle(func(ctx context.Context, c *Call, p api.FileReadParams) (api.FileChunk, error) {
			return files.ReadFile(ctx, p, c.FDs)
		}),
		api.MethodFSWrite: handle(func(ctx context.Context, c *Call, p api.FileWriteParams) (api.FileWritten, error) {
			return files.WriteFile(ctx, p, c.FDs)
		}),
		api.MethodFSList: handle(func(ctx context.Context, _ *Call, p api.FileListParams) (api.FileList, error) {
			list, err := files.ListFiles(ctx, p)
			list.Entries = orEmpty(list.Entries)
			return list, err
		}),
		api.MethodFSStat: handle(func(ctx context.Context, _ *Call, p api.FileStatParams) (api.File, error) {
			return files.StatFile(ctx, p)
		}),
		api.MethodFSMkdir: handle(func(ctx context.Context, _ *Call, p api.FileMkdirParams) (api.FileMade, error) {
			return files.MakeFolder(ctx, p)
		}),
		api.MethodFSRemove: handle(func(ctx context.Context, _ *Call, p api.FileRemoveParams) (api.FileRemoved, error) {
			return files.RemoveFile(ctx, p)
		}),
		api.MethodFSMove: done(func(ctx context.Context, _ *Call, p api.FileMoveParams) error {
			return files.MoveFile(ctx, p)
		}),
		api.MethodFSPack: handle(func(ctx context.Context, c *Call, p api.FilePackParams) (api.FileArchive, error) {
			return files.PackFiles(ctx, p, c.FDs)
		}),
		api.MethodFSUnpack: handle(func(ctx context.Context, c *Call, p api.FileUnpackParams) (api.FileArchive, error) {
			return files.UnpackFiles(ctx, p, c.FDs)
		}),
		api.MethodFSSync: handle(func(ctx context.Context, _ *Call, p api.FileSyncParams) (api.FileSynced, error) {
			r, err := files.SyncFiles(ctx, p)
			r.Needed = orEmpty(r.Needed)
			return r, err
		}),
		api.MethodNetworkGet: handle(func(_ context.Context, _ *Call, p api.SandboxParams) (api.Network, error) {
			return network(networks.Network(p.Sandbox))
		}),
		api.MethodNetworkUpdate: handle(func(ctx context.Context, _ *Call, p api.NetUpdateParams) (api.Network, error) {
			return network(networks.UpdateNetwork(ctx, p))
		}),
		api.MethodNetworkCheck: handle(func(_ context.Context, _ *Call, p api.NetCheckParams) (api.NetVerdict, error) {
			return networks.CheckNetwork(p)
		}),
		api.MethodNetworkAsks: handle(func(context.Context, *Call, api.Empty) (api.Asks, error) {
			return asks(networks.Asks())
		}),
		api.MethodNetworkAnswer: done(func(ctx context.Context, _ *Call, p api.AnswerParams) error {
			if err := p.Validate(); err != nil {
				return err
			}
			return networks.Answer(ctx, p)
		}),
		api.MethodNetworkForget: handle(func(_ context.Context, _ *Call, p api.ForgetParams) (api.Asks, error) {
			if err := p.Validate(); err != nil {
				return api.Asks{}, err
			}
			return asks(networks.Forget(p))
		}),
		api.MethodEvents: handle(func(ctx context.Context, c *Call, p api.SubscribeParams) (api.Subscribed, error) {
			return c.subscribe(ctx, events, p)
		}),
		api.MethodEventsCredit: done(func(_ context.Context, c *Call, p api.EventCreditParams) error {
			return c.subs.creditEvents(p)
		}),
		api.MethodEventsEnd: done(func(_ context.Context, c *Call, p api.SubscriptionParams) error {
			return c.subs.unsubscribe(p)
		}),
		api.MethodAuditRead: handle(func(ctx context.Context, _ *Call, p api.AuditReadParams) (api.AuditRecords,
			error) {
			return audit.ReadAudit(ctx, p)
		}),
		api.MethodAuditVerify: handle(func(ctx context.Context, _ *Call, p api.AuditVerifyParams) (api.AuditVerified,
			error) {
			return audit.VerifyAudit(ctx, p)
		}),
		api.MethodAuditHead: handle(func(ctx context.Context, _ *Call, p api.SandboxParams) (api.AuditHead, error) {
			return audit.AuditHead(ctx, p.Sandbox)
		}),
		api.MethodAuditList: handle(func(ctx context.Context, _ *Call, _ empty) (api.AuditLogs, error) {
			list, err := audit.AuditLogs(ctx)
			return api.AuditLogs{Logs: orEmpty(list)}, err
		}),
		api.MethodImagePull: handle(func(ctx context.Context, c *Call, p api.PullParams) (api.Image, error) {
			return images.Pull(ctx, p, c.Progress)
		}),
		api.MethodImageList: handle(func(context.Context, *Call, empty) (api.Images, error) {
			list, err := images.List()
			return api.Images{Images: orEmpty(list)}, err
		}),
		api.MethodImageInspect: handle(func(_ context.Context, _ *Call, p api.RefParams) (api.Image, error) {
			return images.Inspect(p.Ref)
		}),
		api.MethodImageRemove: done(func(_ context.Context, _ *Call, p api.RefParams) error {
			return images.Remove(p.Ref)
		}),
		api.MethodImageImport: handle(func(ctx context.Context, c *Call, p api.ImportParams) (api.Image, error) {
			return images.Import(ctx, p, c.FDs, c.Progress)
		}),
		api.MethodImageCommit: handle(func(ctx context.Context, c *Call, p api.CommitParams) (api.Committed, error) {
			return images.Commit(ctx, p, c.Progress)
		}),
		api.MethodImageExport: handle(func(ctx context.Context, c *Call, p api.ExportParams) (api.Exported, error) {
			return images.Export(ctx, p, c.FDs)
		}),
		api.MethodImagePush: handle(func(ctx context.Context, c *Call, p api.PushParams) (api.Pushed, error) {
			return images.Push(ctx, p, c.Progress)
		}),
		api.MethodImageLogin: handle(func(ctx context.Context, _ *Call, p api.LoginParams) (api.Login, error) {
			return images.Login(ctx, p)
		}),
		api.MethodImageLogout: done(func(ctx context.Context, _ *Call, p api.RegistryParams) error {
			return images.Logout(ctx, p.Registry)
		}),
		api.MethodImageGetLogin: handle(func(ctx context.Context, _ *Call, p api.RegistryParams) (api.Login, error) {
			return images.GetLogin(ctx, p.Registry)
		}),
		api.MethodImageTag: handle(func(_ context.Context, _ *Call, p api.TagParams) (api.Image, error) {
			return images.Tag(p)
		}),
		api.MethodImageDu: handle(func(ctx context.Context, _ *Call, _ empty) (api.ImageDisk, error) {
			d, err := images.DiskUse(ctx)
			d.Images = orEmpty(d.Images)
			return d, err
		}),
		api.MethodImagePrune: handle(func(_ context.Context, _ *Call, p api.PruneParams) (api.Pruned, error) {
			r, err := images.Prune(p)
			r.Removed = orEmpty(r.Removed)
			return r, err
		}),
		api.MethodImageVerify: handle(func(ctx context.Context, _ *Call, p api.VerifyParams) (api.Verified, error) {
			r, err := images.Verify(ctx, p)
			r.Layers = orEmpty(r.Layers)
			return r, err
		}),
		api.MethodDiscover: handle(func(context.Context, *Call, empty) (map[string]any, error) {
			return s.discover()
		}),
	}
	maps.Copy(all, s.runHandlers())
	maps.Copy(all, s.templateHandlers())
	return all
}

func network(n api.Network, err error) (api.Network, error) {
	n.Rules, n.Denials = orEmpty(n.Rules), orEmpty(n.Denials)
	return n, err
}

func asks(a api.Asks, err error) (api.Asks, error) {
	a.Pending = orEmpty(a.Pending)
	return a, err
}

// orEmpty makes a list that JSON shows as [] and not as null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// checkHandlers makes sure that the handlers are exactly the methods, with the
// types that rpc.discover shows.
func checkHandlers(methods []api.Method, handlers map[string]handler) error {
	seen := make(map[string]bool)
	for _, m := range methods {
		h, ok := handlers[m.Name]
		switch {
		case seen[m.Name]:
			return fmt.Errorf("method %s is listed twice", m.Name)
		case !ok:
			return fmt.Errorf("method %s has no handler", m.Name)
		case h.params != reflect.TypeOf(m.Params):
			return fmt.Errorf("method %s takes %T, its handler %v", m.Name, m.Params, h.params)
		case h.result != reflect.TypeOf(m.Result):
			return fmt.Errorf("method %s returns %T, its handler %v", m.Name, m.Result, h.result)
		}
		seen[m.Name] = true
	}
	for name := range handlers {
		if !seen[name] {
			return fmt.Errorf("handler %s is no method", name)
		}
	}
	return nil
}
