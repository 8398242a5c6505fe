"""How to wait, for threads. hutch/_async/_io.py has the same for asyncio."""

import concurrent.futures
import queue
from typing import Any, Callable, Dict, TypeVar

from .._connection import CANCEL_WAIT, Call

T = TypeVar("T")


def result(call: Call) -> Any:
    """What the daemon answers. A KeyboardInterrupt cancels the call, and is raised when nothing of it is left."""
    try:
        return call.reply.result()
    except BaseException:
        if not call.reply.done():
            call.cancel()
            concurrent.futures.wait([call.reply], timeout=CANCEL_WAIT)
        raise


def called(value: Any) -> None:
    """Awaits nothing."""


def run(fn: Callable[..., T], *args: Any) -> T:
    return fn(*args)


class Mailbox:
    """What came for one reader. put may be called by any thread."""

    def __init__(self) -> None:
        self._items: "queue.SimpleQueue[Dict[str, Any]]" = queue.SimpleQueue()

    def put(self, item: Dict[str, Any]) -> None:
        self._items.put(item)

    def get(self) -> Dict[str, Any]:
        return self._items.get()
