"""What a sandbox is to be."""

import os
import re
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from .errors import InvalidArgumentError

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
_UNIT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def size(value: Union[int, str], name: str) -> int:
    """A number of bytes: 1048576, "512m" and "2g" (powers of 1024, as the command line has them)."""
    if isinstance(value, int):
        return value
    m = _SIZE.fullmatch(value)
    if m is None:
        raise InvalidArgumentError(f"{name} {value!r} is no size", op="create", field=name, hint='try "512m" or "2g"')
    return int(float(m.group(1)) * (1 << _UNIT[m.group(2).lower()]))


@dataclass
class SandboxConfig:
    """What a sandbox is made of; Sandbox.create takes the same by name. Exactly one of image and template counts; without
    any it is the image "host": the programs of this machine, read-only.

    workspace is a folder of this machine that it works on, at /workspace, by default as an overlay: what it changes there
    waits for Workspace.apply. volumes are folders of hutch's own by where they are mounted. allow lists the names that it
    may reach (without any it reaches nothing), network is a whole policy or its mode. memory and disk are bytes or "2g",
    timeout (of each command), ttl and idle are seconds. options are further params of sandbox.create (docs/rpc.md):
    {"limits": {"best_effort": True}, "network": {"allow_cidrs": ["203.0.113.0/24"]}} is joined with the rest."""

    image: Optional[str] = None
    template: Optional[str] = None
    name: Optional[str] = None
    workspace: Optional[str] = None
    workspace_mode: str = "overlay"  # overlay, ro or rw
    volumes: Mapping[str, str] = field(default_factory=dict)  # {"/data": "name"}
    mounts: Sequence[Mapping[str, Any]] = ()  # of docs/rpc.md, Mount
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: Optional[str] = None
    user: Optional[str] = None
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: Optional[float] = None
    memory: Union[int, str, None] = None
    disk: Union[int, str, None] = None
    pids: Optional[int] = None
    timeout: Optional[float] = None
    ttl: Optional[float] = None
    idle: Optional[float] = None
    allow: Sequence[str] = ()
    block: Sequence[str] = ()
    network: Union[str, Mapping[str, Any], None] = None
    undo: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def hosted(cls, **more: Any) -> "SandboxConfig":
        """The usual limits of a hosted product: 2 CPUs, 4 GB of memory, 10 GB of disk, one hour. A pool for it has
        limit=10 at once."""
        return cls(**{"cpus": 2, "memory": "4g", "disk": "10g", "ttl": 3600, **more})

    @classmethod
    def of(cls, config: "Optional[SandboxConfig]", **given: Any) -> "SandboxConfig":
        """config, changed by what is given: what is None is not."""
        values = {f.name: getattr(config, f.name) for f in fields(cls)} if config else {}
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)

    @property
    def folders(self) -> bool:
        """Whether folders of this machine are wanted."""
        return self.workspace is not None or any(m.get("source") for m in self.mounts)

    def params(self) -> Dict[str, Any]:
        """The params of sandbox.create."""
        params: Dict[str, Any] = {
            "image": self.image if self.image or self.template else "host", "template": self.template,
            "name": self.name, "env": dict(self.env) or None, "workdir": self.workdir, "user": self.user,
            "labels": dict(self.labels) or None, "ttl_s": self.ttl, "idle_s": self.idle, "undo": self.undo or None,
            "limits": self._limits() or None, "network": self._network(), "mounts": self._mounts() or None,
        }
        if self.workspace is not None:
            params["workspace"] = {"path": os.path.abspath(self.workspace), "mode": self.workspace_mode}
        for name, value in self.options.items():
            own = params.get(name)
            params[name] = _joined(own, value) if isinstance(own, dict) and isinstance(value, Mapping) else value
        return {k: v for k, v in params.items() if v is not None}

    def _limits(self) -> Dict[str, Any]:
        limits: Dict[str, Any] = {"cpus": self.cpus, "pids": self.pids, "timeout_s": self.timeout}
        if self.memory is not None:
            limits["memory_bytes"] = size(self.memory, "memory")
        if self.disk is not None:
            limits["disk_bytes"] = size(self.disk, "disk")
        return {k: v for k, v in limits.items() if v is not None}

    def _network(self) -> Optional[Dict[str, Any]]:
        if self.network is not None and not isinstance(self.network, (str, Mapping)):
            raise InvalidArgumentError(f"network is {self.network!r}", op="create", field="network",
                                       hint='it is "none", "open" or a policy; allow=["pypi.org"] makes one')
        if isinstance(self.allow, str) or isinstance(self.block, str):
            raise InvalidArgumentError("allow and block are lists of names", op="create", field="allow",
                                       hint='try allow=["pypi.org"]')
        policy: Dict[str, Any] = {"mode": self.network} if isinstance(self.network, str) else dict(self.network or {})
        if self.allow:
            policy["allow"] = [*policy.get("allow", ()), *self.allow]
            policy.setdefault("mode", "allow")
        if self.block:
            policy["block"] = [*policy.get("block", ()), *self.block]
            policy.setdefault("mode", "open")
        return policy or None

    def _mounts(self) -> List[Dict[str, Any]]:
        volumes = [{"volume": name, "target": target, "mode": "rw"} for target, name in self.volumes.items()]
        return [*(dict(m) for m in self.mounts), *volumes]


def _joined(own: Dict[str, Any], more: Mapping[str, Any]) -> Dict[str, Any]:
    """own and more: of what both have, lists are joined, and else more counts."""
    joined = {**own, **more}
    for name in own.keys() & more.keys():
        if isinstance(own[name], list) and isinstance(more[name], (list, tuple)):
            joined[name] = [*own[name], *more[name]]
    return joined
