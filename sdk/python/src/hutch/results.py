"""What commands and code give back."""

import base64
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, cast

from . import types as t
from .errors import CommandError


@dataclass(frozen=True)
class Output:
    """A piece of a command's output. dropped counts the bytes before it that are lost: its reader was too slow."""

    stream: str  # "stdout" or "stderr"
    data: bytes
    offset: int = 0  # of data in its stream
    dropped: int = 0

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class ExecutionResult:
    """How a command ended. verdict says why: ok, nonzero, signal, timeout_wall, timeout_cpu, oom, pids, disk, output,
    denied, killed, not_run, sandbox, cancelled or lost. denials are what the sandbox refused meanwhile, each with what
    would allow it."""

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool = False
    verdict: str = "ok"
    signal: str = ""  # such as "SIGKILL"; exit_code is then 128+n
    duration_ms: float = 0
    truncated: bool = False  # the middle of a stream is missing
    denials: List[t.Denial] = field(default_factory=list)
    hint: str = ""
    exec_id: str = ""
    stdout_bytes: bytes = field(default=b"", repr=False)
    stderr_bytes: bytes = field(default=b"", repr=False)
    raw: Optional[t.ExecResult] = field(default=None, repr=False)  # all of the answer

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    def check(self) -> "ExecutionResult":
        """Raises CommandError if the command failed; else returns the result."""
        if not self.ok:
            raise CommandError(self)
        return self

    @classmethod
    def of(cls, raw: t.ExecResult) -> "ExecutionResult":
        out = unpack(raw["stdout"], raw["stdout_encoding"])
        err = unpack(raw["stderr"], raw["stderr_encoding"])
        return cls(
            stdout=out.decode("utf-8", "replace"), stderr=err.decode("utf-8", "replace"), exit_code=raw["exit_code"],
            timed_out=raw["timed_out"], verdict=raw["verdict"], signal=raw.get("signal", ""),
            duration_ms=raw["duration_ms"], truncated=raw["truncated"], denials=raw["denials"],
            hint=raw.get("hint", "") or raw.get("error", ""), exec_id=raw["exec"], stdout_bytes=out, stderr_bytes=err,
            raw=raw)


@dataclass(frozen=True)
class Artifact:
    """Something that code has made besides text: kind is figure, value, table or file. data is empty where it was too
    large, or is no image; path is that of a file in the sandbox."""

    kind: str
    mime_type: str
    data: bytes = field(default=b"", repr=False)
    path: str = ""
    size: int = 0


@dataclass(frozen=True)
class CodeResult:
    """What became of a piece of code. text is the value of its last expression, error what it raised. A notebook shows
    the artifacts."""

    stdout: str
    stderr: str
    text: str
    error: Optional[t.CodeError]
    artifacts: List[Artifact]
    verdict: str
    exit_code: int
    timed_out: bool
    duration_ms: float
    denials: List[t.Denial]
    context: str = ""
    raw: Optional[t.CodeResult] = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """What IPython shows: the last picture, and text. HTML and SVG of a sandbox would run as scripts of the notebook
        and so of its user; who trusts them shows artifacts' data by IPython.display.HTML."""
        text = self.error.get("traceback") or self.error["value"] if self.error else self.stdout + self.text
        bundle: Dict[str, Any] = {"text/plain": text}
        for a in self.artifacts:
            if a.data and a.mime_type in ("image/png", "image/jpeg", "image/gif", "image/webp"):
                bundle[a.mime_type] = base64.b64encode(a.data).decode()
        return bundle, {}

    @classmethod
    def of(cls, raw: t.CodeResult) -> "CodeResult":
        artifacts = []
        for a in raw["artifacts"]:
            binary = a["kind"] == "file" or a["mime_type"].startswith("image/") and a["mime_type"] != "image/svg+xml"
            try:  # it is the sandbox's own word
                data = unpack(a.get("data", ""), "base64" if binary else "utf-8")
            except ValueError:
                data = b""
            artifacts.append(Artifact(a["kind"], a["mime_type"], data, a.get("path", ""), a["size"]))
        return cls(
            stdout=raw["stdout"], stderr=raw["stderr"], text=raw.get("text", ""), error=raw.get("error"),
            artifacts=artifacts, verdict=raw["verdict"], exit_code=raw["exit_code"], timed_out=raw["timed_out"],
            duration_ms=raw["duration_ms"], denials=raw["denials"], context=raw.get("context", ""), raw=raw)


def unpack(data: str, encoding: str) -> bytes:
    """The bytes of a member of the protocol that travels as encoding says."""
    return base64.b64decode(data) if encoding == "base64" else data.encode("utf-8", "surrogatepass")


def pack(data: "str | bytes") -> Tuple[str, str]:
    """data, and how it travels."""
    if isinstance(data, str):
        return data, "utf-8"
    return base64.b64encode(data).decode("ascii"), "base64"


def output_of(params: Dict[str, Any]) -> Output:
    """The piece that a notification exec.output has."""
    n = cast(t.ExecOutputNotification, params)
    return Output(n["stream"], unpack(n["data"], n["encoding"]), n["offset"], n.get("dropped", 0))
