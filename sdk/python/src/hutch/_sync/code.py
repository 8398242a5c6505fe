# Made by make generate of hutch/_async: change that.
"""Code in a sandbox."""

from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence

from .. import types as t
from ..results import CodeResult

if TYPE_CHECKING:
    from .client import Client


class Code:
    """Runs code in an interpreter that is kept for the next run: variables and imports persist in a context."""

    def __init__(self, client: "Client", sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    def run(self, code: str, language: str = "python", *, context: Optional[str] = None, fresh: bool = False,
                  timeout: Optional[float] = None, env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None,
                  user: Optional[str] = None, allowed_imports: Optional[Sequence[str]] = None,
                  on_stdout: Optional[Callable[[str], None]] = None,
                  on_stderr: Optional[Callable[[str], None]] = None) -> CodeResult:
        """Runs a piece of code. What it raises is in the result, as are the value of its last expression, figures and
        tables. fresh runs it in an interpreter of its own; timeout is in seconds, 30 by default. on_stdout and on_stderr
        get what it writes as it comes, up to 64 KiB; the result has it as without."""
        def tell(news: "t.ProgressNotification") -> None:
            listener = on_stdout if news.get("stream") == "stdout" else on_stderr
            if news["kind"] == "code.output" and listener is not None:
                listener(news.get("text", ""))

        raw = self._client.rpc.code_run(
            sandbox=self._sandbox, code=code, language=language, context=context, fresh=fresh or None,
            timeout_s=timeout, env=env, cwd=cwd, user=user,
            allowed_imports=list(allowed_imports) if allowed_imports else None,
            on_progress=tell if on_stdout or on_stderr else None)
        return CodeResult.of(raw)

    def contexts(self) -> "List[t.CodeContext]":
        """The interpreters that are kept."""
        return (self._client.rpc.code_contexts(sandbox=self._sandbox))["contexts"]

    def end_context(self, context: str, language: str = "python") -> None:
        """Ends an interpreter: the next run of this context begins anew."""
        self._client.rpc.code_end_context(sandbox=self._sandbox, context=context, language=language)
