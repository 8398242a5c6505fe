"""A command that runs in a sandbox."""

import codecs
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Optional, Type, Union

from .. import types as t
from .._connection import Connection
from ..errors import ConnectionLostError, HutchError
from ..results import ExecutionResult, Output, output_of, pack
from ._io import AsyncMailbox, called, result

if TYPE_CHECKING:
    from .client import AsyncClient

# WINDOW is how many bytes of output may be on their way or wait for their reader.
WINDOW = 4 << 20


class AsyncProcess:
    """A command that was started and may still run. Iterating gives its output as it comes, and ends with it; wait
    returns its result. As a context manager it is killed at the end of the block, if it still runs."""

    def __init__(self, client: "AsyncClient", exec_id: str, pid: int = 0) -> None:
        self.id = exec_id
        self.pid = pid  # in the sandbox
        self._client = client
        self._next = {"stdout": 0, "stderr": 0}  # of the first bytes that the reader has not got
        self._over = False

    def __repr__(self) -> str:
        return f"<AsyncProcess {self.id}>"

    async def __aenter__(self) -> "AsyncProcess":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if not self._over:
            await self.kill()

    async def __aiter__(self) -> AsyncIterator[Output]:
        """The output, from where the last iteration ended. A reader that is slower than the command does not hold it
        up: what it falls too far behind of is dropped, and dropped of the next piece counts it. It goes on after the
        death of the daemon, without a gap."""
        while not self._over:
            box = AsyncMailbox()
            connection, ident, reply = await self._client.follow(
                "exec.attach", {"exec": self.id, "from": self._next, "credit_bytes": WINDOW, "encoding": "base64"},
                "attachment", box.put)
            try:
                owed = 0
                while True:
                    item = await box.get()
                    if "lost" in item:
                        break
                    if item["method"] == "exec.exited":
                        self._over = True
                        return
                    output = output_of(item)
                    self._next[output.stream] = output.offset + len(output.data)
                    yield output
                    owed += len(output.data)
                    if owed >= WINDOW // 2:
                        owed = await self._give(connection, ident, owed)
            finally:
                connection.forget(ident)
                if not self._over and not connection.lost:
                    connection.call("exec.detach", {"exec": self.id, "attachment": ident})

    async def copy(self, on_stdout: Optional[Callable[[str], Any]], on_stderr: Optional[Callable[[str], Any]]) -> None:
        """Hands out the output as text, until the command has ended."""
        take = {"stdout": on_stdout, "stderr": on_stderr}
        decode = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in take}
        async for output in self:
            fn = take[output.stream]
            text = decode[output.stream].decode(output.data)
            if fn and text:
                await called(fn(text))
        for stream, fn in take.items():
            text = decode[stream].decode(b"", True)
            if fn and text:
                await called(fn(text))

    async def _give(self, connection: Connection, ident: str, owed: int) -> int:
        """Lets the daemon send as much as was read. What fails here fails again where the reader sees it."""
        try:
            await result(connection.call("exec.credit", {"exec": self.id, "attachment": ident, "bytes": owed}))
        except HutchError:
            pass
        return 0

    async def wait(self, timeout: Optional[float] = None, *, check: bool = False) -> ExecutionResult:
        """Its result, when it has ended. After timeout seconds it raises DeadlineExceededError; the command goes on."""
        while True:
            try:
                raw = await self._client.rpc.exec_wait(exec=self.id, wait_s=timeout)
                break
            except ConnectionLostError as e:
                if not e.sent:
                    raise
        self._over = True
        res = ExecutionResult.of(raw)
        return res.check() if check else res

    async def info(self) -> t.Exec:
        """What the daemon knows of it."""
        return await self._client.rpc.exec_get(exec=self.id)

    async def write(self, data: Union[str, bytes]) -> None:
        """Writes to its stdin, or types into its terminal. It returns when all of it is in the pipe."""
        view = data.encode() if isinstance(data, str) else data
        for start in range(0, len(view), 1 << 20):
            text, encoding = pack(view[start:start + (1 << 20)])
            params: Dict[str, Any] = {"exec": self.id, "data": text, "encoding": encoding}
            await self._client.call("exec.write", params)

    async def close_stdin(self) -> None:
        await self._client.rpc.exec_close_stdin(exec=self.id)

    async def signal(self, name: Union[str, int]) -> None:
        """Sends it a signal, such as "TERM" or signal.SIGTERM."""
        await self._client.rpc.exec_signal(exec=self.id, signal=name if isinstance(name, str) else str(int(name)))

    async def kill(self) -> None:
        """Kills it and everything that it has started."""
        await self._client.rpc.exec_kill(exec=self.id)
        self._over = True

    async def resize(self, rows: int, cols: int) -> None:
        """Gives its terminal another size."""
        await self._client.rpc.exec_resize(exec=self.id, rows=rows, cols=cols)
