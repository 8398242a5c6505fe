package api

// Names of the methods.
const (
	MethodInfo          = "system.info"
	MethodAuthenticate  = "system.authenticate"
	MethodDoctor        = "system.doctor"
	MethodShutdown      = "system.shutdown"
	MethodGC            = "system.gc"
	MethodReload        = "system.reload"
	MethodSandboxCreate = "sandbox.create"
	MethodSandboxRun    = "sandbox.run"
	MethodSandboxGet    = "sandbox.get"
	MethodSandboxList   = "sandbox.list"
	MethodSandboxClaim  = "sandbox.claim"
	MethodSandboxKill   = "sandbox.kill"
	MethodSandboxRemove = "sandbox.remove"
	MethodSandboxPause  = "sandbox.pause"
	MethodSandboxResume = "sandbox.resume"
	MethodSandboxUpdate = "sandbox.update"
	MethodSandboxStats  = "sandbox.stats"
	MethodSandboxProcs  = "sandbox.processes"
	MethodSandboxStop   = "sandbox.stop"
	MethodSandboxStart  = "sandbox.start"
	MethodSandboxFork   = "sandbox.fork"
	MethodSnapCreate    = "snapshot.create"
	MethodSnapList      = "snapshot.list"
	MethodSnapDiff      = "snapshot.diff"
	MethodSnapRestore   = "snapshot.restore"
	MethodSnapRemove    = "snapshot.remove"
	MethodCheckList     = "checkpoint.list"
	MethodCheckRestore  = "checkpoint.restore"
	MethodPoolCreate    = "pool.create"
	MethodPoolAcquire   = "pool.acquire"
	MethodPoolRelease   = "pool.release"
	MethodPoolStatus    = "pool.status"
	MethodPoolList      = "pool.list"
	MethodPoolResize    = "pool.resize"
	MethodPoolRemove    = "pool.remove"
	MethodWorkDiff      = "workspace.diff"
	MethodWorkApply     = "workspace.apply"
	MethodWorkDiscard   = "workspace.discard"
	MethodScopeList     = "scope.list"
	MethodScopeReset    = "scope.reset"
	MethodScopeEnd      = "scope.end"
	MethodVolumeCreate  = "volume.create"
	MethodVolumeList    = "volume.list"
	MethodVolumeRemove  = "volume.remove"
	MethodCodeRun       = "code.run"
	MethodCodeContexts  = "code.contexts"
	MethodCodeEnd       = "code.end_context"
	MethodCodeScan      = "code.scan"
	MethodToolsList     = "tools.list"
	MethodToolsCall     = "tools.call"
	MethodExecDecide    = "exec.decide"
	MethodExecHostEnd   = "exec.record_host"
	MethodExecRun       = "exec.run"
	MethodExecStart     = "exec.start"
	MethodExecWait      = "exec.wait"
	MethodExecRead      = "exec.read"
	MethodExecAttach    = "exec.attach"
	MethodExecCredit    = "exec.credit"
	MethodExecDetach    = "exec.detach"
	MethodExecWrite     = "exec.write"
	MethodExecEOF       = "exec.close_stdin"
	MethodExecKill      = "exec.kill"
	MethodExecList      = "exec.list"
	MethodExecGet       = "exec.get"
	MethodExecSignal    = "exec.signal"
	MethodExecResize    = "exec.resize"
	MethodShellOpen     = "shell.open"
	MethodShellRun      = "shell.run"
	MethodShellClose    = "shell.close"
	MethodShellList     = "shell.list"
	MethodFSRead        = "fs.read"
	MethodFSWrite       = "fs.write"
	MethodFSList        = "fs.list"
	MethodFSStat        = "fs.stat"
	MethodFSMkdir       = "fs.mkdir"
	MethodFSRemove      = "fs.remove"
	MethodFSMove        = "fs.move"
	MethodFSPack        = "fs.pack"
	MethodFSUnpack      = "fs.unpack"
	MethodFSSync        = "fs.sync"
	MethodNetworkGet    = "network.get"
	MethodNetworkUpdate = "network.update"
	MethodNetworkCheck  = "network.check"
	MethodNetworkAsks   = "network.asks"
	MethodNetworkAnswer = "network.answer"
	MethodNetworkForget = "network.forget"
	MethodPortExpose    = "port.expose"
	MethodPortList      = "port.list"
	MethodPortClose     = "port.close"
	MethodEvents        = "events.subscribe"
	MethodEventsCredit  = "events.credit"
	MethodEventsEnd     = "events.unsubscribe"
	MethodAuditRead     = "audit.read"
	MethodAuditVerify   = "audit.verify"
	MethodAuditHead     = "audit.head"
	MethodAuditList     = "audit.list"
	MethodImagePull     = "image.pull"
	MethodImageList     = "image.list"
	MethodImageInspect  = "image.inspect"
	MethodImageRemove   = "image.remove"
	MethodImageImport   = "image.import"
	MethodImageCommit   = "image.commit"
	MethodImageExport   = "image.export"
	MethodImagePush     = "image.push"
	MethodImageLogin    = "image.login"
	MethodImageLogout   = "image.logout"
	MethodImageGetLogin = "image.get_login"
	MethodImageTag      = "image.tag"
	MethodImageDu       = "image.du"
	MethodImagePrune    = "image.prune"
	MethodImageVerify   = "image.verify"
	MethodDiscover      = "rpc.discover"
)

// Names of the notifications.
const (
	NotifyCancel   = "rpc.cancel" // client to server: {id}
	NotifyProgress = "progress"   // server to client
)

// Method is one row of the RPC surface.
type Method struct {
	Name    string
	Summary string // one sentence, for rpc.discover and the documentation
	Params  any    // zero value of the params type
	Result  any    // zero value of the result type
	FDs     bool   // fds may ride on the request
}

// Methods is the whole RPC surface of this build: what the server dispatches,
// what rpc.discover lists and what the documentation shows.
var Methods = []Method{
	{MethodInfo, "Says which daemon answers, what isolation its sandboxes get and where it keeps things.", Empty{},
		Info{}, false},
	{MethodAuthenticate,
		"Shows a client's token, on which the other calls of the connection depend where the configuration names tokens.", AuthenticateParams{}, Authenticated{}, false},
	{MethodDoctor, "Probes what this machine offers and how to get what is missing.", Empty{}, Doctor{}, false},
	{MethodShutdown, "Ends the daemon, with or without its sandboxes.", ShutdownParams{}, Empty{}, false},
	{MethodGC, "Sweeps what a killed daemon left behind.", Empty{}, GCResult{}, false},
	{MethodReload, "Reads the configuration file again, for what starts from then on.", Empty{}, Empty{}, false},
	{MethodSandboxCreate, "Creates a sandbox and returns when it is running.", CreateParams{}, Sandbox{}, true},
	{MethodSandboxRun, "Creates a sandbox, or takes one out of a pool, runs a command in it, removes it, and returns when the command has ended.", RunParams{}, RunResult{}, true},
	{MethodSandboxGet, "Returns the record of one sandbox.", SandboxParams{}, Sandbox{}, false},
	{MethodSandboxList, "Lists the sandboxes, oldest first.", ListParams{}, SandboxList{}, false},
	{MethodSandboxClaim, "Ties a sandbox to this connection, whose creator's was lost when the daemon was killed.",
		SandboxParams{}, Sandbox{}, false},
	{MethodSandboxKill, "Kills every process of a sandbox; its record and files stay.", SandboxParams{},
		KillResult{}, false},
	{MethodSandboxRemove, "Kills a sandbox and deletes its record and files.", SandboxParams{}, KillResult{}, false},
	{MethodSandboxPause, "Stops the processes of a sandbox where they are, and the clocks of its commands.",
		SandboxParams{}, Sandbox{}, false},
	{MethodSandboxResume, "Lets a paused sandbox go on; starting a command in it, or using its files, does so too.",
		SandboxParams{}, Sandbox{}, false},
	{MethodSandboxUpdate, "Changes limits of a running sandbox.", UpdateParams{}, Sandbox{}, false},
	{MethodSandboxStats, "Says what a sandbox uses, and has used, of CPU time, memory, processes and disks.",
		SandboxParams{}, Stats{}, false},
	{MethodSandboxProcs, "Lists the processes of a sandbox.", SandboxParams{}, Processes{}, false},
	{MethodSandboxStop, "Ends the processes of a sandbox and keeps its files and what it is, also beyond the daemon, for sandbox.start.", StopParams{}, StopResult{}, false},
	{MethodSandboxStart, "Starts a sandbox that was stopped, under its id and name, with its files.", StartParams{},
		Sandbox{}, true},
	{MethodSandboxFork, "Makes sandboxes that go on from the files of another, or of a snapshot, each for itself.",
		ForkParams{}, Forked{}, true},
	{MethodSnapCreate, "Keeps what the files of a sandbox are now, and what it is; the sandbox stands still meanwhile.",
		SnapshotCreateParams{}, Snapshot{}, false},
	{MethodSnapList, "Lists the caller's snapshots, oldest first.", SnapshotListParams{}, Snapshots{}, false},
	{MethodSnapDiff, "Lists which files of a sandbox are others than in a snapshot, now or in another snapshot, as a diff if asked to.", SnapshotDiffParams{}, SnapshotDiff{}, false},
	{MethodSnapRestore, "Gives a sandbox the files that it had when a snapshot was taken of it; its processes end.",
		SnapshotRestoreParams{}, SnapshotRestored{}, true},
	{MethodSnapRemove, "Removes a snapshot; what was forked from it goes on.", SnapshotParams{}, Empty{}, false},
	{MethodCheckList, "Lists what the files of a sandbox were before its last calls, oldest first.", SandboxParams{},
		Checkpoints{}, false},
	{MethodCheckRestore, "Gives a sandbox the files that it had before a call; its processes end.",
		CheckpointRestoreParams{}, CheckpointRestored{}, true},
	{MethodTemplateCreate,
		"Keeps what sandboxes can be made by that name it: an image or another template, limits, a network policy, steps that are run once, what is started in each sandbox and waited for. It builds nothing.", TemplateCreateParams{}, Template{}, true},
	{MethodTemplateList, "Lists the templates, also those that come with hutch.", Empty{}, Templates{}, false},
	{MethodTemplateInspect, "Describes a template, and what came of its steps.", TemplateParams{}, Template{}, false},
	{MethodTemplateBuild,
		"Runs the steps of a template in a sandbox and keeps what they have written, unless nothing has changed. With progress, what they write is told as it comes.", TemplateBuildParams{}, TemplateBuildResult{}, false},
	{MethodTemplateRemove, "Removes a template, with what its steps have made; sandboxes of it go on.",
		TemplateParams{}, TemplateRemoved{}, false},
	{MethodPoolCreate, "Makes a pool of sandboxes that wait for whoever asks, and returns when the first does.",
		PoolCreateParams{}, Pool{}, false},
	{MethodPoolAcquire, "Takes a sandbox out of a pool; null when none is ready within wait_ms.", AcquireParams{},
		&Sandbox{}, false},
	{MethodPoolRelease, "Destroys a sandbox that was acquired from a pool.", SandboxParams{}, KillResult{}, false},
	{MethodPoolStatus, "Says how a pool is filled.", PoolParams{}, Pool{}, false},
	{MethodPoolList, "Lists the pools by name.", Empty{}, Pools{}, false},
	{MethodPoolResize, "Changes how many sandboxes wait in a pool.", PoolResizeParams{}, Pool{}, false},
	{MethodPoolRemove, "Removes a pool with what waits in it; what was acquired goes on.", PoolParams{},
		PoolRemoved{}, false},
	{MethodWorkDiff, "Lists what a sandbox has changed in its workspace of mode overlay, as a diff if asked to.",
		WorkspaceDiffParams{}, WorkspaceDiff{}, false},
	{MethodWorkApply, "Brings what a sandbox has changed into the user's folder.", WorkspaceApplyParams{},
		WorkspaceApplied{}, true},
	{MethodWorkDiscard, "Makes what a sandbox has changed in its workspace as it is in the user's folder.",
		WorkspaceParams{}, WorkspaceDiscarded{}, false},
	{MethodScopeList, "Lists the scopes that have a sandbox, oldest first.", Empty{}, Scopes{}, false},
	{MethodScopeReset, "Replaces a scope's sandbox by a new one, made as it was.", ScopeParams{}, Sandbox{}, false},
	{MethodScopeEnd, "Removes a scope's sandbox.", ScopeParams{}, KillResult{}, false},
	{MethodVolumeCreate, "Makes an empty volume, which sandboxes mount by its name and which outlives them.",
		VolumeParams{}, Volume{}, false},
	{MethodVolumeList, "Lists the caller's volumes by name.", VolumeListParams{}, Volumes{}, false},
	{MethodVolumeRemove, "Removes a volume, which no sandbox may have mounted, with all that is in it.", VolumeParams{},
		Empty{}, false},
	{MethodCodeRun, "Runs a piece of code, in an interpreter that is kept for the next or in one of its own.",
		CodeParams{}, CodeResult{}, false},
	{MethodCodeContexts, "Lists the interpreters that are kept in a sandbox.", SandboxParams{}, CodeContexts{}, false},
	{MethodCodeEnd, "Ends an interpreter that is kept; what it knows is gone.", CodeContextParams{}, Empty{}, false},
	{MethodCodeScan, "Looks through code for what reaches beyond the program, without running it; a hint, not a wall.",
		ScanParams{}, ScanResult{}, false},
	{MethodToolsList, "Lists the tools that a language model can work with, with their schemas.", Empty{},
		ToolList{}, false},
	{MethodToolsCall, "Calls a tool in a sandbox.", ToolCallParams{}, ToolResult{}, false},
	{MethodExecDecide, "Decides by the mode whether a command is to run in a sandbox or, by the caller, on the host; records it.", DecideParams{}, Decision{}, false},
	{MethodExecHostEnd, "Records how a command on the host has ended, as its caller says.", HostEndParams{},
		Empty{}, false},
	{MethodExecRun, "Runs a command in a sandbox and returns when it has ended.", ExecParams{}, ExecResult{}, true},
	{MethodExecStart, "Starts a command in a sandbox and returns when it runs; its output is kept.", ExecParams{},
		StartResult{}, true},
	{MethodExecWait, "Waits until a command has ended; never kills it.", WaitParams{}, ExecResult{}, false},
	{MethodExecRead, "Reads output of a command from any offset, also after its end.", ReadParams{}, Chunk{}, false},
	{MethodExecAttach, "Sends a command's output from any offset as it comes, in exec.output notifications, and its end in exec.exited.", AttachParams{}, Attached{}, false},
	{MethodExecCredit, "Lets an attachment send more bytes.", CreditParams{}, Empty{}, false},
	{MethodExecDetach, "Ends an attachment; the command goes on.", DetachParams{}, Empty{}, false},
	{MethodExecWrite, "Writes to a command's stdin.", WriteParams{}, Empty{}, false},
	{MethodExecEOF, "Closes a command's stdin.", ExecRef{}, Empty{}, false},
	{MethodExecKill, "Kills a command and everything it started; of one that has ended, what it left behind.",
		ExecRef{}, ExecResult{}, false},
	{MethodExecList, "Lists the commands of a sandbox that run or ended lately, oldest first.", SandboxParams{},
		Execs{}, false},
	{MethodExecGet, "Returns the record of one command.", ExecRef{}, Exec{}, false},
	{MethodExecSignal, "Sends a signal to a running command.", SignalParams{}, Empty{}, false},
	{MethodExecResize, "Sets the size of a command's terminal.", ResizeParams{}, Empty{}, false},
	{MethodShellOpen, "Opens a shell in a sandbox, whose state lasts from command to command.", ShellParams{},
		Shell{}, false},
	{MethodShellRun, "Runs a command in a shell and returns when it has ended.", ShellRunParams{},
		ShellResult{}, false},
	{MethodShellClose, "Kills a shell and everything it started.", ShellRef{}, ExecResult{}, false},
	{MethodShellList, "Lists the shells of a sandbox, oldest first.", SandboxParams{}, Shells{}, false},
	{MethodFSRead, "Reads a piece of a file.", FileReadParams{}, FileChunk{}, true},
	{MethodFSWrite, "Writes a file, by default in a single step.", FileWriteParams{}, FileWritten{}, true},
	{MethodFSList, "Lists a folder, and what is below it if asked to.", FileListParams{}, FileList{}, false},
	{MethodFSStat, "Describes one file.", FileStatParams{}, File{}, false},
	{MethodFSMkdir, "Makes a folder.", FileMkdirParams{}, FileMade{}, false},
	{MethodFSRemove, "Removes a file or a folder.", FileRemoveParams{}, FileRemoved{}, false},
	{MethodFSMove, "Renames a file or a folder.", FileMoveParams{}, Empty{}, false},
	{MethodFSPack, "Writes a file or a folder into a pipe, as a tar archive.", FilePackParams{}, FileArchive{}, true},
	{MethodFSUnpack, "Unpacks a tar archive from a pipe into a folder.", FileUnpackParams{}, FileArchive{}, true},
	{MethodFSSync, "Tells which files of the caller's folder one in the sandbox lacks, and removes what it has too much.", FileSyncParams{}, FileSynced{}, false},
	{MethodNetworkGet, "Says what a sandbox may reach, what it was refused, and in mode learn what it would need.",
		SandboxParams{}, Network{}, false},
	{MethodNetworkUpdate,
		"Changes what a running sandbox may reach, and closes the connections that it may not have any more.",
		NetUpdateParams{}, Network{}, false},
	{MethodNetworkCheck, "Says what a policy does with a name, an address or a port, and which rule says so.",
		NetCheckParams{}, NetVerdict{}, false},
	{MethodNetworkAsks, "Lists the connections that wait for an answer, and what is always answered the same.", Empty{},
		Asks{}, false},
	{MethodNetworkAnswer, "Answers the question whether a connection that is held may be made.", AnswerParams{},
		Empty{}, false},
	{MethodNetworkForget, "Forgets what was to be allowed always; policies in force stay as they are.", ForgetParams{},
		Asks{}, false},
	{MethodPortExpose, "Lets programs of the host connect to a TCP port in a sandbox, also to a server on its loopback.", PortExposeParams{}, Port{}, true},
	{MethodPortList, "Lists the ports of one sandbox, or of all, that the host reaches.", PortListParams{},
		Ports{}, false},
	{MethodPortClose, "Ends what is exposed of a port, with its connections.", PortCloseParams{}, Ports{}, false},
	{MethodEvents, "Sends what happens in the daemon, and what has happened from a number on, in event notifications.",
		SubscribeParams{}, Subscribed{}, false},
	{MethodEventsCredit, "Lets a subscription with credit send more events.", EventCreditParams{}, Empty{}, false},
	{MethodEventsEnd, "Ends a subscription.", SubscriptionParams{}, Empty{}, false},
	{MethodAuditRead, "Reads the records of what was done with a sandbox, also of one that was removed.",
		AuditReadParams{}, AuditRecords{}, false},
	{MethodAuditVerify, "Checks that no record of a sandbox's audit log was changed, removed or moved.",
		AuditVerifyParams{}, AuditVerified{}, false},
	{MethodAuditHead, "Returns number and hash of the last record, to be kept elsewhere.", SandboxParams{},
		AuditHead{}, false},
	{MethodAuditList, "Lists the audit logs that are kept.", Empty{}, AuditLogs{}, false},
	{MethodImagePull, "Fetches an image into the store.", PullParams{}, Image{}, false},
	{MethodImageList, "Lists the images in the store.", Empty{}, Images{}, false},
	{MethodImageInspect, "Returns one image's record.", RefParams{}, Image{}, false},
	{MethodImageRemove, "Removes an image reference and the layers that nothing else needs.", RefParams{},
		Empty{}, false},
	{MethodImageImport, "Makes an image of an archive, or of a root file system as tar, that comes as a file or through a pipe.", ImportParams{}, Image{}, true},
	{MethodImageCommit, "Makes an image of what a sandbox has written and the image below; the sandbox stands still meanwhile.", CommitParams{}, Committed{}, false},
	{MethodImageExport, "Writes an image into a file or a pipe: as an archive, or its files alone as one root file system.", ExportParams{}, Exported{}, true},
	{MethodImagePush, "Sends an image to a registry.", PushParams{}, Pushed{}, false},
	{MethodImageLogin, "Asks a registry whether it knows a user and the password and, if so, stores them for pulls and pushes.", LoginParams{}, Login{}, false},
	{MethodImageLogout, "Removes the credentials of a registry.", RegistryParams{}, Empty{}, false},
	{MethodImageGetLogin, "Says as whom pulls from a registry come; never the password.", RegistryParams{},
		Login{}, false},
	{MethodImageTag, "Gives an image one more name.", TagParams{}, Image{}, false},
	{MethodImageDu, "Says what images take on disk.", Empty{}, ImageDisk{}, false},
	{MethodImagePrune, "Removes layers that no image has, and if asked to images that no sandbox uses.", PruneParams{},
		Pruned{}, false},
	{MethodImageVerify, "Reads the files of images and compares them with what was unpacked; fetches damaged layers again if asked to.", VerifyParams{}, Verified{}, false},
	{MethodDiscover, "Returns the OpenRPC document of this build.", Empty{}, map[string]any(nil), false},
}

// Empty is the params or result of a method that has none.
type Empty struct{}

// CreateParams are sandbox.create's params: a Spec, the fds that ride along and
// what the caller wants to hear meanwhile.
type CreateParams struct {
	Spec
	FDs      int  `json:"fds,omitempty"`
	Progress bool `json:"progress,omitempty"`
	// Debug asks for Sandbox.Debug in the answer.
	Debug bool `json:"debug,omitempty"`
	// Break stops the creation on its way; only with Debug.
	Break *Break `json:"break,omitempty"`
}

// SandboxParams name one sandbox by id or name.
type SandboxParams struct {
	Sandbox string `json:"sandbox"`
}

// ListParams are sandbox.list's params: only sandboxes with all these labels.
type ListParams struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// SandboxList is sandbox.list's result.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// KillResult lists the host pids that a kill ended.
type KillResult struct {
	Killed []int `json:"killed"`
}
