# Made by make generate of rpc.discover: change runtime/api.
from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, cast

from .. import types as t
from ._base import AsyncCaller


class AsyncRpc:
    """The daemon's methods, a function each: sandbox.create is sandbox_create. docs/rpc.md describes them.

    Params are given by name, None is none. Results are dictionaries (hutch.types). fds are file descriptors that ride
    on the request, to which its params refer by index; they stay the caller's.
    """

    def __init__(self, caller: AsyncCaller) -> None:
        self._call = caller.call

    async def system_info(
        self,
    ) -> t.Info:
        """Says which daemon answers, what isolation its sandboxes get and where it keeps things."""
        params: Dict[str, Any] = {}
        return cast("t.Info", await self._call("system.info", params))

    async def system_authenticate(
        self,
        *,
        token: str,
    ) -> t.Authenticated:
        """Shows a client's token, on which the other calls of the connection depend where the configuration names
        tokens.

        token: as it was given to the client"""
        params: Dict[str, Any] = {"token": token}
        return cast("t.Authenticated", await self._call("system.authenticate", params))

    async def system_doctor(
        self,
    ) -> t.Doctor:
        """Probes what this machine offers and how to get what is missing."""
        params: Dict[str, Any] = {}
        return cast("t.Doctor", await self._call("system.doctor", params))

    async def system_shutdown(
        self,
        *,
        mode: Optional[str] = None,
    ) -> t.Empty:
        """Ends the daemon, with or without its sandboxes. It answers when the daemon has agreed; the end of the
        connection tells when it is gone.

        mode: mode: "kill" ends every sandbox; with "keep", the default, they live on, and the daemon that
            is started next has them. Only a private daemon refuses to keep."""
        params: Dict[str, Any] = {"mode": mode}
        return cast("t.Empty", await self._call("system.shutdown", params))

    async def system_gc(
        self,
    ) -> t.GCResult:
        """Sweeps what a killed daemon left behind."""
        params: Dict[str, Any] = {}
        return cast("t.GCResult", await self._call("system.gc", params))

    async def system_reload(
        self,
    ) -> t.Empty:
        """Reads the configuration file again, for what starts from then on."""
        params: Dict[str, Any] = {}
        return cast("t.Empty", await self._call("system.reload", params))

    async def sandbox_create(
        self,
        *,
        image: Optional[str] = None,
        template: Optional[str] = None,
        name: Optional[str] = None,
        labels: Optional[Dict[str, str]] = None,
        env: Optional[Dict[str, str]] = None,
        workdir: Optional[str] = None,
        user: Optional[str] = None,
        hostname: Optional[str] = None,
        stop_signal: Optional[str] = None,
        workspace: Optional[t.Workspace] = None,
        mounts: Optional[List[t.Mount]] = None,
        limits: Optional[t.Limits] = None,
        network: Optional[t.NetPolicy] = None,
        writable_usr: Optional[bool] = None,
        read_only: Optional[bool] = None,
        hosts: Optional[List[t.Host]] = None,
        cap_drop: Optional[List[str]] = None,
        seccomp: Optional[Literal["default", "strict", "build", "browser", "custom"]] = None,
        seccomp_profile: Optional[str] = None,
        landlock: Optional[Literal["auto", "on", "off"]] = None,
        ids: Optional[Literal["auto", "emulate", "real"]] = None,
        apparmor: Optional[Literal["auto", "on"]] = None,
        scope: Optional[t.Scope] = None,
        undo: Optional[bool] = None,
        uploads: Optional[List[t.Upload]] = None,
        ttl_s: Optional[float] = None,
        idle_s: Optional[float] = None,
        ttl_action: Optional[Literal["remove", "pause", "stop", "kill"]] = None,
        idle_action: Optional[Literal["remove", "pause", "stop", "kill"]] = None,
        platform: Optional[str] = None,
        pull: Optional[Literal["missing", "always", "never"]] = None,
        keep: Optional[bool] = None,
        owner: Optional[str] = None,
        debug: Optional[bool] = None,
        break_: Optional[t.Break] = None,
        fds: Sequence[int] = (),
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Sandbox:
        """Creates a sandbox and returns when it is running.

        image: reference, or "host"
        template: instead of image
        name: unique among living sandboxes
        labels: names and values for people and tools, which hutch only stores
        env: for every exec, over the image's
        workdir: absolute; default: the image's, then /
        user: name|uid[:group|gid]; default: the image's, then 0:0
        hostname: default: the sandbox's id
        stop_signal: stop_signal asks commands to end when the sandbox is stopped: a name or number;
            default: the image's, then SIGTERM.
        workspace: the host folder that the sandbox works on, at /workspace.
        mounts: Mount is a further host folder or file, a volume, or a folder in memory.
        limits: limits bound a sandbox, or one exec in it
        network: NetPolicy says what a sandbox may reach
        writable_usr: writable_usr, with the image "host", lets the sandbox make, remove and replace files
            in /usr, which is the host's: the host sees nothing of it. Otherwise /usr can only be read. Files
            that are the host's cannot be changed in place.
        read_only: read_only makes everything read-only but the mounts that say otherwise, /dev/shm, and
            /tmp, /var/tmp and /run, which are then in memory.
        hosts: more lines of /etc/hosts
        cap_drop: capabilities that commands of uid 0 do not have, such as CHOWN or CAP_CHOWN, or ALL. Other
            users have none.
        seccomp: which system calls commands may make; default "default".
        seccomp_profile: seccomp_profile is, with "custom", the text of a profile as the OCI runtime
            specification has it, at most MaxSeccompProfile bytes. It can take away from "default" and not add.
        landlock: whether commands are in a landlock domain; default "auto".
        ids: who answers for users and groups that the sandbox does not have; default "auto".
        apparmor: whether the sandbox must be under hutch's own apparmor profile; default "auto".
        scope: scope names a sandbox by what it is for: sandbox.create returns the one that it has, or makes
            it.
        undo: undo keeps what the files were before each call of a tool that may change them, and of
            code.run, so that checkpoint.restore can take it back. It goes with workspaces in mode overlay or
            ro.
        uploads: written to the folder user-uploads in the working directory, also of a scope's sandbox that
            there is.
        ttl_s: life of the sandbox in seconds, 0 = no end
        idle_s: seconds without an exec that it may be, 0 = any
        ttl_action: What is done when they are over; default "remove".
        idle_action: LifeAction is what happens to a sandbox when ttl_s or idle_s is over.
        platform: os/arch[/variant] of the image; default: this machine's
        pull: default "missing"
        keep: keep keeps the sandbox's files on disk without the short cuts that only ephemeral sandboxes
            may take (overlay `volatile`).
        owner: owner says whose life the sandbox shares: "" is nobody's; "connection" removes it when the
            connection that created it is lost.
        debug: debug asks for Sandbox.Debug in the answer.
        break_: break stops the creation on its way; only with debug."""
        params: Dict[str, Any] = {"image": image, "template": template, "name": name, "labels": labels, "env": env, "workdir": workdir, "user": user, "hostname": hostname, "stop_signal": stop_signal, "workspace": workspace, "mounts": mounts, "limits": limits, "network": network, "writable_usr": writable_usr, "read_only": read_only, "hosts": hosts, "cap_drop": cap_drop, "seccomp": seccomp, "seccomp_profile": seccomp_profile, "landlock": landlock, "ids": ids, "apparmor": apparmor, "scope": scope, "undo": undo, "uploads": uploads, "ttl_s": ttl_s, "idle_s": idle_s, "ttl_action": ttl_action, "idle_action": idle_action, "platform": platform, "pull": pull, "keep": keep, "owner": owner, "debug": debug, "break": break_}
        return cast("t.Sandbox", await self._call("sandbox.create", params, fds=fds, on_progress=on_progress))

    async def sandbox_run(
        self,
        *,
        exec: t.ExecParams,
        sandbox: Optional[t.Spec] = None,
        acquire: Optional[t.AcquireParams] = None,
        entrypoint: Optional[str] = None,
        if_build: Optional[str] = None,
        if_state: Optional[str] = None,
        gate: Optional[int] = None,
        progress_gate: Optional[int] = None,
        fds: Sequence[int] = (),
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.RunResult:
        """Creates a sandbox, or takes one out of a pool, runs a command in it, removes it, and returns when the
        command has ended.

        exec: the command; its sandbox is not said. Argv follows the image's entrypoint, and without it and
            Command the image's own command runs.
        sandbox: Exactly one of sandbox and acquire says where the sandbox comes from. Its Owner is the
            connection.
        acquire: out of a pool
        entrypoint: instead of the image's entrypoint and Cmd, as docker has it; "" for none.
        if_build: if_build refuses the call, with failed_precondition, unless the daemon is of this build
            (Info.BuildID): a client that need not ask before.
        if_state: if_state refuses the call likewise, unless that is the daemon's state folder
            (Info.Paths.State).
        gate: the index of an eventfd(2), made with EFD_NONBLOCK, that the caller writes to when the command
            may start. The sandbox is made meanwhile: a caller that is to be ready for its command, to catch
            signals for example, need not be ready before it calls.
        progress_gate: the index of another one, for a caller that shows downloads: when it was told about
            one, the command starts only after this is written to as well. A notification of kind "image.ready"
            says that no more of them follow."""
        params: Dict[str, Any] = {"exec": exec, "sandbox": sandbox, "acquire": acquire, "entrypoint": entrypoint, "if_build": if_build, "if_state": if_state, "gate": gate, "progress_gate": progress_gate}
        return cast("t.RunResult", await self._call("sandbox.run", params, fds=fds, on_progress=on_progress))

    async def sandbox_get(
        self,
        *,
        sandbox: str,
    ) -> t.Sandbox:
        """Returns the record of one sandbox.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Sandbox", await self._call("sandbox.get", params))

    async def sandbox_list(
        self,
        *,
        labels: Optional[Dict[str, str]] = None,
    ) -> t.SandboxList:
        """Lists the sandboxes, oldest first.

        labels: only sandboxes that have all of them"""
        params: Dict[str, Any] = {"labels": labels}
        return cast("t.SandboxList", await self._call("sandbox.list", params))

    async def sandbox_claim(
        self,
        *,
        sandbox: str,
    ) -> t.Sandbox:
        """Ties a sandbox to this connection, whose creator's was lost when the daemon was killed. It must come
        within ten seconds of the restart.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Sandbox", await self._call("sandbox.claim", params))

    async def sandbox_kill(
        self,
        *,
        sandbox: str,
    ) -> t.KillResult:
        """Kills every process of a sandbox; its record and files stay.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.KillResult", await self._call("sandbox.kill", params))

    async def sandbox_remove(
        self,
        *,
        sandbox: str,
    ) -> t.KillResult:
        """Kills a sandbox and deletes its record and files.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.KillResult", await self._call("sandbox.remove", params))

    async def sandbox_pause(
        self,
        *,
        sandbox: str,
    ) -> t.Sandbox:
        """Stops the processes of a sandbox where they are, and the clocks of its commands.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Sandbox", await self._call("sandbox.pause", params))

    async def sandbox_resume(
        self,
        *,
        sandbox: str,
    ) -> t.Sandbox:
        """Lets a paused sandbox go on; starting a command in it, or using its files, does so too.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Sandbox", await self._call("sandbox.resume", params))

    async def sandbox_update(
        self,
        *,
        sandbox: str,
        limits: Optional[t.Limits] = None,
        ttl_s: Optional[float] = None,
    ) -> t.Sandbox:
        """Changes limits of a running sandbox.

        sandbox: id or name of the sandbox
        limits: limits bound a sandbox, or one exec in it
        ttl_s: how many seconds the sandbox lives from now on, 0 for no end."""
        params: Dict[str, Any] = {"sandbox": sandbox, "limits": limits, "ttl_s": ttl_s}
        return cast("t.Sandbox", await self._call("sandbox.update", params))

    async def sandbox_stats(
        self,
        *,
        sandbox: str,
    ) -> t.Stats:
        """Says what a sandbox uses, and has used, of CPU time, memory, processes and disks.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Stats", await self._call("sandbox.stats", params))

    async def sandbox_processes(
        self,
        *,
        sandbox: str,
    ) -> t.Processes:
        """Lists the processes of a sandbox.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Processes", await self._call("sandbox.processes", params))

    async def sandbox_stop(
        self,
        *,
        sandbox: str,
        timeout_s: Optional[float] = None,
    ) -> t.StopResult:
        """Ends the processes of a sandbox and keeps its files and what it is, also beyond the daemon, for
        sandbox.start.

        sandbox: id or name of the sandbox
        timeout_s: how long commands may take to end after the sandbox's stop signal, in seconds; default
            10, at most MaxStopS, 0 is none."""
        params: Dict[str, Any] = {"sandbox": sandbox, "timeout_s": timeout_s}
        return cast("t.StopResult", await self._call("sandbox.stop", params))

    async def sandbox_start(
        self,
        *,
        sandbox: str,
        folders: Optional[List[t.StartFolder]] = None,
        fds: Sequence[int] = (),
    ) -> t.Sandbox:
        """Starts a sandbox that was stopped, under its id and name, with its files.

        sandbox: id or name of the sandbox
        folders: folders hand over folders of the host's that the sandbox had mounted: by root, whose
            folders the daemon cannot open itself. Those that are not among them the daemon opens by their
            paths. Each must be the very folder that it was."""
        params: Dict[str, Any] = {"sandbox": sandbox, "folders": folders}
        return cast("t.Sandbox", await self._call("sandbox.start", params, fds=fds))

    async def sandbox_fork(
        self,
        *,
        sandbox: Optional[str] = None,
        snapshot: Optional[str] = None,
        count: Optional[int] = None,
        name: Optional[str] = None,
        labels: Optional[Dict[str, str]] = None,
        folders: Optional[List[t.StartFolder]] = None,
        fds: Sequence[int] = (),
    ) -> t.Forked:
        """Makes sandboxes that go on from the files of another, or of a snapshot, each for itself.

        sandbox: id or name of the sandbox
        snapshot: instead of sandbox
        count: 1 to MaxForks; default 1
        name: of a single one
        labels: over those of the sandbox
        folders: folders, for a single fork, are as of StartParams. Those of a sandbox that runs need not be
            handed over."""
        params: Dict[str, Any] = {"sandbox": sandbox, "snapshot": snapshot, "count": count, "name": name, "labels": labels, "folders": folders}
        return cast("t.Forked", await self._call("sandbox.fork", params, fds=fds))

    async def snapshot_create(
        self,
        *,
        sandbox: str,
        name: Optional[str] = None,
        labels: Optional[Dict[str, str]] = None,
    ) -> t.Snapshot:
        """Keeps what the files of a sandbox are now, and what it is; the sandbox stands still meanwhile.

        sandbox: id or name of the sandbox
        name: for people and for later calls; unique among a user's snapshots
        labels: names and values for people and tools, which hutch only stores"""
        params: Dict[str, Any] = {"sandbox": sandbox, "name": name, "labels": labels}
        return cast("t.Snapshot", await self._call("snapshot.create", params))

    async def snapshot_list(
        self,
        *,
        sandbox: Optional[str] = None,
    ) -> t.Snapshots:
        """Lists the caller's snapshots, oldest first.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Snapshots", await self._call("snapshot.list", params))

    async def snapshot_diff(
        self,
        *,
        snapshot: str,
        to: Optional[str] = None,
        offset: Optional[int] = None,
        limit: Optional[int] = None,
        unified: Optional[bool] = None,
        context: Optional[int] = None,
        max_bytes: Optional[int] = None,
    ) -> t.SnapshotDiff:
        """Lists which files of a sandbox are others than in a snapshot, now or in another snapshot, as a diff if
        asked to.

        snapshot: id or name of the snapshot
        to: another snapshot; default: the sandbox as it is now
        offset: offset leaves out so many changes, and limit bounds them: default DefaultSnapshotChanges, at
            most MaxSnapshotChanges.
        limit: offset leaves out so many changes, and limit bounds them: default DefaultSnapshotChanges, at
            most MaxSnapshotChanges.
        unified: unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the changes
            of this reply.
        context: unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the changes
            of this reply.
        max_bytes: unified, context and max_bytes are as of WorkspaceDiffParams; the text is about the
            changes of this reply."""
        params: Dict[str, Any] = {"snapshot": snapshot, "to": to, "offset": offset, "limit": limit, "unified": unified, "context": context, "max_bytes": max_bytes}
        return cast("t.SnapshotDiff", await self._call("snapshot.diff", params))

    async def snapshot_restore(
        self,
        *,
        snapshot: str,
        timeout_s: Optional[float] = None,
        folders: Optional[List[t.StartFolder]] = None,
        fds: Sequence[int] = (),
    ) -> t.SnapshotRestored:
        """Gives a sandbox the files that it had when a snapshot was taken of it; its processes end.

        snapshot: id or name of the snapshot
        timeout_s: as of StopParams; default 0
        folders: as of StartParams"""
        params: Dict[str, Any] = {"snapshot": snapshot, "timeout_s": timeout_s, "folders": folders}
        return cast("t.SnapshotRestored", await self._call("snapshot.restore", params, fds=fds))

    async def snapshot_remove(
        self,
        *,
        snapshot: str,
    ) -> t.Empty:
        """Removes a snapshot; what was forked from it goes on.

        snapshot: id or name of the snapshot"""
        params: Dict[str, Any] = {"snapshot": snapshot}
        return cast("t.Empty", await self._call("snapshot.remove", params))

    async def checkpoint_list(
        self,
        *,
        sandbox: str,
    ) -> t.Checkpoints:
        """Lists what the files of a sandbox were before its last calls, oldest first.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Checkpoints", await self._call("checkpoint.list", params))

    async def checkpoint_restore(
        self,
        *,
        sandbox: str,
        to_call: Optional[str] = None,
        timeout_s: Optional[float] = None,
        folders: Optional[List[t.StartFolder]] = None,
        fds: Sequence[int] = (),
    ) -> t.CheckpointRestored:
        """Gives a sandbox the files that it had before a call; its processes end.

        sandbox: id or name of the sandbox
        to_call: the call, or the id of its checkpoint; default: the last that was not undone.
        timeout_s: as of StopParams; default 0
        folders: as of StartParams; those of a sandbox that runs need not be handed over"""
        params: Dict[str, Any] = {"sandbox": sandbox, "to_call": to_call, "timeout_s": timeout_s, "folders": folders}
        return cast("t.CheckpointRestored", await self._call("checkpoint.restore", params, fds=fds))

    async def template_create(
        self,
        *,
        name: str,
        description: Optional[str] = None,
        image: Optional[str] = None,
        template: Optional[str] = None,
        platform: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        labels: Optional[Dict[str, str]] = None,
        pass_env: Optional[List[str]] = None,
        workdir: Optional[str] = None,
        user: Optional[str] = None,
        limits: Optional[t.Limits] = None,
        network: Optional[t.NetPolicy] = None,
        writable_usr: Optional[bool] = None,
        seccomp: Optional[Literal["default", "strict", "build", "browser", "custom"]] = None,
        steps: Optional[List[t.TemplateStep]] = None,
        build: Optional[t.TemplateBuild] = None,
        entrypoint: Optional[List[str]] = None,
        cmd: Optional[List[str]] = None,
        start: Optional[t.TemplateStart] = None,
        ready: Optional[t.TemplateReady] = None,
        ports: Optional[List[t.TemplatePort]] = None,
        pool_size: Optional[int] = None,
        replace: Optional[bool] = None,
        context: Optional[int] = None,
        fds: Sequence[int] = (),
    ) -> t.Template:
        """Keeps what sandboxes can be made by that name it: an image or another template, limits, a network
        policy, steps that are run once, what is started in each sandbox and waited for. It builds nothing. The
        fd that context refers to is the read end of a pipe with the archive of what steps copy.

        name: unique among templates
        description: for people
        image: Exactly one of image and template is what it begins with; of another template it has all that
            it does not say itself.
        template: Exactly one of image and template is what it begins with; of another template it has all
            that it does not say itself.
        platform: os/arch[/variant] of the image
        env: environment variables
        labels: names and values for people and tools, which hutch only stores
        pass_env: names of variables, such as an API key's, that `hutch agent` passes from its user's
            environment where they are set. Nothing else does.
        workdir: working directory of commands that name none
        user: name or uid, and group after a colon
        limits: limits bound a sandbox, or one exec in it
        network: NetPolicy says what a sandbox may reach
        writable_usr: writable_usr and seccomp are those of a sandbox; steps that install into /usr need the
            first with the image "host".
        seccomp: writable_usr and seccomp are those of a sandbox; steps that install into /usr need the
            first with the image "host".
        steps: run once, in a sandbox of what the template begins with; what they have written is below all
            sandboxes of it.
        build: TemplateBuild is what steps have and sandboxes of the template need not have.
        entrypoint: entrypoint and cmd are the command of `hutch run` without one, in the place of the
            image's. An empty list, [], is none.
        cmd: entrypoint and cmd are the command of `hutch run` without one, in the place of the image's. An
            empty list, [], is none.
        start: start runs in the background of each sandbox, ready is waited for before somebody gets it,
            and ports are then reached from the host.
        ready: start runs in the background of each sandbox, ready is waited for before somebody gets it,
            and ports are then reached from the host.
        ports: start runs in the background of each sandbox, ready is waited for before somebody gets it,
            and ports are then reached from the host.
        pool_size: how many sandboxes wait in a pool of the template's name, with all that is started in
            them ready.
        replace: replace puts it in the place of one of that name.
        context: the index of an fd: the read end of a pipe with a tar archive of the files that steps copy."""
        params: Dict[str, Any] = {"name": name, "description": description, "image": image, "template": template, "platform": platform, "env": env, "labels": labels, "pass_env": pass_env, "workdir": workdir, "user": user, "limits": limits, "network": network, "writable_usr": writable_usr, "seccomp": seccomp, "steps": steps, "build": build, "entrypoint": entrypoint, "cmd": cmd, "start": start, "ready": ready, "ports": ports, "pool_size": pool_size, "replace": replace, "context": context}
        return cast("t.Template", await self._call("template.create", params, fds=fds))

    async def template_list(
        self,
    ) -> t.Templates:
        """Lists the templates, also those that come with hutch."""
        params: Dict[str, Any] = {}
        return cast("t.Templates", await self._call("template.list", params))

    async def template_inspect(
        self,
        *,
        template: str,
    ) -> t.Template:
        """Describes a template, and what came of its steps.

        template: name of the template"""
        params: Dict[str, Any] = {"template": template}
        return cast("t.Template", await self._call("template.inspect", params))

    async def template_build(
        self,
        *,
        template: str,
        no_cache: Optional[bool] = None,
        pull: Optional[Literal["missing", "always", "never"]] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.TemplateBuildResult:
        """Runs the steps of a template in a sandbox and keeps what they have written, unless nothing has changed.
        With progress, what they write is told as it comes.

        template: name of the template
        no_cache: run the steps although nothing has changed
        pull: of the image that it begins with; default "missing" """
        params: Dict[str, Any] = {"template": template, "no_cache": no_cache, "pull": pull}
        return cast("t.TemplateBuildResult", await self._call("template.build", params, on_progress=on_progress))

    async def template_remove(
        self,
        *,
        template: str,
    ) -> t.TemplateRemoved:
        """Removes a template, with what its steps have made; sandboxes of it go on.

        template: name of the template"""
        params: Dict[str, Any] = {"template": template}
        return cast("t.TemplateRemoved", await self._call("template.remove", params))

    async def pool_create(
        self,
        *,
        name: str,
        size: int,
        sandbox: t.Spec,
        prewarm: Optional[bool] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Pool:
        """Makes a pool of sandboxes that wait for whoever asks, and returns when the first does.

        name: unique among pools
        size: how many wait, 1 to MaxPoolSize
        sandbox: what they are. name, Owner, Workspace and Mounts are not possible: they belong to one user
            of a sandbox, who gives the first two to pool.acquire. TTLS counts from then on.
        prewarm: prewarm makes them now, which is the default; false makes the first when somebody asks for
            it."""
        params: Dict[str, Any] = {"name": name, "size": size, "sandbox": sandbox, "prewarm": prewarm}
        return cast("t.Pool", await self._call("pool.create", params, on_progress=on_progress))

    async def pool_acquire(
        self,
        *,
        pool: str,
        wait_ms: Optional[float] = None,
        name: Optional[str] = None,
        labels: Optional[Dict[str, str]] = None,
        owner: Optional[str] = None,
    ) -> t.Sandbox:
        """Takes a sandbox out of a pool; null when none is ready within wait_ms.

        pool: name of the pool
        wait_ms: how long, in milliseconds, to wait for a sandbox when none is ready.
        name: of the sandbox, unique among living ones
        labels: beside those of the pool
        owner: see Spec.Owner"""
        params: Dict[str, Any] = {"pool": pool, "wait_ms": wait_ms, "name": name, "labels": labels, "owner": owner}
        return cast("t.Sandbox", await self._call("pool.acquire", params))

    async def pool_release(
        self,
        *,
        sandbox: str,
    ) -> t.KillResult:
        """Destroys a sandbox that was acquired from a pool.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.KillResult", await self._call("pool.release", params))

    async def pool_status(
        self,
        *,
        pool: str,
    ) -> t.Pool:
        """Says how a pool is filled.

        pool: name of the pool"""
        params: Dict[str, Any] = {"pool": pool}
        return cast("t.Pool", await self._call("pool.status", params))

    async def pool_list(
        self,
    ) -> t.Pools:
        """Lists the pools by name."""
        params: Dict[str, Any] = {}
        return cast("t.Pools", await self._call("pool.list", params))

    async def pool_resize(
        self,
        *,
        pool: str,
        size: int,
    ) -> t.Pool:
        """Changes how many sandboxes wait in a pool.

        pool: name of the pool
        size: how many are to wait"""
        params: Dict[str, Any] = {"pool": pool, "size": size}
        return cast("t.Pool", await self._call("pool.resize", params))

    async def pool_remove(
        self,
        *,
        pool: str,
    ) -> t.PoolRemoved:
        """Removes a pool with what waits in it; what was acquired goes on.

        pool: name of the pool"""
        params: Dict[str, Any] = {"pool": pool}
        return cast("t.PoolRemoved", await self._call("pool.remove", params))

    async def workspace_diff(
        self,
        *,
        sandbox: str,
        paths: Optional[List[str]] = None,
        exact: Optional[bool] = None,
        unified: Optional[bool] = None,
        context: Optional[int] = None,
        max_bytes: Optional[int] = None,
        after: Optional[str] = None,
    ) -> t.WorkspaceDiff:
        """Lists what a sandbox has changed in its workspace of mode overlay, as a diff if asked to.

        sandbox: id or name of the sandbox
        paths: paths, relative to the workspace, choose what is meant, each with all that is below it; none
            means all.
        exact: exact leaves out what is below paths.
        unified: unified asks for the text of the diff, as git writes it.
        context: how many lines around a change it has; default 3.
        max_bytes: max_bytes bounds the text; default and most DefaultDiffBytes.
        after: after asks for the changes that follow those of this path: Next of the page before. The text
            is that of the first page's call."""
        params: Dict[str, Any] = {"sandbox": sandbox, "paths": paths, "exact": exact, "unified": unified, "context": context, "max_bytes": max_bytes, "after": after}
        return cast("t.WorkspaceDiff", await self._call("workspace.diff", params))

    async def workspace_apply(
        self,
        *,
        sandbox: str,
        paths: Optional[List[str]] = None,
        exact: Optional[bool] = None,
        digest: Optional[str] = None,
        force: Optional[bool] = None,
        hunks: Optional[Dict[str, List[int]]] = None,
        context: Optional[int] = None,
        fd: Optional[int] = None,
        fds: Sequence[int] = (),
    ) -> t.WorkspaceApplied:
        """Brings what a sandbox has changed into the user's folder.

        sandbox: id or name of the sandbox
        paths: paths, relative to the workspace, choose what is meant, each with all that is below it; none
            means all.
        exact: exact leaves out what is below paths.
        digest: digest, where it is not "", must be that of the diff that was looked at.
        force: force applies also what somebody else has changed in the folder, whose changes are lost.
        hunks: hunks choose parts of modified text files: by path the numbers of its hunks, from 1, in a
            diff with context lines around each change (default 3). The rest of such a file stays as it is in
            the folder.
        context: hunks choose parts of modified text files: by path the numbers of its hunks, from 1, in a
            diff with context lines around each change (default 3). The rest of such a file stays as it is in
            the folder.
        fd: the index, in the request's fds, of the workspace's folder, for this call to write to. Root's
            folders are read-only for the daemon otherwise, which lives as another user and never gets more than
            it is handed."""
        params: Dict[str, Any] = {"sandbox": sandbox, "paths": paths, "exact": exact, "digest": digest, "force": force, "hunks": hunks, "context": context, "fd": fd}
        return cast("t.WorkspaceApplied", await self._call("workspace.apply", params, fds=fds))

    async def workspace_discard(
        self,
        *,
        sandbox: str,
        paths: Optional[List[str]] = None,
        exact: Optional[bool] = None,
    ) -> t.WorkspaceDiscarded:
        """Makes what a sandbox has changed in its workspace as it is in the user's folder.

        sandbox: id or name of the sandbox
        paths: paths, relative to the workspace, choose what is meant, each with all that is below it; none
            means all.
        exact: exact leaves out what is below paths."""
        params: Dict[str, Any] = {"sandbox": sandbox, "paths": paths, "exact": exact}
        return cast("t.WorkspaceDiscarded", await self._call("workspace.discard", params))

    async def scope_list(
        self,
    ) -> t.Scopes:
        """Lists the scopes that have a sandbox, oldest first."""
        params: Dict[str, Any] = {}
        return cast("t.Scopes", await self._call("scope.list", params))

    async def scope_reset(
        self,
        *,
        kind: Literal["session", "agent", "shared"],
        key: str,
        undo: Optional[bool] = None,
    ) -> t.Sandbox:
        """Replaces a scope's sandbox by a new one, made as it was.

        kind: ScopeKind says how long a scope's sandbox lives.
        key: 1 to 128 printable characters without a space
        undo: undo, of sandbox.create, is Spec.Undo."""
        params: Dict[str, Any] = {"kind": kind, "key": key, "undo": undo}
        return cast("t.Sandbox", await self._call("scope.reset", params))

    async def scope_end(
        self,
        *,
        kind: Literal["session", "agent", "shared"],
        key: str,
        undo: Optional[bool] = None,
    ) -> t.KillResult:
        """Removes a scope's sandbox.

        kind: ScopeKind says how long a scope's sandbox lives.
        key: 1 to 128 printable characters without a space
        undo: undo, of sandbox.create, is Spec.Undo."""
        params: Dict[str, Any] = {"kind": kind, "key": key, "undo": undo}
        return cast("t.KillResult", await self._call("scope.end", params))

    async def volume_create(
        self,
        *,
        name: str,
    ) -> t.Volume:
        """Makes an empty volume, which sandboxes mount by its name and which outlives them. One that a sandbox
        mounts with mode rw is made when it is missing.

        name: its name"""
        params: Dict[str, Any] = {"name": name}
        return cast("t.Volume", await self._call("volume.create", params))

    async def volume_list(
        self,
        *,
        usage: Optional[bool] = None,
    ) -> t.Volumes:
        """Lists the caller's volumes by name.

        usage: usage asks what they hold. Every file is looked at."""
        params: Dict[str, Any] = {"usage": usage}
        return cast("t.Volumes", await self._call("volume.list", params))

    async def volume_remove(
        self,
        *,
        name: str,
    ) -> t.Empty:
        """Removes a volume, which no sandbox may have mounted, with all that is in it.

        name: its name"""
        params: Dict[str, Any] = {"name": name}
        return cast("t.Empty", await self._call("volume.remove", params))

    async def code_run(
        self,
        *,
        language: str,
        code: str,
        sandbox: Optional[str] = None,
        runtime: Optional[str] = None,
        context: Optional[str] = None,
        fresh: Optional[bool] = None,
        allowed_imports: Optional[List[str]] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout_s: Optional[float] = None,
        output_bytes: Optional[int] = None,
        network: Optional[t.NetPolicy] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.CodeResult:
        """Runs a piece of code, in an interpreter that is kept for the next or in one of its own. A call that is
        cancelled interrupts the code.

        language: python, javascript, shell, go, ruby
        code: text of the code
        sandbox: exactly one of sandbox and runtime
        runtime: an image, or the name of a runtime such as python@3.12, for a sandbox of this call's alone.
        context: context names an interpreter that is kept for the next run: variables and imports persist.
            "" is a context as well, each language's default one. fresh runs the code in an interpreter of its
            own, as do the languages that have no contexts.
        fresh: context names an interpreter that is kept for the next run: variables and imports persist. ""
            is a context as well, each language's default one. fresh runs the code in an interpreter of its own,
            as do the languages that have no contexts.
        allowed_imports: allowed_imports, of python, are the modules that the code may import; empty means
            all. A scan checks them before anything runs, and the interpreter meanwhile: a rule for honest code,
            and no wall.
        env: of a fresh interpreter
        cwd: of a fresh interpreter; default: the sandbox's workdir
        user: default: the sandbox's user
        timeout_s: default 30, at most 1800
        output_bytes: cap of each captured stream in the reply, in bytes; default 1 MiB
        network: network, with runtime, is the policy of its sandbox."""
        params: Dict[str, Any] = {"language": language, "code": code, "sandbox": sandbox, "runtime": runtime, "context": context, "fresh": fresh, "allowed_imports": allowed_imports, "env": env, "cwd": cwd, "user": user, "timeout_s": timeout_s, "output_bytes": output_bytes, "network": network}
        return cast("t.CodeResult", await self._call("code.run", params, on_progress=on_progress))

    async def code_contexts(
        self,
        *,
        sandbox: str,
    ) -> t.CodeContexts:
        """Lists the interpreters that are kept in a sandbox.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.CodeContexts", await self._call("code.contexts", params))

    async def code_end_context(
        self,
        *,
        sandbox: str,
        language: str,
        context: Optional[str] = None,
    ) -> t.Empty:
        """Ends an interpreter that is kept; what it knows is gone.

        sandbox: id or name of the sandbox
        language: name of the language
        context: name of the interpreter that is kept"""
        params: Dict[str, Any] = {"sandbox": sandbox, "language": language, "context": context}
        return cast("t.Empty", await self._call("code.end_context", params))

    async def code_scan(
        self,
        *,
        language: str,
        code: str,
        allowed_imports: Optional[List[str]] = None,
    ) -> t.ScanResult:
        """Looks through code for what reaches beyond the program, without running it; a hint, not a wall.

        language: python, javascript, shell
        code: at most 1 MiB
        allowed_imports: allowed_imports, of python and javascript, are the modules that the code may
            import, with what is below them; empty means all."""
        params: Dict[str, Any] = {"language": language, "code": code, "allowed_imports": allowed_imports}
        return cast("t.ScanResult", await self._call("code.scan", params))

    async def tools_list(
        self,
    ) -> t.ToolList:
        """Lists the tools that a language model can work with, with their schemas."""
        params: Dict[str, Any] = {}
        return cast("t.ToolList", await self._call("tools.list", params))

    async def tools_call(
        self,
        *,
        sandbox: str,
        name: str,
        arguments: Optional[Any] = None,
        user: Optional[str] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.ToolResult:
        """Calls a tool in a sandbox.

        sandbox: id or name of the sandbox
        name: its name
        arguments: an object that fits the tool's input schema.
        user: name|uid[:group|gid]; default: the sandbox's user"""
        params: Dict[str, Any] = {"sandbox": sandbox, "name": name, "arguments": arguments, "user": user}
        return cast("t.ToolResult", await self._call("tools.call", params, on_progress=on_progress))

    async def exec_decide(
        self,
        *,
        mode: Optional[Literal["all", "selective", "off"]] = None,
        sandbox: Optional[str] = None,
        argv: Optional[List[str]] = None,
        command: Optional[str] = None,
        language: Optional[str] = None,
        code: Optional[str] = None,
        read_only: Optional[bool] = None,
        timeout_s: Optional[float] = None,
    ) -> t.Decision:
        """Decides by the mode whether a command is to run in a sandbox or, by the caller, on the host; records it.
        Of a command for the host, the caller reports the end by exec.record_host, on the same connection.

        mode: default: the configuration's
        sandbox: where it runs if not on the host, if there is one already
        argv: exactly one of argv, command, and language with code
        command: for bash
        language: language and code are what code.run takes, for an interpreter of its own or one that the
            caller keeps on the host.
        code: language and code are what code.run takes, for an interpreter of its own or one that the
            caller keeps on the host.
        read_only: the caller's word that on the host it lets the command write nothing, connect to nothing
            and read no file of the user's but those below its folder. Without it mode selective leaves to the
            host what has no finding at all.
        timeout_s: the wall time after which the caller is to kill it; null is the configuration's
            exec.timeout_s, 0 none."""
        params: Dict[str, Any] = {"mode": mode, "sandbox": sandbox, "argv": argv, "command": command, "language": language, "code": code, "read_only": read_only, "timeout_s": timeout_s}
        return cast("t.Decision", await self._call("exec.decide", params))

    async def exec_record_host(
        self,
        *,
        id: str,
        exit_code: int,
        duration_ms: float,
        signal: Optional[str] = None,
        timed_out: Optional[bool] = None,
        error: Optional[str] = None,
    ) -> t.Empty:
        """Records how a command on the host has ended, as its caller says.

        id: as exec.decide gave it
        exit_code: the exit code; 128+n after signal n
        duration_ms: how long it took, in milliseconds
        signal: "SIGKILL"; exit_code is then 128+n
        timed_out: whether its time was over
        error: why it never ran, or what became of it"""
        params: Dict[str, Any] = {"id": id, "exit_code": exit_code, "duration_ms": duration_ms, "signal": signal, "timed_out": timed_out, "error": error}
        return cast("t.Empty", await self._call("exec.record_host", params))

    async def exec_run(
        self,
        *,
        sandbox: str,
        exec: Optional[str] = None,
        argv: Optional[List[str]] = None,
        command: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        timeout_s: Optional[float] = None,
        limits: Optional[t.Limits] = None,
        network: Optional[t.NetPolicy] = None,
        output_bytes: Optional[int] = None,
        background: Optional[bool] = None,
        stdio: Optional[t.Stdio] = None,
        pty: Optional[t.Pty] = None,
        detachable: Optional[bool] = None,
        fds: Sequence[int] = (),
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.ExecResult:
        """Runs a command in a sandbox and returns when it has ended. A command that fails is no error: see verdict
        and exit_code.

        sandbox: id or name of the sandbox
        exec: the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits,
            used once. A caller that loses its connection before it is told the id can then still ask what
            became of the command.
        argv: exactly one of argv and command
        command: run by the sandbox's shell
        env: over the sandbox's
        cwd: absolute; default: the sandbox's workdir
        user: default: the sandbox's user
        stdin: all that it reads
        encoding: of stdin, and wanted for the output
        timeout_s: the wall time after which the command and everything it started is killed, at most the
            daemon's exec.max_timeout_s. null is the sandbox's limits.timeout_s, else the daemon's
            exec.timeout_s. background commands and those with a pty have no timeout unless one is given, no
            maximum, and 0 is none.
        limits: limits bound a sandbox, or one exec in it
        network: NetPolicy says what a sandbox may reach
        output_bytes: cap of each captured stream in the reply; default 1 MiB
        background: background, of exec.start: stdin is empty instead of open for exec.write.
        stdio: fds is the number of fds that ride on this request; stdio are indexes into them. With stdio
            nothing is captured.
        pty: pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes,
            sockets or terminals that carry it, and its "stderr" is unused; without, what appears on it is the
            exec's stdout, and exec.write types.
        detachable: detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end
            of input, what appears is also kept as without stdio, and exec.write types, too."""
        params: Dict[str, Any] = {"sandbox": sandbox, "exec": exec, "argv": argv, "command": command, "env": env, "cwd": cwd, "user": user, "stdin": stdin, "encoding": encoding, "timeout_s": timeout_s, "limits": limits, "network": network, "output_bytes": output_bytes, "background": background, "stdio": stdio, "pty": pty, "detachable": detachable}
        return cast("t.ExecResult", await self._call("exec.run", params, fds=fds, on_progress=on_progress))

    async def exec_start(
        self,
        *,
        sandbox: str,
        exec: Optional[str] = None,
        argv: Optional[List[str]] = None,
        command: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        timeout_s: Optional[float] = None,
        limits: Optional[t.Limits] = None,
        network: Optional[t.NetPolicy] = None,
        output_bytes: Optional[int] = None,
        background: Optional[bool] = None,
        stdio: Optional[t.Stdio] = None,
        pty: Optional[t.Pty] = None,
        detachable: Optional[bool] = None,
        progress: Optional[bool] = None,
        fds: Sequence[int] = (),
    ) -> t.StartResult:
        """Starts a command in a sandbox and returns when it runs; its output is kept.

        sandbox: id or name of the sandbox
        exec: the exec's id when the caller chooses it: "ex_" and 12 to 32 lower-case letters and digits,
            used once. A caller that loses its connection before it is told the id can then still ask what
            became of the command.
        argv: exactly one of argv and command
        command: run by the sandbox's shell
        env: over the sandbox's
        cwd: absolute; default: the sandbox's workdir
        user: default: the sandbox's user
        stdin: all that it reads
        encoding: of stdin, and wanted for the output
        timeout_s: the wall time after which the command and everything it started is killed, at most the
            daemon's exec.max_timeout_s. null is the sandbox's limits.timeout_s, else the daemon's
            exec.timeout_s. background commands and those with a pty have no timeout unless one is given, no
            maximum, and 0 is none.
        limits: limits bound a sandbox, or one exec in it
        network: NetPolicy says what a sandbox may reach
        output_bytes: cap of each captured stream in the reply; default 1 MiB
        background: background, of exec.start: stdin is empty instead of open for exec.write.
        stdio: fds is the number of fds that ride on this request; stdio are indexes into them. With stdio
            nothing is captured.
        pty: pty asks for a terminal in the sandbox. With stdio, its stdin and "stdout" are the pipes,
            sockets or terminals that carry it, and its "stderr" is unused; without, what appears on it is the
            exec's stdout, and exec.write types.
        detachable: detachable, of a pty with stdio: the terminal outlives its fds. Their end is not the end
            of input, what appears is also kept as without stdio, and exec.write types, too.
        progress: progress asks for a notification with the exec's id when it has started."""
        params: Dict[str, Any] = {"sandbox": sandbox, "exec": exec, "argv": argv, "command": command, "env": env, "cwd": cwd, "user": user, "stdin": stdin, "encoding": encoding, "timeout_s": timeout_s, "limits": limits, "network": network, "output_bytes": output_bytes, "background": background, "stdio": stdio, "pty": pty, "detachable": detachable, "progress": progress}
        return cast("t.StartResult", await self._call("exec.start", params, fds=fds))

    async def exec_wait(
        self,
        *,
        exec: str,
        wait_s: Optional[float] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        output_bytes: Optional[int] = None,
    ) -> t.ExecResult:
        """Waits until a command has ended; never kills it. When wait_s is over it fails with deadline_exceeded.

        exec: id of the exec
        wait_s: how long to wait, in seconds; without it, until the exec ends. When the time is over the
            call fails with deadline_exceeded and the exec goes on.
        encoding: encoding says how bytes travel in JSON.
        output_bytes: cap of each captured stream in the reply, in bytes; default 1 MiB"""
        params: Dict[str, Any] = {"exec": exec, "wait_s": wait_s, "encoding": encoding, "output_bytes": output_bytes}
        return cast("t.ExecResult", await self._call("exec.wait", params))

    async def exec_read(
        self,
        *,
        exec: str,
        stream: Literal["stdout", "stderr"],
        offset: int,
        limit: Optional[int] = None,
        wait_s: Optional[float] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
    ) -> t.Chunk:
        """Reads output of a command from any offset, also after its end.

        exec: id of the exec
        stream: stream names an output stream.
        offset: of the first byte wanted; negative: so many bytes before the end
        limit: bytes; default 256 KiB
        wait_s: how long to wait for a byte at offset, in seconds, while the exec runs; 0 returns what there
            is.
        encoding: encoding says how bytes travel in JSON."""
        params: Dict[str, Any] = {"exec": exec, "stream": stream, "offset": offset, "limit": limit, "wait_s": wait_s, "encoding": encoding}
        return cast("t.Chunk", await self._call("exec.read", params))

    async def exec_attach(
        self,
        *,
        exec: str,
        from_: t.Offsets,
        streams: Optional[List[Literal["stdout", "stderr"]]] = None,
        credit_bytes: Optional[int] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
    ) -> t.Attached:
        """Sends a command's output from any offset as it comes, in exec.output notifications, and its end in
        exec.exited.

        exec: id of the exec
        from_: the offsets of the first bytes wanted, negative: so many before the end.
        streams: those to follow; empty means both.
        credit_bytes: how many bytes of output may be sent before exec.credit gives more; both streams share
            it. 0 means DefaultCreditBytes.
        encoding: encoding says how bytes travel in JSON."""
        params: Dict[str, Any] = {"exec": exec, "from": from_, "streams": streams, "credit_bytes": credit_bytes, "encoding": encoding}
        return cast("t.Attached", await self._call("exec.attach", params))

    async def exec_credit(
        self,
        *,
        exec: str,
        bytes: int,
        attachment: Optional[str] = None,
    ) -> t.Empty:
        """Lets an attachment send more bytes.

        exec: id of the exec
        bytes: of output, on top of what is left
        attachment: attachment may be left out where the connection has one of the exec only."""
        params: Dict[str, Any] = {"exec": exec, "bytes": bytes, "attachment": attachment}
        return cast("t.Empty", await self._call("exec.credit", params))

    async def exec_detach(
        self,
        *,
        exec: str,
        attachment: Optional[str] = None,
    ) -> t.Empty:
        """Ends an attachment; the command goes on.

        exec: id of the exec
        attachment: as in CreditParams"""
        params: Dict[str, Any] = {"exec": exec, "attachment": attachment}
        return cast("t.Empty", await self._call("exec.detach", params))

    async def exec_write(
        self,
        *,
        exec: str,
        data: str,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
    ) -> t.Empty:
        """Writes to a command's stdin. It answers when all of it is in the pipe.

        exec: id of the exec
        data: the bytes, encoded as encoding says
        encoding: encoding says how bytes travel in JSON."""
        params: Dict[str, Any] = {"exec": exec, "data": data, "encoding": encoding}
        return cast("t.Empty", await self._call("exec.write", params))

    async def exec_close_stdin(
        self,
        *,
        exec: str,
    ) -> t.Empty:
        """Closes a command's stdin.

        exec: id of the exec"""
        params: Dict[str, Any] = {"exec": exec}
        return cast("t.Empty", await self._call("exec.close_stdin", params))

    async def exec_kill(
        self,
        *,
        exec: str,
    ) -> t.ExecResult:
        """Kills a command and everything it started; of one that has ended, what it left behind.

        exec: id of the exec"""
        params: Dict[str, Any] = {"exec": exec}
        return cast("t.ExecResult", await self._call("exec.kill", params))

    async def exec_list(
        self,
        *,
        sandbox: str,
    ) -> t.Execs:
        """Lists the commands of a sandbox that run or ended lately, oldest first.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Execs", await self._call("exec.list", params))

    async def exec_get(
        self,
        *,
        exec: str,
    ) -> t.Exec:
        """Returns the record of one command.

        exec: id of the exec"""
        params: Dict[str, Any] = {"exec": exec}
        return cast("t.Exec", await self._call("exec.get", params))

    async def exec_signal(
        self,
        *,
        exec: str,
        signal: str,
    ) -> t.Empty:
        """Sends a signal to a running command.

        exec: id of the exec
        signal: "SIGINT", "INT" or "2" """
        params: Dict[str, Any] = {"exec": exec, "signal": signal}
        return cast("t.Empty", await self._call("exec.signal", params))

    async def exec_resize(
        self,
        *,
        exec: str,
        rows: int,
        cols: int,
    ) -> t.Empty:
        """Sets the size of a command's terminal.

        exec: id of the exec
        rows: lines
        cols: columns"""
        params: Dict[str, Any] = {"exec": exec, "rows": rows, "cols": cols}
        return cast("t.Empty", await self._call("exec.resize", params))

    async def shell_open(
        self,
        *,
        sandbox: str,
        user: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> t.Shell:
        """Opens a shell in a sandbox, whose state lasts from command to command. It lives until shell.close, or as
        long as the sandbox.

        sandbox: id or name of the sandbox
        user: default: the sandbox's user
        cwd: absolute; default: the sandbox's workdir
        env: over the sandbox's"""
        params: Dict[str, Any] = {"sandbox": sandbox, "user": user, "cwd": cwd, "env": env}
        return cast("t.Shell", await self._call("shell.open", params))

    async def shell_run(
        self,
        *,
        shell: str,
        command: str,
        run: Optional[int] = None,
        timeout_s: Optional[float] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        output_bytes: Optional[int] = None,
    ) -> t.ShellResult:
        """Runs a command in a shell and returns when it has ended. A command that fails is no error. When the call
        is cancelled, the command is killed, and the shell is as it was before.

        shell: id of the shell
        command: one line or many; its stdin is /dev/null
        run: run, when set, is the number of the command: one more than that of the last. The same number
            and command again wait for that command instead of running another, and give its result: for callers
            whose call was lost with the daemon.
        timeout_s: as exec.run's. A command that is killed by it leaves the shell as it was before.
        encoding: wanted for the output
        output_bytes: as exec.run's"""
        params: Dict[str, Any] = {"shell": shell, "command": command, "run": run, "timeout_s": timeout_s, "encoding": encoding, "output_bytes": output_bytes}
        return cast("t.ShellResult", await self._call("shell.run", params))

    async def shell_close(
        self,
        *,
        shell: str,
    ) -> t.ExecResult:
        """Kills a shell and everything it started.

        shell: id of the shell"""
        params: Dict[str, Any] = {"shell": shell}
        return cast("t.ExecResult", await self._call("shell.close", params))

    async def shell_list(
        self,
        *,
        sandbox: str,
    ) -> t.Shells:
        """Lists the shells of a sandbox, oldest first.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Shells", await self._call("shell.list", params))

    async def fs_read(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        offset: Optional[int] = None,
        limit: Optional[int] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        special: Optional[bool] = None,
        fd: Optional[int] = None,
        fds: Sequence[int] = (),
    ) -> t.FileChunk:
        """Reads a piece of a file. Into a pipe, whose write end is fd, the whole file goes by default.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        offset: of the first byte wanted; negative: so many bytes before the end
        limit: bytes; default 256 KiB, with fd everything
        encoding: base64 may be asked for
        special: special reads also from a fifo or a device: what it has at this moment.
        fd: the index, in the request's fds, of a pipe that takes the bytes instead of the reply. The call
            ends when all are in the pipe."""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "offset": offset, "limit": limit, "encoding": encoding, "special": special, "fd": fd}
        return cast("t.FileChunk", await self._call("fs.read", params, fds=fds))

    async def fs_write(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        data: Optional[str] = None,
        encoding: Optional[Literal["utf-8", "base64"]] = None,
        append: Optional[bool] = None,
        offset: Optional[int] = None,
        create: Optional[bool] = None,
        exclusive: Optional[bool] = None,
        parents: Optional[bool] = None,
        mode: Optional[str] = None,
        if_version: Optional[str] = None,
        atomic: Optional[bool] = None,
        attributes: Optional[Dict[str, str]] = None,
        fd: Optional[int] = None,
        size_bytes: Optional[int] = None,
        fds: Sequence[int] = (),
    ) -> t.FileWritten:
        """Writes a file, by default in a single step. Out of a pipe, whose read end is fd, comes all until its
        end; with size_bytes, a writer that dies before leaves the old file.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        data: the new bytes
        encoding: of data
        append: write at the end of the file
        offset: write there; the rest of the file stays
        create: make a missing file; default true
        exclusive: fail if it exists
        parents: make missing folders above it
        mode: octal, "0755"; default: the old file's, else 0644
        if_version: if_version fails where the file is not the one that had this version in fs.stat: no
            write of another's is lost.
        atomic: atomic true fails where the old file cannot be replaced in a single step (it has several
            names, say); false writes into the file itself. By default that is done where it must be.
        attributes: extended attributes that the file gets, by their names below "user.". A file that is
            replaced in a single step has no others; another one keeps those that it had besides.
        fd: the index, in the request's fds, of a pipe that holds the content instead of data. size_bytes,
            where it is known, makes a pipe that ends too early an error, which leaves the old file as it was.
        size_bytes: fd is the index, in the request's fds, of a pipe that holds the content instead of data.
            size_bytes, where it is known, makes a pipe that ends too early an error, which leaves the old file
            as it was."""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "data": data, "encoding": encoding, "append": append, "offset": offset, "create": create, "exclusive": exclusive, "parents": parents, "mode": mode, "if_version": if_version, "atomic": atomic, "attributes": attributes, "fd": fd, "size_bytes": size_bytes}
        return cast("t.FileWritten", await self._call("fs.write", params, fds=fds))

    async def fs_list(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        recursive: Optional[bool] = None,
        depth: Optional[int] = None,
        limit: Optional[int] = None,
        offset: Optional[int] = None,
        attributes: Optional[bool] = None,
    ) -> t.FileList:
        """Lists a folder, and what is below it if asked to.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        recursive: folders below, too; symlinks are never followed
        depth: levels of a recursive list; default: all
        limit: entries; default 10000, at most 100000
        offset: offset leaves out so many entries, so that pages of a long list fit together. Without it a
            folder with more names than the limit may show any of them.
        attributes: tell extended attributes, too"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "recursive": recursive, "depth": depth, "limit": limit, "offset": offset, "attributes": attributes}
        return cast("t.FileList", await self._call("fs.list", params))

    async def fs_stat(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        follow: Optional[bool] = None,
        attributes: Optional[bool] = None,
    ) -> t.File:
        """Describes one file.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        follow: describe what a symlink leads to
        attributes: tell extended attributes, too"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "follow": follow, "attributes": attributes}
        return cast("t.File", await self._call("fs.stat", params))

    async def fs_mkdir(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        parents: Optional[bool] = None,
        mode: Optional[str] = None,
    ) -> t.FileMade:
        """Makes a folder.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        parents: make missing folders above it; one that exists is no error
        mode: octal; default 0755"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "parents": parents, "mode": mode}
        return cast("t.FileMade", await self._call("fs.mkdir", params))

    async def fs_remove(
        self,
        *,
        sandbox: str,
        path: str,
        user: Optional[str] = None,
        recursive: Optional[bool] = None,
        missing_ok: Optional[bool] = None,
    ) -> t.FileRemoved:
        """Removes a file or a folder.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        user: name|uid[:group|gid]; default: the sandbox's user
        recursive: with all that is in it; symlinks are removed, never followed
        missing_ok: one that does not exist is no error"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "user": user, "recursive": recursive, "missing_ok": missing_ok}
        return cast("t.FileRemoved", await self._call("fs.remove", params))

    async def fs_move(
        self,
        *,
        sandbox: str,
        path: str,
        to: str,
        user: Optional[str] = None,
        no_replace: Optional[bool] = None,
    ) -> t.Empty:
        """Renames a file or a folder.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        to: the new path itself, also where that is a folder
        user: name|uid[:group|gid]; default: the sandbox's user
        no_replace: no_replace fails if to exists. Otherwise a file takes the place of a file, a folder that
            of an empty one."""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "to": to, "user": user, "no_replace": no_replace}
        return cast("t.Empty", await self._call("fs.move", params))

    async def fs_pack(
        self,
        *,
        sandbox: str,
        path: str,
        fd: int,
        user: Optional[str] = None,
        as_: Optional[str] = None,
        follow: Optional[bool] = None,
        fds: Sequence[int] = (),
    ) -> t.FileArchive:
        """Writes a file or a folder into a pipe, as a tar archive. What comes out is as hostile as the sandbox:
        whoever unpacks it on the host must refuse names and links that lead out.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        fd: index of the pipe that takes the archive
        user: name|uid[:group|gid]; default: the sandbox's user
        as_: the name of the topmost entry; without it all names are relative to the folder.
        follow: pack what a symlink leads to"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "fd": fd, "user": user, "as": as_, "follow": follow}
        return cast("t.FileArchive", await self._call("fs.pack", params, fds=fds))

    async def fs_unpack(
        self,
        *,
        sandbox: str,
        path: str,
        fd: int,
        user: Optional[str] = None,
        keep_owner: Optional[bool] = None,
        root: Optional[bool] = None,
        folders: Optional[bool] = None,
        fds: Sequence[int] = (),
    ) -> t.FileArchive:
        """Unpacks a tar archive from a pipe into a folder.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        fd: index of the pipe that holds the archive
        user: name|uid[:group|gid]; default: the sandbox's user
        keep_owner: uid and gid as in the archive, where the sandbox has them; default: the user
        root: the archive's topmost entry is the folder's mode and time
        folders: folders that are there already get the archive's mode and time, too"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "fd": fd, "user": user, "keep_owner": keep_owner, "root": root, "folders": folders}
        return cast("t.FileArchive", await self._call("fs.unpack", params, fds=fds))

    async def fs_sync(
        self,
        *,
        sandbox: str,
        path: str,
        files: List[t.SyncFile],
        user: Optional[str] = None,
        delete: Optional[bool] = None,
        after: Optional[str] = None,
        after_base64: Optional[str] = None,
        more: Optional[bool] = None,
    ) -> t.FileSynced:
        """Tells which files of the caller's folder one in the sandbox lacks, and removes what it has too much.
        fs.unpack brings them.

        sandbox: id or name of the sandbox
        path: relative ones start at the sandbox's workdir
        files: in order, each folder before what it holds
        user: name|uid[:group|gid]; default: the sandbox's user
        delete: delete removes what the folder in the sandbox holds in the page's range beside files.
        after: the last path of the page before; none for the first.
        after_base64: in place of after
        more: another page follows"""
        params: Dict[str, Any] = {"sandbox": sandbox, "path": path, "files": files, "user": user, "delete": delete, "after": after, "after_base64": after_base64, "more": more}
        return cast("t.FileSynced", await self._call("fs.sync", params))

    async def network_get(
        self,
        *,
        sandbox: str,
    ) -> t.Network:
        """Says what a sandbox may reach, what it was refused, and in mode learn what it would need.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Network", await self._call("network.get", params))

    async def network_update(
        self,
        *,
        sandbox: str,
        network: Optional[t.NetPolicy] = None,
        add: Optional[t.NetLists] = None,
        remove: Optional[t.NetLists] = None,
    ) -> t.Network:
        """Changes what a running sandbox may reach, and closes the connections that it may not have any more.

        sandbox: id or name of the sandbox
        network: instead of the policy in force
        add: to its lists
        remove: from its lists; each entry must be in them"""
        params: Dict[str, Any] = {"sandbox": sandbox, "network": network, "add": add, "remove": remove}
        return cast("t.Network", await self._call("network.update", params))

    async def network_check(
        self,
        *,
        sandbox: Optional[str] = None,
        network: Optional[t.NetPolicy] = None,
        proto: Optional[Literal["tcp", "udp"]] = None,
        name: Optional[str] = None,
        address: Optional[str] = None,
        port: Optional[int] = None,
    ) -> t.NetVerdict:
        """Says what a policy does with a name, an address or a port, and which rule says so.

        sandbox: exactly one of sandbox and network
        network: one that asks for nothing is the configuration's
        proto: "" is a lookup, or unknown without a name
        name: its name
        address: IP address
        port: of "tcp" or "udp" """
        params: Dict[str, Any] = {"sandbox": sandbox, "network": network, "proto": proto, "name": name, "address": address, "port": port}
        return cast("t.NetVerdict", await self._call("network.check", params))

    async def network_asks(
        self,
    ) -> t.Asks:
        """Lists the connections that wait for an answer, and what is always answered the same."""
        params: Dict[str, Any] = {}
        return cast("t.Asks", await self._call("network.asks", params))

    async def network_answer(
        self,
        *,
        id: str,
        answer: Literal["once", "session", "always", "deny"],
    ) -> t.Empty:
        """Answers the question whether a connection that is held may be made.

        id: its id
        answer: NetAnswer is what somebody says who is asked about a connection."""
        params: Dict[str, Any] = {"id": id, "answer": answer}
        return cast("t.Empty", await self._call("network.answer", params))

    async def network_forget(
        self,
        *,
        entries: List[str],
    ) -> t.Asks:
        """Forgets what was to be allowed always; policies in force stay as they are.

        entries: entries of always, as network.asks lists them"""
        params: Dict[str, Any] = {"entries": entries}
        return cast("t.Asks", await self._call("network.forget", params))

    async def port_expose(
        self,
        *,
        sandbox: str,
        port: int,
        address: Optional[str] = None,
        listener: Optional[int] = None,
        token: Optional[bool] = None,
        fds: Sequence[int] = (),
    ) -> t.Port:
        """Lets programs of the host connect to a TCP port in a sandbox, also to a server on its loopback. A
        listener is a socket of the caller's that listens already.

        sandbox: id or name of the sandbox
        port: number of the port
        address: where hutchd listens: "IP:PORT", "PORT" or the absolute path of a Unix socket; PORT 0 is a
            free one. By default, and where there is no IP, that is 127.0.0.1: other machines reach it only
            where an address such as "0.0.0.0:8080" says so.
        listener: the index, in the request's fds, of a socket that listens already, with the rights of the
            caller: on a port or a path that hutchd may not use. address then is missing, or of a Unix socket
            its path, which the socket itself does not know.
        token: token asks for one: only HTTP requests that have it pass."""
        params: Dict[str, Any] = {"sandbox": sandbox, "port": port, "address": address, "listener": listener, "token": token}
        return cast("t.Port", await self._call("port.expose", params, fds=fds))

    async def port_list(
        self,
        *,
        sandbox: Optional[str] = None,
    ) -> t.Ports:
        """Lists the ports of one sandbox, or of all, that the host reaches.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.Ports", await self._call("port.list", params))

    async def port_close(
        self,
        *,
        sandbox: str,
        port: int,
        address: Optional[str] = None,
    ) -> t.Ports:
        """Ends what is exposed of a port, with its connections.

        sandbox: id or name of the sandbox
        port: number of the port
        address: only this one; default: all of the port"""
        params: Dict[str, Any] = {"sandbox": sandbox, "port": port, "address": address}
        return cast("t.Ports", await self._call("port.close", params))

    async def events_subscribe(
        self,
        *,
        from_seq: Optional[int] = None,
        kinds: Optional[List[Literal["sandbox.state", "sandbox.reclaimed", "exec.started", "exec.exited", "exec.decided", "exec.host_exited", "limit.hit", "network.denied", "network.failed", "network.ask", "network.answered", "syscall.denied", "port.opened", "file.denied", "tool.call", "tool.message", "workspace.unguarded", "image.progress", "config.reloaded", "events.lost", "gap"]]] = None,
        sandbox: Optional[str] = None,
        follow: Optional[bool] = None,
        credit: Optional[int] = None,
    ) -> t.Subscribed:
        """Sends what happens in the daemon, and what has happened from a number on, in event notifications.

        from_seq: the number of the first event wanted; what is left of the past is replayed. Without it
            only what happens from now on is sent.
        kinds: empty means all
        sandbox: empty means all
        follow: follow false ends the subscription with events.end when what had happened before the call
            has been sent; absent means true.
        credit: how many events may be sent before events.credit gives more; 0 means as many as the
            connection takes."""
        params: Dict[str, Any] = {"from_seq": from_seq, "kinds": kinds, "sandbox": sandbox, "follow": follow, "credit": credit}
        return cast("t.Subscribed", await self._call("events.subscribe", params))

    async def events_credit(
        self,
        *,
        subscription: str,
        events: int,
    ) -> t.Empty:
        """Lets a subscription with credit send more events.

        subscription: id of the subscription, unique on its connection
        events: on top of those that are left"""
        params: Dict[str, Any] = {"subscription": subscription, "events": events}
        return cast("t.Empty", await self._call("events.credit", params))

    async def events_unsubscribe(
        self,
        *,
        subscription: str,
    ) -> t.Empty:
        """Ends a subscription.

        subscription: id of the subscription, unique on its connection"""
        params: Dict[str, Any] = {"subscription": subscription}
        return cast("t.Empty", await self._call("events.unsubscribe", params))

    async def audit_read(
        self,
        *,
        sandbox: str,
        from_seq: Optional[int] = None,
        since: Optional[str] = None,
        kinds: Optional[List[Literal["audit.opened", "audit.resumed", "audit.left", "audit.closed", "audit.lost", "audit.skipped", "audit.dropped", "sandbox.created", "pool.acquire", "workspace.apply", "workspace.discard", "sandbox.state", "sandbox.kill", "sandbox.remove", "sandbox.stop", "sandbox.start", "snapshot.create", "snapshot.restore", "checkpoint.restore", "sandbox.updated", "network.updated", "port.exposed", "port.closed", "network.denied", "network.failed", "network.answered", "network.allowed", "syscall.denied", "limit.hit", "exec.started", "exec.failed", "exec.exited", "exec.decided", "exec.host_exited", "exec.stdin", "exec.signal", "exec.kill", "shell.run", "shell.ended"]]] = None,
        exec: Optional[str] = None,
        limit: Optional[int] = None,
        wait_s: Optional[float] = None,
    ) -> t.AuditRecords:
        """Reads the records of what was done with a sandbox, also of one that was removed.

        sandbox: of one that was removed: its id
        from_seq: 0 is the oldest that is kept
        since: records before are left out
        kinds: empty means all
        exec: id of the exec
        limit: records, at most 1000, the default
        wait_s: for the next record, where there is none"""
        params: Dict[str, Any] = {"sandbox": sandbox, "from_seq": from_seq, "since": since, "kinds": kinds, "exec": exec, "limit": limit, "wait_s": wait_s}
        return cast("t.AuditRecords", await self._call("audit.read", params))

    async def audit_verify(
        self,
        *,
        sandbox: str,
        head: Optional[t.AuditHead] = None,
    ) -> t.AuditVerified:
        """Checks that no record of a sandbox's audit log was changed, removed or moved. A log that was tampered
        with is no error: ok is false.

        sandbox: id or name of the sandbox
        head: that the log had at some time"""
        params: Dict[str, Any] = {"sandbox": sandbox, "head": head}
        return cast("t.AuditVerified", await self._call("audit.verify", params))

    async def audit_head(
        self,
        *,
        sandbox: str,
    ) -> t.AuditHead:
        """Returns number and hash of the last record, to be kept elsewhere.

        sandbox: id or name of the sandbox"""
        params: Dict[str, Any] = {"sandbox": sandbox}
        return cast("t.AuditHead", await self._call("audit.head", params))

    async def audit_list(
        self,
    ) -> t.AuditLogs:
        """Lists the audit logs that are kept."""
        params: Dict[str, Any] = {}
        return cast("t.AuditLogs", await self._call("audit.list", params))

    async def image_pull(
        self,
        *,
        ref: str,
        platform: Optional[str] = None,
        policy: Optional[Literal["missing", "always", "never"]] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Image:
        """Fetches an image into the store.

        ref: reference of the image
        platform: os/arch[/variant] of the image
        policy: default "always" """
        params: Dict[str, Any] = {"ref": ref, "platform": platform, "policy": policy}
        return cast("t.Image", await self._call("image.pull", params, on_progress=on_progress))

    async def image_list(
        self,
    ) -> t.Images:
        """Lists the images in the store."""
        params: Dict[str, Any] = {}
        return cast("t.Images", await self._call("image.list", params))

    async def image_inspect(
        self,
        *,
        ref: str,
    ) -> t.Image:
        """Returns one image's record.

        ref: reference of the image"""
        params: Dict[str, Any] = {"ref": ref}
        return cast("t.Image", await self._call("image.inspect", params))

    async def image_remove(
        self,
        *,
        ref: str,
    ) -> t.Empty:
        """Removes an image reference and the layers that nothing else needs.

        ref: reference of the image"""
        params: Dict[str, Any] = {"ref": ref}
        return cast("t.Empty", await self._call("image.remove", params))

    async def image_import(
        self,
        *,
        format: Literal["oci-archive", "docker-archive", "archive", "rootfs"],
        fd: int,
        ref: Optional[str] = None,
        image: Optional[str] = None,
        platform: Optional[str] = None,
        changes: Optional[t.ConfigChanges] = None,
        fds: Sequence[int] = (),
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Image:
        """Makes an image of an archive, or of a root file system as tar, that comes as a file or through a pipe.
        The fd is a file, or the read end of a pipe that was made for the call.

        format: ImageFormat says how a file holds images.
        fd: the index of the file among those of the request: a regular file open for reading, or the read
            end of a pipe made for the call, a tar stream either way.
        ref: what the image will be called; it may be left out when an archive names the image.
        image: image chooses one of several images in an archive, by name or digest.
        platform: os/arch[/variant] of the image
        changes: changes say how a root file system is run; an archive's image says that itself."""
        params: Dict[str, Any] = {"format": format, "fd": fd, "ref": ref, "image": image, "platform": platform, "changes": changes}
        return cast("t.Image", await self._call("image.import", params, fds=fds, on_progress=on_progress))

    async def image_commit(
        self,
        *,
        sandbox: str,
        ref: str,
        changes: Optional[t.ConfigChanges] = None,
        author: Optional[str] = None,
        message: Optional[str] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Committed:
        """Makes an image of what a sandbox has written and the image below; the sandbox stands still meanwhile.

        sandbox: id or name of the sandbox
        ref: what the image will be called
        changes: changes say how the image is run; without them as the sandbox's is.
        author: author and message go to the image's history.
        message: author and message go to the image's history."""
        params: Dict[str, Any] = {"sandbox": sandbox, "ref": ref, "changes": changes, "author": author, "message": message}
        return cast("t.Committed", await self._call("image.commit", params, on_progress=on_progress))

    async def image_export(
        self,
        *,
        ref: str,
        format: Literal["oci-archive", "docker-archive", "archive", "rootfs"],
        fd: int,
        fds: Sequence[int] = (),
    ) -> t.Exported:
        """Writes an image into a file or a pipe: as an archive, or its files alone as one root file system. The fd
        is a file, or the write end of a pipe that was made for the call.

        ref: reference of the image
        format: ImageFormat says how a file holds images.
        fd: the index of the file among those of the request: a regular file open for writing, or the write
            end of a pipe made for the call."""
        params: Dict[str, Any] = {"ref": ref, "format": format, "fd": fd}
        return cast("t.Exported", await self._call("image.export", params, fds=fds))

    async def image_push(
        self,
        *,
        ref: str,
        target: Optional[str] = None,
        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,
    ) -> t.Pushed:
        """Sends an image to a registry.

        ref: reference of the image
        target: where it goes, if not to what ref names: registry/repository:tag."""
        params: Dict[str, Any] = {"ref": ref, "target": target}
        return cast("t.Pushed", await self._call("image.push", params, on_progress=on_progress))

    async def image_login(
        self,
        *,
        registry: str,
        username: str,
        password: str,
    ) -> t.Login:
        """Asks a registry whether it knows a user and the password and, if so, stores them for pulls and pushes.

        registry: HOST[:PORT], such as docker.io; with a path after it, what is below.
        username: name at the registry
        password: Secret is text that is not shown: it prints as something else."""
        params: Dict[str, Any] = {"registry": registry, "username": username, "password": password}
        return cast("t.Login", await self._call("image.login", params))

    async def image_logout(
        self,
        *,
        registry: str,
    ) -> t.Empty:
        """Removes the credentials of a registry.

        registry: host name of the registry, with its port if it has one"""
        params: Dict[str, Any] = {"registry": registry}
        return cast("t.Empty", await self._call("image.logout", params))

    async def image_get_login(
        self,
        *,
        registry: str,
    ) -> t.Login:
        """Says as whom pulls from a registry come; never the password.

        registry: host name of the registry, with its port if it has one"""
        params: Dict[str, Any] = {"registry": registry}
        return cast("t.Login", await self._call("image.get_login", params))

    async def image_tag(
        self,
        *,
        ref: str,
        target: str,
    ) -> t.Image:
        """Gives an image one more name.

        ref: what the image is called
        target: what it is to be called, too"""
        params: Dict[str, Any] = {"ref": ref, "target": target}
        return cast("t.Image", await self._call("image.tag", params))

    async def image_du(
        self,
    ) -> t.ImageDisk:
        """Says what images take on disk."""
        params: Dict[str, Any] = {}
        return cast("t.ImageDisk", await self._call("image.du", params))

    async def image_prune(
        self,
        *,
        all: Optional[bool] = None,
    ) -> t.Pruned:
        """Removes layers that no image has, and if asked to images that no sandbox uses.

        all: all removes images that no sandbox uses, too, and not only layers that no image has."""
        params: Dict[str, Any] = {"all": all}
        return cast("t.Pruned", await self._call("image.prune", params))

    async def image_verify(
        self,
        *,
        ref: Optional[str] = None,
        repair: Optional[bool] = None,
    ) -> t.Verified:
        """Reads the files of images and compares them with what was unpacked; fetches damaged layers again if
        asked to. Damage is no error: see the status of each layer.

        ref: default: all images
        repair: repair fetches damaged layers again, from the registry that the image came from."""
        params: Dict[str, Any] = {"ref": ref, "repair": repair}
        return cast("t.Verified", await self._call("image.verify", params))

    async def rpc_discover(
        self,
    ) -> Any:
        """Returns the OpenRPC document of this build."""
        params: Dict[str, Any] = {}
        return cast(Any, await self._call("rpc.discover", params))
