// Made by make generate of rpc.discover: change runtime/api.

import type { CallOptions } from "./connection.js";
import type * as t from "./types.js";

type Call = (method: string, params: object, options?: CallOptions) => Promise<any>;

/**
 * The daemon's methods, a function each, by the protocol's own names. docs/rpc.md describes them. Params that are about
 * file descriptors are of no use here: Node cannot send any.
 */
export class Rpc {
  readonly #call: Call;

  constructor(call: Call) {
    this.#call = call;
  }

  readonly system = {
    /** Says which daemon answers, what isolation its sandboxes get and where it keeps things. */
    info: (options?: CallOptions): Promise<t.Info> =>
      this.#call("system.info", {}, options),
    /**
     * Shows a client's token, on which the other calls of the connection depend where the configuration names tokens.
     */
    authenticate: (params: t.SystemAuthenticateParams, options?: CallOptions): Promise<t.Authenticated> =>
      this.#call("system.authenticate", params, options),
    /** Probes what this machine offers and how to get what is missing. */
    doctor: (options?: CallOptions): Promise<t.Doctor> =>
      this.#call("system.doctor", {}, options),
    /**
     * Ends the daemon, with or without its sandboxes. It answers when the daemon has agreed; the end of the connection
     * tells when it is gone.
     */
    shutdown: (params: t.SystemShutdownParams = {}, options?: CallOptions): Promise<t.Empty> =>
      this.#call("system.shutdown", params, options),
    /** Sweeps what a killed daemon left behind. */
    gc: (options?: CallOptions): Promise<t.GCResult> =>
      this.#call("system.gc", {}, options),
    /** Reads the configuration file again, for what starts from then on. */
    reload: (options?: CallOptions): Promise<t.Empty> =>
      this.#call("system.reload", {}, options),
  };

  readonly sandbox = {
    /** Creates a sandbox and returns when it is running. */
    create: (params: t.SandboxCreateParams = {}, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.create", params, options),
    /**
     * Creates a sandbox, or takes one out of a pool, runs a command in it, removes it, and returns when the command has
     * ended.
     */
    run: (params: t.SandboxRunParams, options?: CallOptions): Promise<t.RunResult> =>
      this.#call("sandbox.run", params, options),
    /** Returns the record of one sandbox. */
    get: (params: t.SandboxGetParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.get", params, options),
    /** Lists the sandboxes, oldest first. */
    list: (params: t.SandboxListParams = {}, options?: CallOptions): Promise<t.SandboxList> =>
      this.#call("sandbox.list", params, options),
    /**
     * Ties a sandbox to this connection, whose creator's was lost when the daemon was killed. It must come within ten
     * seconds of the restart.
     */
    claim: (params: t.SandboxClaimParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.claim", params, options),
    /** Kills every process of a sandbox; its record and files stay. */
    kill: (params: t.SandboxKillParams, options?: CallOptions): Promise<t.KillResult> =>
      this.#call("sandbox.kill", params, options),
    /** Kills a sandbox and deletes its record and files. */
    remove: (params: t.SandboxRemoveParams, options?: CallOptions): Promise<t.KillResult> =>
      this.#call("sandbox.remove", params, options),
    /** Stops the processes of a sandbox where they are, and the clocks of its commands. */
    pause: (params: t.SandboxPauseParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.pause", params, options),
    /** Lets a paused sandbox go on; starting a command in it, or using its files, does so too. */
    resume: (params: t.SandboxResumeParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.resume", params, options),
    /** Changes limits of a running sandbox. */
    update: (params: t.SandboxUpdateParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.update", params, options),
    /** Says what a sandbox uses, and has used, of CPU time, memory, processes and disks. */
    stats: (params: t.SandboxStatsParams, options?: CallOptions): Promise<t.Stats> =>
      this.#call("sandbox.stats", params, options),
    /** Lists the processes of a sandbox. */
    processes: (params: t.SandboxProcessesParams, options?: CallOptions): Promise<t.Processes> =>
      this.#call("sandbox.processes", params, options),
    /**
     * Ends the processes of a sandbox and keeps its files and what it is, also beyond the daemon, for sandbox.start.
     */
    stop: (params: t.SandboxStopParams, options?: CallOptions): Promise<t.StopResult> =>
      this.#call("sandbox.stop", params, options),
    /** Starts a sandbox that was stopped, under its id and name, with its files. */
    start: (params: t.SandboxStartParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("sandbox.start", params, options),
    /** Makes sandboxes that go on from the files of another, or of a snapshot, each for itself. */
    fork: (params: t.SandboxForkParams = {}, options?: CallOptions): Promise<t.Forked> =>
      this.#call("sandbox.fork", params, options),
  };

  readonly snapshot = {
    /** Keeps what the files of a sandbox are now, and what it is; the sandbox stands still meanwhile. */
    create: (params: t.SnapshotCreateParams, options?: CallOptions): Promise<t.Snapshot> =>
      this.#call("snapshot.create", params, options),
    /** Lists the caller's snapshots, oldest first. */
    list: (params: t.SnapshotListParams = {}, options?: CallOptions): Promise<t.Snapshots> =>
      this.#call("snapshot.list", params, options),
    /**
     * Lists which files of a sandbox are others than in a snapshot, now or in another snapshot, as a diff if asked to.
     */
    diff: (params: t.SnapshotDiffParams, options?: CallOptions): Promise<t.SnapshotDiff> =>
      this.#call("snapshot.diff", params, options),
    /** Gives a sandbox the files that it had when a snapshot was taken of it; its processes end. */
    restore: (params: t.SnapshotRestoreParams, options?: CallOptions): Promise<t.SnapshotRestored> =>
      this.#call("snapshot.restore", params, options),
    /** Removes a snapshot; what was forked from it goes on. */
    remove: (params: t.SnapshotRemoveParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("snapshot.remove", params, options),
  };

  readonly checkpoint = {
    /** Lists what the files of a sandbox were before its last calls, oldest first. */
    list: (params: t.CheckpointListParams, options?: CallOptions): Promise<t.Checkpoints> =>
      this.#call("checkpoint.list", params, options),
    /** Gives a sandbox the files that it had before a call; its processes end. */
    restore: (params: t.CheckpointRestoreParams, options?: CallOptions): Promise<t.CheckpointRestored> =>
      this.#call("checkpoint.restore", params, options),
  };

  readonly template = {
    /**
     * Keeps what sandboxes can be made by that name it: an image or another template, limits, a network policy, steps
     * that are run once, what is started in each sandbox and waited for. It builds nothing. The fd that context refers
     * to is the read end of a pipe with the archive of what steps copy.
     */
    create: (params: t.TemplateCreateParams, options?: CallOptions): Promise<t.Template> =>
      this.#call("template.create", params, options),
    /** Lists the templates, also those that come with hutch. */
    list: (options?: CallOptions): Promise<t.Templates> =>
      this.#call("template.list", {}, options),
    /** Describes a template, and what came of its steps. */
    inspect: (params: t.TemplateInspectParams, options?: CallOptions): Promise<t.Template> =>
      this.#call("template.inspect", params, options),
    /**
     * Runs the steps of a template in a sandbox and keeps what they have written, unless nothing has changed. With
     * progress, what they write is told as it comes.
     */
    build: (params: t.TemplateBuildParams, options?: CallOptions): Promise<t.TemplateBuildResult> =>
      this.#call("template.build", params, options),
    /** Removes a template, with what its steps have made; sandboxes of it go on. */
    remove: (params: t.TemplateRemoveParams, options?: CallOptions): Promise<t.TemplateRemoved> =>
      this.#call("template.remove", params, options),
  };

  readonly pool = {
    /** Makes a pool of sandboxes that wait for whoever asks, and returns when the first does. */
    create: (params: t.PoolCreateParams, options?: CallOptions): Promise<t.Pool> =>
      this.#call("pool.create", params, options),
    /** Takes a sandbox out of a pool; null when none is ready within wait_ms. */
    acquire: (params: t.PoolAcquireParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("pool.acquire", params, options),
    /** Destroys a sandbox that was acquired from a pool. */
    release: (params: t.PoolReleaseParams, options?: CallOptions): Promise<t.KillResult> =>
      this.#call("pool.release", params, options),
    /** Says how a pool is filled. */
    status: (params: t.PoolStatusParams, options?: CallOptions): Promise<t.Pool> =>
      this.#call("pool.status", params, options),
    /** Lists the pools by name. */
    list: (options?: CallOptions): Promise<t.Pools> =>
      this.#call("pool.list", {}, options),
    /** Changes how many sandboxes wait in a pool. */
    resize: (params: t.PoolResizeParams, options?: CallOptions): Promise<t.Pool> =>
      this.#call("pool.resize", params, options),
    /** Removes a pool with what waits in it; what was acquired goes on. */
    remove: (params: t.PoolRemoveParams, options?: CallOptions): Promise<t.PoolRemoved> =>
      this.#call("pool.remove", params, options),
  };

  readonly workspace = {
    /** Lists what a sandbox has changed in its workspace of mode overlay, as a diff if asked to. */
    diff: (params: t.WorkspaceDiffParams, options?: CallOptions): Promise<t.WorkspaceDiff> =>
      this.#call("workspace.diff", params, options),
    /** Brings what a sandbox has changed into the user's folder. */
    apply: (params: t.WorkspaceApplyParams, options?: CallOptions): Promise<t.WorkspaceApplied> =>
      this.#call("workspace.apply", params, options),
    /** Makes what a sandbox has changed in its workspace as it is in the user's folder. */
    discard: (params: t.WorkspaceDiscardParams, options?: CallOptions): Promise<t.WorkspaceDiscarded> =>
      this.#call("workspace.discard", params, options),
  };

  readonly scope = {
    /** Lists the scopes that have a sandbox, oldest first. */
    list: (options?: CallOptions): Promise<t.Scopes> =>
      this.#call("scope.list", {}, options),
    /** Replaces a scope's sandbox by a new one, made as it was. */
    reset: (params: t.ScopeResetParams, options?: CallOptions): Promise<t.Sandbox> =>
      this.#call("scope.reset", params, options),
    /** Removes a scope's sandbox. */
    end: (params: t.ScopeEndParams, options?: CallOptions): Promise<t.KillResult> =>
      this.#call("scope.end", params, options),
  };

  readonly volume = {
    /**
     * Makes an empty volume, which sandboxes mount by its name and which outlives them. One that a sandbox mounts with
     * mode rw is made when it is missing.
     */
    create: (params: t.VolumeCreateParams, options?: CallOptions): Promise<t.Volume> =>
      this.#call("volume.create", params, options),
    /** Lists the caller's volumes by name. */
    list: (params: t.VolumeListParams = {}, options?: CallOptions): Promise<t.Volumes> =>
      this.#call("volume.list", params, options),
    /** Removes a volume, which no sandbox may have mounted, with all that is in it. */
    remove: (params: t.VolumeRemoveParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("volume.remove", params, options),
  };

  readonly code = {
    /**
     * Runs a piece of code, in an interpreter that is kept for the next or in one of its own. A call that is cancelled
     * interrupts the code.
     */
    run: (params: t.CodeRunParams, options?: CallOptions): Promise<t.CodeResult> =>
      this.#call("code.run", params, options),
    /** Lists the interpreters that are kept in a sandbox. */
    contexts: (params: t.CodeContextsParams, options?: CallOptions): Promise<t.CodeContexts> =>
      this.#call("code.contexts", params, options),
    /** Ends an interpreter that is kept; what it knows is gone. */
    end_context: (params: t.CodeEndContextParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("code.end_context", params, options),
    /** Looks through code for what reaches beyond the program, without running it; a hint, not a wall. */
    scan: (params: t.CodeScanParams, options?: CallOptions): Promise<t.ScanResult> =>
      this.#call("code.scan", params, options),
  };

  readonly tools = {
    /** Lists the tools that a language model can work with, with their schemas. */
    list: (options?: CallOptions): Promise<t.ToolList> =>
      this.#call("tools.list", {}, options),
    /** Calls a tool in a sandbox. */
    call: (params: t.ToolsCallParams, options?: CallOptions): Promise<t.ToolResult> =>
      this.#call("tools.call", params, options),
  };

  readonly exec = {
    /**
     * Decides by the mode whether a command is to run in a sandbox or, by the caller, on the host; records it. Of a
     * command for the host, the caller reports the end by exec.record_host, on the same connection.
     */
    decide: (params: t.ExecDecideParams = {}, options?: CallOptions): Promise<t.Decision> =>
      this.#call("exec.decide", params, options),
    /** Records how a command on the host has ended, as its caller says. */
    record_host: (params: t.ExecRecordHostParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.record_host", params, options),
    /**
     * Runs a command in a sandbox and returns when it has ended. A command that fails is no error: see verdict and
     * exit_code.
     */
    run: (params: t.ExecRunParams, options?: CallOptions): Promise<t.ExecResult> =>
      this.#call("exec.run", params, options),
    /** Starts a command in a sandbox and returns when it runs; its output is kept. */
    start: (params: t.ExecStartParams, options?: CallOptions): Promise<t.StartResult> =>
      this.#call("exec.start", params, options),
    /** Waits until a command has ended; never kills it. When wait_s is over it fails with deadline_exceeded. */
    wait: (params: t.ExecWaitParams, options?: CallOptions): Promise<t.ExecResult> =>
      this.#call("exec.wait", params, options),
    /** Reads output of a command from any offset, also after its end. */
    read: (params: t.ExecReadParams, options?: CallOptions): Promise<t.Chunk> =>
      this.#call("exec.read", params, options),
    /**
     * Sends a command's output from any offset as it comes, in exec.output notifications, and its end in exec.exited.
     */
    attach: (params: t.ExecAttachParams, options?: CallOptions): Promise<t.Attached> =>
      this.#call("exec.attach", params, options),
    /** Lets an attachment send more bytes. */
    credit: (params: t.ExecCreditParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.credit", params, options),
    /** Ends an attachment; the command goes on. */
    detach: (params: t.ExecDetachParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.detach", params, options),
    /** Writes to a command's stdin. It answers when all of it is in the pipe. */
    write: (params: t.ExecWriteParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.write", params, options),
    /** Closes a command's stdin. */
    close_stdin: (params: t.ExecCloseStdinParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.close_stdin", params, options),
    /** Kills a command and everything it started; of one that has ended, what it left behind. */
    kill: (params: t.ExecKillParams, options?: CallOptions): Promise<t.ExecResult> =>
      this.#call("exec.kill", params, options),
    /** Lists the commands of a sandbox that run or ended lately, oldest first. */
    list: (params: t.ExecListParams, options?: CallOptions): Promise<t.Execs> =>
      this.#call("exec.list", params, options),
    /** Returns the record of one command. */
    get: (params: t.ExecGetParams, options?: CallOptions): Promise<t.Exec> =>
      this.#call("exec.get", params, options),
    /** Sends a signal to a running command. */
    signal: (params: t.ExecSignalParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.signal", params, options),
    /** Sets the size of a command's terminal. */
    resize: (params: t.ExecResizeParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("exec.resize", params, options),
  };

  readonly shell = {
    /**
     * Opens a shell in a sandbox, whose state lasts from command to command. It lives until shell.close, or as long as
     * the sandbox.
     */
    open: (params: t.ShellOpenParams, options?: CallOptions): Promise<t.Shell> =>
      this.#call("shell.open", params, options),
    /**
     * Runs a command in a shell and returns when it has ended. A command that fails is no error. When the call is
     * cancelled, the command is killed, and the shell is as it was before.
     */
    run: (params: t.ShellRunParams, options?: CallOptions): Promise<t.ShellResult> =>
      this.#call("shell.run", params, options),
    /** Kills a shell and everything it started. */
    close: (params: t.ShellCloseParams, options?: CallOptions): Promise<t.ExecResult> =>
      this.#call("shell.close", params, options),
    /** Lists the shells of a sandbox, oldest first. */
    list: (params: t.ShellListParams, options?: CallOptions): Promise<t.Shells> =>
      this.#call("shell.list", params, options),
  };

  readonly fs = {
    /** Reads a piece of a file. Into a pipe, whose write end is fd, the whole file goes by default. */
    read: (params: t.FsReadParams, options?: CallOptions): Promise<t.FileChunk> =>
      this.#call("fs.read", params, options),
    /**
     * Writes a file, by default in a single step. Out of a pipe, whose read end is fd, comes all until its end; with
     * size_bytes, a writer that dies before leaves the old file.
     */
    write: (params: t.FsWriteParams, options?: CallOptions): Promise<t.FileWritten> =>
      this.#call("fs.write", params, options),
    /** Lists a folder, and what is below it if asked to. */
    list: (params: t.FsListParams, options?: CallOptions): Promise<t.FileList> =>
      this.#call("fs.list", params, options),
    /** Describes one file. */
    stat: (params: t.FsStatParams, options?: CallOptions): Promise<t.File> =>
      this.#call("fs.stat", params, options),
    /** Makes a folder. */
    mkdir: (params: t.FsMkdirParams, options?: CallOptions): Promise<t.FileMade> =>
      this.#call("fs.mkdir", params, options),
    /** Removes a file or a folder. */
    remove: (params: t.FsRemoveParams, options?: CallOptions): Promise<t.FileRemoved> =>
      this.#call("fs.remove", params, options),
    /** Renames a file or a folder. */
    move: (params: t.FsMoveParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("fs.move", params, options),
    /**
     * Writes a file or a folder into a pipe, as a tar archive. What comes out is as hostile as the sandbox: whoever
     * unpacks it on the host must refuse names and links that lead out.
     */
    pack: (params: t.FsPackParams, options?: CallOptions): Promise<t.FileArchive> =>
      this.#call("fs.pack", params, options),
    /** Unpacks a tar archive from a pipe into a folder. */
    unpack: (params: t.FsUnpackParams, options?: CallOptions): Promise<t.FileArchive> =>
      this.#call("fs.unpack", params, options),
    /**
     * Tells which files of the caller's folder one in the sandbox lacks, and removes what it has too much. fs.unpack
     * brings them.
     */
    sync: (params: t.FsSyncParams, options?: CallOptions): Promise<t.FileSynced> =>
      this.#call("fs.sync", params, options),
  };

  readonly network = {
    /** Says what a sandbox may reach, what it was refused, and in mode learn what it would need. */
    get: (params: t.NetworkGetParams, options?: CallOptions): Promise<t.Network> =>
      this.#call("network.get", params, options),
    /** Changes what a running sandbox may reach, and closes the connections that it may not have any more. */
    update: (params: t.NetworkUpdateParams, options?: CallOptions): Promise<t.Network> =>
      this.#call("network.update", params, options),
    /** Says what a policy does with a name, an address or a port, and which rule says so. */
    check: (params: t.NetworkCheckParams = {}, options?: CallOptions): Promise<t.NetVerdict> =>
      this.#call("network.check", params, options),
    /** Lists the connections that wait for an answer, and what is always answered the same. */
    asks: (options?: CallOptions): Promise<t.Asks> =>
      this.#call("network.asks", {}, options),
    /** Answers the question whether a connection that is held may be made. */
    answer: (params: t.NetworkAnswerParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("network.answer", params, options),
    /** Forgets what was to be allowed always; policies in force stay as they are. */
    forget: (params: t.NetworkForgetParams, options?: CallOptions): Promise<t.Asks> =>
      this.#call("network.forget", params, options),
  };

  readonly port = {
    /**
     * Lets programs of the host connect to a TCP port in a sandbox, also to a server on its loopback. A listener is a
     * socket of the caller's that listens already.
     */
    expose: (params: t.PortExposeParams, options?: CallOptions): Promise<t.Port> =>
      this.#call("port.expose", params, options),
    /** Lists the ports of one sandbox, or of all, that the host reaches. */
    list: (params: t.PortListParams = {}, options?: CallOptions): Promise<t.Ports> =>
      this.#call("port.list", params, options),
    /** Ends what is exposed of a port, with its connections. */
    close: (params: t.PortCloseParams, options?: CallOptions): Promise<t.Ports> =>
      this.#call("port.close", params, options),
  };

  readonly events = {
    /** Sends what happens in the daemon, and what has happened from a number on, in event notifications. */
    subscribe: (params: t.EventsSubscribeParams = {}, options?: CallOptions): Promise<t.Subscribed> =>
      this.#call("events.subscribe", params, options),
    /** Lets a subscription with credit send more events. */
    credit: (params: t.EventsCreditParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("events.credit", params, options),
    /** Ends a subscription. */
    unsubscribe: (params: t.EventsUnsubscribeParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("events.unsubscribe", params, options),
  };

  readonly audit = {
    /** Reads the records of what was done with a sandbox, also of one that was removed. */
    read: (params: t.AuditReadParams, options?: CallOptions): Promise<t.AuditRecords> =>
      this.#call("audit.read", params, options),
    /**
     * Checks that no record of a sandbox's audit log was changed, removed or moved. A log that was tampered with is no
     * error: ok is false.
     */
    verify: (params: t.AuditVerifyParams, options?: CallOptions): Promise<t.AuditVerified> =>
      this.#call("audit.verify", params, options),
    /** Returns number and hash of the last record, to be kept elsewhere. */
    head: (params: t.AuditHeadParams, options?: CallOptions): Promise<t.AuditHead> =>
      this.#call("audit.head", params, options),
    /** Lists the audit logs that are kept. */
    list: (options?: CallOptions): Promise<t.AuditLogs> =>
      this.#call("audit.list", {}, options),
  };

  readonly image = {
    /** Fetches an image into the store. */
    pull: (params: t.ImagePullParams, options?: CallOptions): Promise<t.Image> =>
      this.#call("image.pull", params, options),
    /** Lists the images in the store. */
    list: (options?: CallOptions): Promise<t.Images> =>
      this.#call("image.list", {}, options),
    /** Returns one image's record. */
    inspect: (params: t.ImageInspectParams, options?: CallOptions): Promise<t.Image> =>
      this.#call("image.inspect", params, options),
    /** Removes an image reference and the layers that nothing else needs. */
    remove: (params: t.ImageRemoveParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("image.remove", params, options),
    /**
     * Makes an image of an archive, or of a root file system as tar, that comes as a file or through a pipe. The fd is
     * a file, or the read end of a pipe that was made for the call.
     */
    import: (params: t.ImageImportParams, options?: CallOptions): Promise<t.Image> =>
      this.#call("image.import", params, options),
    /** Makes an image of what a sandbox has written and the image below; the sandbox stands still meanwhile. */
    commit: (params: t.ImageCommitParams, options?: CallOptions): Promise<t.Committed> =>
      this.#call("image.commit", params, options),
    /**
     * Writes an image into a file or a pipe: as an archive, or its files alone as one root file system. The fd is a
     * file, or the write end of a pipe that was made for the call.
     */
    export: (params: t.ImageExportParams, options?: CallOptions): Promise<t.Exported> =>
      this.#call("image.export", params, options),
    /** Sends an image to a registry. */
    push: (params: t.ImagePushParams, options?: CallOptions): Promise<t.Pushed> =>
      this.#call("image.push", params, options),
    /** Asks a registry whether it knows a user and the password and, if so, stores them for pulls and pushes. */
    login: (params: t.ImageLoginParams, options?: CallOptions): Promise<t.Login> =>
      this.#call("image.login", params, options),
    /** Removes the credentials of a registry. */
    logout: (params: t.ImageLogoutParams, options?: CallOptions): Promise<t.Empty> =>
      this.#call("image.logout", params, options),
    /** Says as whom pulls from a registry come; never the password. */
    get_login: (params: t.ImageGetLoginParams, options?: CallOptions): Promise<t.Login> =>
      this.#call("image.get_login", params, options),
    /** Gives an image one more name. */
    tag: (params: t.ImageTagParams, options?: CallOptions): Promise<t.Image> =>
      this.#call("image.tag", params, options),
    /** Says what images take on disk. */
    du: (options?: CallOptions): Promise<t.ImageDisk> =>
      this.#call("image.du", {}, options),
    /** Removes layers that no image has, and if asked to images that no sandbox uses. */
    prune: (params: t.ImagePruneParams = {}, options?: CallOptions): Promise<t.Pruned> =>
      this.#call("image.prune", params, options),
    /**
     * Reads the files of images and compares them with what was unpacked; fetches damaged layers again if asked to.
     * Damage is no error: see the status of each layer.
     */
    verify: (params: t.ImageVerifyParams = {}, options?: CallOptions): Promise<t.Verified> =>
      this.#call("image.verify", params, options),
  };

  readonly rpc = {
    /** Returns the OpenRPC document of this build. */
    discover: (options?: CallOptions): Promise<any> =>
      this.#call("rpc.discover", {}, options),
  };
}
