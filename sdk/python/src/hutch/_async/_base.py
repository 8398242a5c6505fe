"""What the parts of the package need of a client."""

from typing import Any, Callable, Dict, Optional, Protocol, Sequence


class AsyncCaller(Protocol):
    """Calls methods of the daemon."""

    async def call(self, method: str, params: Dict[str, Any], fds: Sequence[int] = (),
                   on_progress: Optional[Callable[[Any], None]] = None) -> Any:
        """Returns the result, or raises a HutchError."""
