"""Sandboxes that wait for whoever asks."""

from types import TracebackType
from typing import TYPE_CHECKING, Optional, Type

from .. import types as t
from .._ids import exec_id
from ..config import SandboxConfig
from ..errors import DeadlineExceededError, HutchError, ResourceExhaustedError
from . import client as _client
from .sandbox import AsyncSandbox

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncSandboxPool:
    """A pool of sandboxes that are ready. limit is how many may be in use at once, None for any. At the end of its with
    block it is removed with those that wait."""

    def __init__(self, client: "AsyncClient", pool: t.Pool, limit: Optional[int] = None) -> None:
        self.client = client
        self.name = pool["name"]
        self.limit = limit

    @classmethod
    async def create(cls, image: Optional[str] = None, *, size: int = 2, name: Optional[str] = None,
                     limit: Optional[int] = None, config: Optional[SandboxConfig] = None,
                     client: "Optional[AsyncClient]" = None) -> "AsyncSandboxPool":
        """Makes a pool; it returns when the first sandbox waits. config has no name, workspace and mounts, which belong
        to one user of a sandbox."""
        client = client or _client.shared()
        config = SandboxConfig.of(config, image=image)
        name = name or "pool-" + exec_id()[3:]
        params = {"name": name, "size": size, "sandbox": config.params()}
        return cls(client, await client.call("pool.create", params), limit)

    async def __aenter__(self) -> "AsyncSandboxPool":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.remove()

    async def acquire(self, timeout: float = 30, *, name: Optional[str] = None) -> AsyncSandbox:
        """Takes a sandbox, which is removed at the end of its with block or by release. It waits for at most timeout
        seconds."""
        if self.limit is not None and (await self.status())["in_use"] >= self.limit:
            raise ResourceExhaustedError(f"all {self.limit} sandboxes of the pool {self.name} are in use", op="acquire",
                                         hint="release one first")
        record = await self.client.rpc.pool_acquire(pool=self.name, wait_ms=timeout * 1000, name=name,
                                                    owner="connection")
        if record is None:
            raise DeadlineExceededError(f"no sandbox of the pool {self.name} was ready within {timeout} s", op="acquire",
                                        hint="make the pool larger")
        self.client.link.owned.add(record["id"])
        return AsyncSandbox(self.client, record, detached=False)

    async def release(self, sandbox: AsyncSandbox) -> None:
        """Destroys a sandbox that was acquired: nobody gets it again."""
        await sandbox.remove()

    async def status(self) -> t.Pool:
        """How it is filled."""
        return await self.client.rpc.pool_status(pool=self.name)

    async def resize(self, size: int) -> None:
        await self.client.rpc.pool_resize(pool=self.name, size=size)

    async def remove(self) -> None:
        """Removes it with the sandboxes that wait; those in use stay."""
        try:
            await self.client.rpc.pool_remove(pool=self.name)
        except HutchError as e:
            if e.code != "not_found":
                raise
