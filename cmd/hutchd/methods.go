package main

import (
	"context"

	"github.com/hutch-sh/hutch/internal/packet"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/keep"
	"github.com/hutch-sh/hutch/runtime/mode"
	"github.com/hutch-sh/hutch/runtime/sandbox"
	"github.com/hutch-sh/hutch/runtime/server"
	"github.com/hutch-sh/hutch/runtime/warm"
)

// methods are the handlers of all methods: mostly the engines' own.
func (d *daemon) methods() *server.Methods {
	m := new(server.Methods)
	d.systemMethods(m)
	d.sandboxMethods(m)
	d.stateMethods(m)
	d.execMethods(m)
	d.networkMethods(m)
	imageBackend{d}.methods(m)
	return m
}

// The shapes that engines' methods have, beside those of server.Handle.

// named is of what takes a sandbox's id or name.
func named[R any](f func(context.Context, string) (R, error)) func(context.Context, api.SandboxParams) (R, error) {
	return func(ctx context.Context, p api.SandboxParams) (R, error) { return f(ctx, p.Sandbox) }
}

// known is of what takes a sandbox's id or name and does not wait.
func known[R any](f func(string) (R, error)) func(context.Context, api.SandboxParams) (R, error) {
	return func(_ context.Context, p api.SandboxParams) (R, error) { return f(p.Sandbox) }
}

// atOnce is of what does not wait.
func atOnce[P, R any](f func(P) (R, error)) func(context.Context, P) (R, error) {
	return func(_ context.Context, p P) (R, error) { return f(p) }
}

// withFDs is of what takes fds.
func withFDs[P, R any](f func(context.Context, P, packet.Taker) (R, error)) func(context.Context, *server.Call, P) (R,
	error) {
	return func(ctx context.Context, c *server.Call, p P) (R, error) { return f(ctx, p, c.FDs) }
}

// withNews is of what has news.
func withNews[P, R any](f func(context.Context, P, func(api.Progress)) (R, error)) func(context.Context, *server.Call,
	P) (R, error) {
	return func(ctx context.Context, c *server.Call, p P) (R, error) { return f(ctx, p, c.Progress) }
}

// by is of what depends on who calls, or on what came with the call.
func by[P, R any](f func(context.Context, sandbox.Caller, P) (R, error)) func(context.Context, *server.Call, P) (R,
	error) {
	return func(ctx context.Context, c *server.Call, p P) (R, error) {
		return f(ctx, sandbox.Caller{User: c.UID, Conn: c.Conn, FDs: c.FDs, Progress: c.Progress}, p)
	}
}

// kept is by for package keep.
func kept[P, R any](f func(context.Context, keep.Caller, P) (R, error)) func(context.Context, *server.Call, P) (R,
	error) {
	return func(ctx context.Context, c *server.Call, p P) (R, error) {
		return f(ctx, keep.Caller{User: c.UID, Conn: c.Conn, FDs: c.FDs}, p)
	}
}

func (d *daemon) systemMethods(m *server.Methods) {
	server.Handle(m, api.CallInfo, d.info)
	server.Handle(m, api.CallDoctor, d.doctor)
	server.Handle(m, api.CallShutdown, server.Done(d.shutdown))
	server.Handle(m, api.CallGC, d.gc)
	server.Handle(m, api.CallReload, server.Done(d.reload))

	server.Handle(m, api.CallAuditRead, d.readAudit)
	server.Handle(m, api.CallAuditVerify, d.verifyAudit)
	server.Handle(m, api.CallAuditHead, func(ctx context.Context, p api.SandboxParams) (api.AuditHead, error) {
		return d.audit.Head(ctx, d.auditID(p.Sandbox))
	})
	server.Handle(m, api.CallAuditList, d.audit.List)
}

func (d *daemon) sandboxMethods(m *server.Methods) {
	g := d.manager
	server.HandleCall(m, api.CallSandboxCreate, func(ctx context.Context, c *server.Call,
		p api.CreateParams) (api.Sandbox, error) {
		return g.Create(ctx, sandbox.CreateRequest{Spec: p.Spec, FDs: c.FDs, User: c.UID, Conn: c.Conn, Debug: p.Debug,
			Break: p.Break, Progress: c.Progress})
	})
	server.HandleCall(m, api.CallSandboxRun, server.InTurn(d.runNew))
	server.Handle(m, api.CallSandboxGet, known(g.Get))
	server.Handle(m, api.CallSandboxList, g.List)
	server.HandleCall(m, api.CallSandboxClaim, by(g.Claim))
	server.Handle(m, api.CallSandboxKill, named(g.Kill))
	server.Handle(m, api.CallSandboxRemove, named(g.Remove))
	server.Handle(m, api.CallSandboxPause, named(g.Pauses.Pause))
	server.Handle(m, api.CallSandboxResume, named(g.Pauses.Resume))
	server.Handle(m, api.CallSandboxUpdate, g.Meters.Update)
	server.Handle(m, api.CallSandboxStats, known(g.Meters.Stats))
	server.Handle(m, api.CallSandboxProcs, known(g.Meters.Processes))
	server.Handle(m, api.CallSandboxStop, g.Keep.Stop)
	server.HandleCall(m, api.CallSandboxStart, kept(g.Keep.Start))
	server.HandleCall(m, api.CallSandboxFork, kept(g.Keep.Fork))

	server.Handle(m, api.CallScopeList, g.Scopes.List)
	server.HandleCall(m, api.CallScopeReset, by(g.Scopes.Reset))
	server.HandleCall(m, api.CallScopeEnd, by(g.Scopes.End))

	server.HandleCall(m, api.CallPoolCreate, func(ctx context.Context, c *server.Call,
		p api.PoolCreateParams) (api.Pool, error) {
		return g.Pools.Create(ctx, warm.Request{Spec: p.PoolSpec, User: c.UID, Progress: c.Progress})
	})
	server.HandleCall(m, api.CallPoolAcquire, func(ctx context.Context, c *server.Call,
		p api.AcquireParams) (*api.Sandbox, error) {
		return g.Pools.Acquire(ctx, c.Conn, p)
	})
	server.Handle(m, api.CallPoolRelease, named(g.Pools.Release))
	server.Handle(m, api.CallPoolStatus, atOnce(g.Pools.Status))
	server.Handle(m, api.CallPoolList, func(context.Context, api.Empty) (api.Pools, error) {
		return api.Pools{Pools: g.Pools.All()}, nil
	})
	server.Handle(m, api.CallPoolResize, atOnce(g.Pools.Resize))
	server.Handle(m, api.CallPoolRemove, atOnce(g.Pools.Remove))
}

// stateMethods are about what sandboxes are made of and leave.
func (d *daemon) stateMethods(m *server.Methods) {
	g, t := d.manager, d.templates
	server.HandleCall(m, api.CallSnapCreate, kept(g.Keep.CreateSnapshot))
	server.HandleCall(m, api.CallSnapList, kept(g.Keep.Snapshots))
	server.HandleCall(m, api.CallSnapDiff, kept(g.Keep.DiffSnapshot))
	server.HandleCall(m, api.CallSnapRestore, kept(g.Keep.RestoreSnapshot))
	server.HandleCall(m, api.CallSnapRemove, kept(g.Keep.RemoveSnapshot))
	server.Handle(m, api.CallCheckList, named(g.History.Checkpoints))
	server.HandleCall(m, api.CallCheckRestore, withFDs(g.History.Restore))

	server.HandleCall(m, api.CallTemplateCreate, by(t.Create))
	server.Handle(m, api.CallTemplateList, t.List)
	server.Handle(m, api.CallTemplateInspect, t.Get)
	server.HandleCall(m, api.CallTemplateBuild, by(t.Build))
	server.Handle(m, api.CallTemplateRemove, t.Remove)

	server.Handle(m, api.CallWorkDiff, g.Workspaces.Diff)
	server.HandleCall(m, api.CallWorkApply, withFDs(g.Workspaces.Apply))
	server.Handle(m, api.CallWorkDiscard, g.Workspaces.Discard)

	server.HandleCall(m, api.CallVolumeCreate, func(_ context.Context, c *server.Call,
		p api.VolumeParams) (api.Volume, error) {
		return d.volumes.Create(c.UID, p.Name)
	})
	server.HandleCall(m, api.CallVolumeList, by(d.listVolumes))
	server.HandleCall(m, api.CallVolumeRemove, func(_ context.Context, c *server.Call, p api.VolumeParams) (api.Empty,
		error) {
		return api.Empty{}, d.volumes.Remove(c.UID, p.Name)
	})
}

// execMethods are about what runs in sandboxes, and their files.
func (d *daemon) execMethods(m *server.Methods) {
	g := d.manager
	server.HandleCall(m, api.CallExecRun, server.InTurn(func(ctx context.Context, c *server.Call,
		p api.ExecParams) (api.ExecResult, error) {
		return g.Execs.Run(ctx, exec.Request{Params: p, FDs: c.FDs, Started: c.Started, Sent: c.AfterSent})
	}))
	server.HandleCall(m, api.CallExecStart, server.InTurn(func(ctx context.Context, c *server.Call,
		p api.ExecParams) (api.StartResult, error) {
		return g.Execs.Start(ctx, exec.Request{Params: p, FDs: c.FDs, Started: func(string, int) {}})
	}))
	server.Handle(m, api.CallExecWait, g.Execs.Wait)
	server.Handle(m, api.CallExecRead, g.Execs.Read)
	server.Handle(m, api.CallExecWrite, server.Done(g.Execs.Write))
	server.Handle(m, api.CallExecEOF, server.Done(g.Execs.CloseStdin))
	server.Handle(m, api.CallExecKill, g.Execs.Kill)
	server.Handle(m, api.CallExecList, g.Execs.List)
	server.Handle(m, api.CallExecGet, atOnce(g.Execs.Get))
	server.Handle(m, api.CallExecSignal, server.Done(g.Execs.Signal))
	server.Handle(m, api.CallExecResize, server.Done(g.Execs.Resize))
	server.HandleCall(m, api.CallExecDecide, func(ctx context.Context, c *server.Call,
		p api.DecideParams) (api.Decision, error) {
		return d.modes.Decide(ctx, mode.Caller{Conn: c.Conn, Private: c.Private}, p)
	})
	server.HandleCall(m, api.CallExecHostEnd, func(_ context.Context, c *server.Call, p api.HostEndParams) (api.Empty,
		error) {
		return api.Empty{}, d.modes.Ended(mode.Caller{Conn: c.Conn, Private: c.Private}, p)
	})

	server.Handle(m, api.CallShellOpen, g.Shells.Open)
	server.Handle(m, api.CallShellRun, g.Shells.Run)
	server.Handle(m, api.CallShellClose, g.Shells.Close)
	server.Handle(m, api.CallShellList, g.Shells.List)

	runner := code.NewRunner(g, d.scanner)
	server.HandleCall(m, api.CallCodeRun, by(runner.Run))
	server.Handle(m, api.CallCodeScan, d.scanner.Scan)
	server.Handle(m, api.CallCodeContexts, func(_ context.Context, p api.SandboxParams) (api.CodeContexts, error) {
		list, err := runner.Contexts(p.Sandbox)
		return api.CodeContexts{Contexts: list}, err
	})
	server.Handle(m, api.CallCodeEnd, server.Done(runner.EndContext))

	server.Handle(m, api.CallToolsList, d.tools.Tools)
	server.HandleCall(m, api.CallToolsCall, func(ctx context.Context, c *server.Call,
		p api.ToolCallParams) (api.ToolResult, error) {
		return d.tools.CallTool(ctx, p, c.Started)
	})

	server.HandleCall(m, api.CallFSRead, withFDs(g.Files.Read))
	server.HandleCall(m, api.CallFSWrite, withFDs(g.Files.Write))
	server.Handle(m, api.CallFSList, g.Files.List)
	server.Handle(m, api.CallFSStat, g.Files.Stat)
	server.Handle(m, api.CallFSMkdir, g.Files.MakeFolder)
	server.Handle(m, api.CallFSRemove, g.Files.Remove)
	server.Handle(m, api.CallFSMove, server.Done(g.Files.Move))
	server.HandleCall(m, api.CallFSPack, withFDs(g.Files.Pack))
	server.HandleCall(m, api.CallFSUnpack, withFDs(g.Files.Unpack))
	server.Handle(m, api.CallFSSync, g.Files.Sync)
}

func (d *daemon) networkMethods(m *server.Methods) {
	g := d.manager
	server.Handle(m, api.CallNetworkGet, known(d.network))
	server.Handle(m, api.CallNetworkUpdate, func(ctx context.Context, p api.NetUpdateParams) (api.Network, error) {
		if err := g.Egress.Update(ctx, p); err != nil {
			return api.Network{}, err
		}
		return d.network(p.Sandbox)
	})
	server.Handle(m, api.CallNetworkCheck, atOnce(d.checkNetwork))
	server.Handle(m, api.CallNetworkAsks, func(context.Context, api.Empty) (api.Asks, error) {
		return d.approvals.List(), nil
	})
	server.Handle(m, api.CallNetworkAnswer, server.Done(d.approvals.Answer))
	server.Handle(m, api.CallNetworkForget, atOnce(d.approvals.Forget))

	server.HandleCall(m, api.CallPortExpose, withFDs(g.Ports.Expose))
	server.Handle(m, api.CallPortList, g.Ports.List)
	server.Handle(m, api.CallPortClose, g.Ports.Close)
}

func (b imageBackend) methods(m *server.Methods) {
	server.HandleCall(m, api.CallImagePull, withNews(b.Pull))
	server.Handle(m, api.CallImageList, b.List)
	server.Handle(m, api.CallImageInspect, b.Inspect)
	server.Handle(m, api.CallImageRemove, server.Done(b.Remove))
	server.HandleCall(m, api.CallImageImport, b.Import)
	server.HandleCall(m, api.CallImageCommit, withNews(b.Commit))
	server.HandleCall(m, api.CallImageExport, withFDs(b.Export))
	server.HandleCall(m, api.CallImagePush, withNews(b.Push))
	server.Handle(m, api.CallImageLogin, b.Login)
	server.Handle(m, api.CallImageLogout, func(ctx context.Context, p api.RegistryParams) (api.Empty, error) {
		return api.Empty{}, b.d.store.Registries().Logout(ctx, p.Registry)
	})
	server.Handle(m, api.CallImageGetLogin, b.GetLogin)
	server.Handle(m, api.CallImageTag, b.Tag)
	server.Handle(m, api.CallImageDu, b.DiskUse)
	server.Handle(m, api.CallImagePrune, b.Prune)
	server.Handle(m, api.CallImageVerify, b.Verify)
}
