"""Errors. What the daemon refuses is a subclass of HutchError by its code, with a hint about what to do."""

from typing import TYPE_CHECKING, Any, Dict, Optional, Type

if TYPE_CHECKING:
    from .results import ExecutionResult


class HutchError(Exception):
    """A call that failed. code is the daemon's (docs/rpc.md, "Errors"), op what was tried, hint what to do about it,
    and field the param at fault, where there is one."""

    code = "internal"

    def __init__(self, message: str, *, op: str = "", hint: str = "", field: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.hint = hint
        self.field = field
        if code:
            self.code = code

    def __str__(self) -> str:
        text = f"{self.op}: {self.message}" if self.op and not self.message.startswith(self.op) else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class NotFoundError(HutchError):
    code = "not_found"


class AlreadyExistsError(HutchError):
    code = "already_exists"


class InvalidArgumentError(HutchError, ValueError):
    code = "invalid_argument"


class FailedPreconditionError(HutchError):
    code = "failed_precondition"


class PermissionDeniedError(HutchError):
    code = "permission_denied"


class ResourceExhaustedError(HutchError):
    code = "resource_exhausted"


class DeadlineExceededError(HutchError):
    code = "deadline_exceeded"


class UnavailableError(HutchError):
    code = "unavailable"


class UnimplementedError(HutchError):
    code = "unimplemented"


class CanceledError(HutchError):
    code = "canceled"


class ConnectionLostError(UnavailableError):
    """The daemon closed the connection. sent says whether it may have got the request: if not, nothing was done."""

    def __init__(self, message: str, *, sent: bool, op: str = "", hint: str = "") -> None:
        super().__init__(message, op=op, hint=hint)
        self.sent = sent


class CommandError(HutchError):
    """A command that failed, where check=True was asked for. result is what became of it."""

    code = "command"

    def __init__(self, result: "ExecutionResult") -> None:
        end = result.stderr.strip().splitlines()[-1:] or result.stdout.strip().splitlines()[-1:]
        end = ["".join(c if c.isprintable() else "\ufffd" for c in line[:500]) for line in end]  # no terminal obeys it
        what = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        super().__init__(f"the command failed: {what}, verdict {result.verdict}" + "".join(f": {t}" for t in end),
                         hint=result.hint)
        self.result = result


_by_code: Dict[str, Type[HutchError]] = {
    kind.code: kind
    for kind in (NotFoundError, AlreadyExistsError, InvalidArgumentError, FailedPreconditionError,
                 PermissionDeniedError, ResourceExhaustedError, DeadlineExceededError, UnavailableError,
                 UnimplementedError, CanceledError)
}

# JSON-RPC's own, which have no code by name.
_by_number = {-32601: "unimplemented", -32602: "invalid_argument", -32600: "invalid_argument"}


def from_wire(error: Dict[str, Any], method: str) -> HutchError:
    """The exception for the error member of a response."""
    data: Dict[str, Any] = error.get("data") or {}
    code: Optional[str] = data.get("code") or _by_number.get(error.get("code", 0), "internal")
    return _by_code.get(str(code), HutchError)(
        str(error.get("message", "")), op=str(data.get("op") or method), hint=str(data.get("hint") or ""),
        field=str(data.get("field") or ""), code=str(code))
