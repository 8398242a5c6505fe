"""How to wait, for asyncio. hutch/_sync/_io.py has the same for threads."""

import asyncio
import inspect
from collections import deque
from typing import Any, Callable, Deque, Dict, TypeVar

from .._connection import CANCEL_WAIT, Call

T = TypeVar("T")


async def result(call: Call) -> Any:
    """What the daemon answers. A task that is cancelled cancels the call, and ends when nothing of it is left."""
    try:
        return await asyncio.wrap_future(call.reply)
    except asyncio.CancelledError:
        call.cancel()
        await asyncio.wait([asyncio.wrap_future(call.reply)], timeout=CANCEL_WAIT)
        raise


async def called(value: Any) -> None:
    """Awaits what a callback has returned, if that can be."""
    if inspect.isawaitable(value):
        await value


async def run(fn: Callable[..., T], *args: Any) -> T:
    """Calls what blocks, elsewhere."""
    return await asyncio.to_thread(fn, *args)


class AsyncMailbox:
    """What came for one reader. put may be called by any thread."""

    def __init__(self) -> None:
        self._items: Deque[Dict[str, Any]] = deque()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()

    def put(self, item: Dict[str, Any]) -> None:
        self._items.append(item)
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:
            pass  # the loop is closed: nobody reads any more

    async def get(self) -> Dict[str, Any]:
        while not self._items:
            self._wake.clear()
            if not self._items:
                await self._wake.wait()
        return self._items.popleft()
