"""A sandbox."""

import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, Union, cast

from .. import types as t
from .._find import run_hutch
from .._ids import exec_id
from ..config import SandboxConfig
from ..errors import ConnectionLostError, InvalidArgumentError, NotFoundError
from ..results import ExecutionResult, pack
from . import client as _client
from ._io import run
from .code import AsyncCode
from .files import AsyncFiles
from .parts import AsyncPorts, AsyncWorkspace
from .process import AsyncProcess

if TYPE_CHECKING:
    from .client import AsyncClient

Command = Union[str, Sequence[str]]


class AsyncSandbox:
    """A sandbox. At the end of its with block it is removed with all that runs in it, and when the program ends, unless
    it was made with detached=True.

    files, code, ports and workspace are what their names say.
    """

    def __init__(self, client: "AsyncClient", record: t.Sandbox, detached: bool = True) -> None:
        self.client = client
        self.id = record["id"]
        self.record = record  # as it was when it was made or last asked for
        self.files = AsyncFiles(client, self.id)
        self.code = AsyncCode(client, self.id)
        self.ports = AsyncPorts(client, self.id)
        self.workspace = AsyncWorkspace(client, self.id)
        self._detached = detached

    def __repr__(self) -> str:
        return f"<AsyncSandbox {self.name or self.id} of {self.record['image']}>"

    @property
    def name(self) -> str:
        return self.record.get("name", "")

    @classmethod
    async def create(cls, image: Optional[str] = None, *, config: Optional[SandboxConfig] = None,
                     template: Optional[str] = None, name: Optional[str] = None, workspace: Optional[str] = None,
                     workspace_mode: Optional[str] = None, volumes: Optional[Mapping[str, str]] = None,
                     mounts: Optional[Sequence[Mapping[str, Any]]] = None, env: Optional[Mapping[str, str]] = None,
                     workdir: Optional[str] = None, user: Optional[str] = None,
                     labels: Optional[Mapping[str, str]] = None, cpus: Optional[float] = None,
                     memory: Union[int, str, None] = None, disk: Union[int, str, None] = None,
                     pids: Optional[int] = None, timeout: Optional[float] = None, ttl: Optional[float] = None,
                     idle: Optional[float] = None, allow: Optional[Sequence[str]] = None,
                     block: Optional[Sequence[str]] = None, network: Union[str, Mapping[str, Any], None] = None,
                     undo: Optional[bool] = None, options: Optional[Mapping[str, Any]] = None,
                     detached: bool = False, client: "Optional[AsyncClient]" = None,
                     on_progress: Optional[Callable[[t.ProgressNotification], None]] = None) -> "AsyncSandbox":
        """Makes a sandbox: of an image such as "python:3.12", or of this machine's own programs. What it is made of is
        described at SandboxConfig: memory="2g", allow=["pypi.org"], workspace="."... Two arguments are easily mixed up:
        timeout is that of each command, ttl the life of the sandbox, both in seconds."""
        config = SandboxConfig.of(
            config, image=image, template=template, name=name, workspace=workspace, workspace_mode=workspace_mode,
            volumes=volumes, mounts=mounts, env=env, workdir=workdir, user=user, labels=labels, cpus=cpus, memory=memory,
            disk=disk, pids=pids, timeout=timeout, ttl=ttl, idle=idle, allow=allow, block=block, network=network,
            undo=undo, options=options)
        client = client or _client.shared()
        if config.folders and os.geteuid() == 0:
            return await cls._create_as_root(client, config, detached)
        params = config.params()
        if not detached and "scope" not in params:
            params.setdefault("owner", "connection")
        owned = params.get("owner") == "connection"
        record = await client.call("sandbox.create", params, on_progress=on_progress)
        if owned:
            client.link.owned.add(record["id"])
        return cls(client, record, detached=not owned)

    @classmethod
    async def from_snapshot(cls, snapshot: Union[str, t.Snapshot], *, name: Optional[str] = None,
                            client: "Optional[AsyncClient]" = None) -> "AsyncSandbox":
        """Makes a sandbox that goes on from the files of a snapshot."""
        client = client or _client.shared()
        ident = snapshot if isinstance(snapshot, str) else snapshot["id"]
        record = (await client.rpc.sandbox_fork(snapshot=ident, name=name))["sandboxes"][0]
        client.link.remove_at_exit(record["id"])
        return cls(client, record, detached=False)

    @classmethod
    async def _create_as_root(cls, client: "AsyncClient", config: SandboxConfig, detached: bool) -> "AsyncSandbox":
        """Root's daemon has no right to root's folders: the command line maps their owners and hands them over."""
        params = config.params()
        folders = [f"--workspace={config.workspace}:{config.workspace_mode}"] if config.workspace is not None else []
        for m in params.pop("mounts", []):
            folders.append(f"--volume={m.get('source') or m['volume']}:{m['target']}:{m['mode']}")
        params.pop("workspace", None)
        image = params.pop("image", None) or f"template:{params.pop('template')}"
        if image.startswith("-"):
            raise InvalidArgumentError(f"{image!r} is no image", op="create", field="image")
        env = params.pop("env", {})
        flags, rest = _flags(params)
        if rest:
            raise InvalidArgumentError(f"{', '.join(sorted(rest))} cannot be combined with folders of root's", op="create",
                                       hint="run as an ordinary user, or leave them out")
        done, _ = await run(run_hutch, ["create", "--json", *flags, *folders, image], client.link.environment(), env)
        record = cast(t.Sandbox, json.loads(done))
        if not detached:
            client.link.remove_at_exit(record["id"])
        return cls(client, record, detached)

    @classmethod
    async def get(cls, sandbox: str, *, client: "Optional[AsyncClient]" = None) -> "AsyncSandbox":
        """A sandbox that there is, by its id or name. It is not removed at the end of a with block."""
        client = client or _client.shared()
        return cls(client, await client.rpc.sandbox_get(sandbox=sandbox))

    @classmethod
    async def list(cls, *, labels: Optional[Mapping[str, str]] = None,
                   client: "Optional[AsyncClient]" = None) -> "List[AsyncSandbox]":
        """The sandboxes that there are."""
        client = client or _client.shared()
        found = await client.rpc.sandbox_list(labels=dict(labels) if labels else None)
        return [cls(client, record) for record in found["sandboxes"]]

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if not self._detached:
            try:
                await self.remove()
            except (NotFoundError, ConnectionLostError):
                pass  # its time is over, or the daemon's: it is gone

    async def run(self, command: Command, *, stdin: Union[str, bytes, None] = None,
                  env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, user: Optional[str] = None,
                  timeout: Optional[float] = None, check: bool = False,
                  on_stdout: Optional[Callable[[str], Any]] = None,
                  on_stderr: Optional[Callable[[str], Any]] = None,
                  options: Optional[Mapping[str, Any]] = None) -> ExecutionResult:
        """Runs a command and returns what became of it: a string is for the sandbox's shell, a list is the program and
        its arguments. One that fails is no error, unless check is True. timeout is in seconds, by default that of the
        sandbox or 180. on_stdout and on_stderr get the output as it comes. Of each stream the result has 1 MiB, its
        beginning and end, unless options={"output_bytes": N} says more. Large input belongs in a file."""
        params = _exec_params(self.id, command, env, cwd, user, timeout, options)
        if stdin is not None:
            params["stdin"], params["encoding"] = _input(stdin)
            if params["encoding"] == "utf-8":
                del params["encoding"]
        if on_stdout or on_stderr:
            async with await self._start(params) as process:  # which ends where a callback raises
                await process.copy(on_stdout, on_stderr)
                res = await process.wait()
        else:
            res = ExecutionResult.of(await self._run(params))
        return res.check() if check else res

    async def _run(self, params: Dict[str, Any]) -> t.ExecResult:
        """exec.run, over the death of the daemon: the next one knows the command by the id that is chosen here. Where it
        does not, the command was never started, or has ended long ago: the caller decides whether to run it again."""
        params["exec"] = exec_id()
        try:
            return cast(t.ExecResult, await self.client.call("exec.run", params))
        except ConnectionLostError as e:
            if not e.sent:
                raise
            lost = e
        try:
            return await self.client.rpc.exec_wait(exec=params["exec"])
        except NotFoundError:
            raise lost from None

    async def exec(self, command: Command, *, stdin: Union[str, bytes, bool, None] = None,
                   env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None, user: Optional[str] = None,
                   timeout: Optional[float] = None, terminal: Union[bool, "tuple[int, int]"] = False,
                   options: Optional[Mapping[str, Any]] = None) -> AsyncProcess:
        """Starts a command, as run does, and returns while it runs: iterate over its output, or wait for it. It is killed
        at the end of its with block; without one it goes on, also where nobody waits for it any more. stdin=True leaves
        stdin open for AsyncProcess.write. terminal, True or (rows, columns), gives it a terminal. Without timeout a
        command that has neither may run for as long as the sandbox lives."""
        params = _exec_params(self.id, command, env, cwd, user, timeout, options)
        if terminal:
            rows, cols = terminal if isinstance(terminal, tuple) and len(terminal) == 2 else (24, 80)
            params["pty"] = {"rows": rows, "cols": cols}
        elif stdin is None or stdin is False:
            params["background"] = True
        if stdin is not None and not isinstance(stdin, bool):
            params["stdin"], params["encoding"] = _input(stdin)
        return await self._start(params)

    async def _start(self, params: Dict[str, Any]) -> AsyncProcess:
        """exec.start, as _run does it."""
        params["exec"] = exec_id()
        try:
            started = await self.client.call("exec.start", params)
            return AsyncProcess(self.client, started["exec"], started["pid"])
        except ConnectionLostError as e:
            if not e.sent:
                raise
            lost = e
        try:
            known = await self.client.rpc.exec_get(exec=params["exec"])
            return AsyncProcess(self.client, known["exec"], known.get("pid", 0))
        except NotFoundError:
            raise lost from None

    async def refresh(self) -> t.Sandbox:
        """What it is now."""
        self.record = await self.client.rpc.sandbox_get(sandbox=self.id)
        return self.record

    async def remove(self) -> None:
        """Removes it, with its processes and files."""
        self.client.link.owned.discard(self.id)
        await self.client.rpc.sandbox_remove(sandbox=self.id)
        self._detached = True

    async def kill(self) -> None:
        """Ends all of its processes, and with them itself; the record stays until it is removed."""
        await self.client.rpc.sandbox_kill(sandbox=self.id)

    async def pause(self) -> None:
        self.record = await self.client.rpc.sandbox_pause(sandbox=self.id)

    async def resume(self) -> None:
        self.record = await self.client.rpc.sandbox_resume(sandbox=self.id)

    async def stop(self, timeout: Optional[float] = None) -> None:
        """Ends its processes and keeps its files, also over the end of this program, until start or remove."""
        self.client.link.owned.discard(self.id)
        await self.client.rpc.sandbox_stop(sandbox=self.id, timeout_s=timeout)
        self._detached = True

    async def start(self) -> None:
        """Makes one that was stopped run again."""
        await self.client.rpc.sandbox_start(sandbox=self.id)
        await self.refresh()

    async def fork(self, count: int = 1) -> "List[AsyncSandbox]":
        """Sandboxes that go on from the files of this one, each for itself. They are removed at the end of their with
        block, or when the program ends; if it is killed they stay."""
        forked = await self.client.rpc.sandbox_fork(sandbox=self.id, count=count)
        for record in forked["sandboxes"]:
            self.client.link.remove_at_exit(record["id"])
        return [AsyncSandbox(self.client, record, detached=False) for record in forked["sandboxes"]]

    async def snapshot(self, name: Optional[str] = None) -> t.Snapshot:
        """Keeps what its files are now. Processes are not in it."""
        return await self.client.rpc.snapshot_create(sandbox=self.id, name=name)

    async def restore(self, snapshot: Union[str, t.Snapshot]) -> None:
        """Gives it the files of a snapshot that was taken of it; its processes end. From then on it is removed when the
        program ends, and stays if it is killed."""
        snapshot = snapshot if isinstance(snapshot, str) else snapshot["id"]
        taken = (await self.client.rpc.snapshot_list(sandbox=self.id))["snapshots"]
        if not any(snapshot in (s["id"], s.get("name")) for s in taken):
            raise NotFoundError(f"there is no snapshot {snapshot!r} of the sandbox {self.id}", op="restore",
                                hint="fork goes on from another's: client.rpc.sandbox_fork(snapshot=...)")
        await self.client.rpc.snapshot_restore(snapshot=snapshot)
        if not self._detached:
            self.client.link.owned.discard(self.id)
            self.client.link.remove_at_exit(self.id)

    async def undo(self, to_call: Optional[str] = None) -> None:
        """Takes back what the last call of code.run or of a tool did to its files, or all since a call. It must have
        been made with undo=True; its processes end."""
        await self.client.rpc.checkpoint_restore(sandbox=self.id, to_call=to_call)

    async def stats(self) -> t.Stats:
        """What it uses."""
        return await self.client.rpc.sandbox_stats(sandbox=self.id)

    async def why(self) -> "List[t.Denial]":
        """What it was refused so far, each with why, and with what would allow it."""
        return (await self.client.rpc.network_get(sandbox=self.id))["denials"]

    async def allow(self, *names: str) -> None:
        """Lets it reach more names, such as "pypi.org" and "*.example.com:8443"."""
        await self.client.rpc.network_update(sandbox=self.id, add={"allow": [*names]})

    async def extend(self, ttl: float) -> None:
        """Lets it live so many seconds from now on; 0 is no end."""
        await self.client.rpc.sandbox_update(sandbox=self.id, ttl_s=ttl)


def _exec_params(sandbox: str, command: Command, env: Optional[Mapping[str, str]], cwd: Optional[str],
                 user: Optional[str], timeout: Optional[float],
                 options: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    params: Dict[str, Any] = {"sandbox": sandbox, "env": dict(env) if env else None, "cwd": cwd, "user": user,
                              "timeout_s": timeout, **(options or {})}
    if isinstance(command, str):
        params["command"] = command
    elif isinstance(command, (list, tuple)) and all(isinstance(word, (str, os.PathLike)) for word in command):
        params["argv"] = [os.fspath(word) for word in command]
    else:
        raise InvalidArgumentError(f"{command!r} is no command", op="run", field="command",
                                   hint='give a string for the shell, or a list of strings: ["ls", "-l"]')
    return params


def _input(stdin: Union[str, bytes]) -> "tuple[str, str]":
    if not isinstance(stdin, (str, bytes)):
        raise InvalidArgumentError(f"stdin of {type(stdin).__name__} is no input", op="run", field="stdin",
                                   hint="give str or bytes; exec(..., stdin=True) leaves it open to be written to")
    return pack(stdin)


def _flags(params: Dict[str, Any]) -> "tuple[List[str], List[str]]":
    """params as flags of hutch create, and the names of those that it has none for."""
    flags: List[str] = []
    rest: List[str] = []
    limits = params.pop("limits", {})
    network = params.pop("network", {})
    plain = {
        "--name": params.pop("name", None), "--workdir": params.pop("workdir", None),
        "--user": params.pop("user", None), "--hostname": params.pop("hostname", None),
        "--ttl": params.pop("ttl_s", None), "--idle": params.pop("idle_s", None),
        "--seccomp": params.pop("seccomp", None),
        "--cpus": limits.pop("cpus", None), "--memory": limits.pop("memory_bytes", None),
        "--disk": limits.pop("disk_bytes", None), "--pids-limit": limits.pop("pids", None),
        "--timeout": limits.pop("timeout_s", None), "--network": network.pop("mode", None),
    }
    flags += [f"{flag}={value}" for flag, value in plain.items() if value is not None]
    if params.pop("undo", False):
        flags.append("--undo")
    for flag, values in {
        "--label": [f"{k}={v}" for k, v in params.pop("labels", {}).items()],
        "--allow": network.pop("allow", []), "--block": network.pop("block", []),
        "--allow-cidr": network.pop("allow_cidrs", []), "--block-cidr": network.pop("block_cidrs", []),
    }.items():
        flags += [f"{flag}={value}" for value in values]
    rest += [*params, *limits, *network]
    return flags, rest
