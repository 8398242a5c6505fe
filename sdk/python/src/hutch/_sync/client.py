# Made by make generate of hutch/_async: change that.
"""The client: one daemon, over one connection that is made again when it is lost."""

import os
from types import TracebackType
from typing import Any, Iterator, Callable, Dict, List, Optional, Sequence, Tuple, Type, cast

from .. import types as t
from .._connection import Connection, Sink
from .._link import Link
from ..errors import ConnectionLostError
from ._io import Mailbox, result, run
from ._rpc import Rpc

# EVENTS is how many events may wait for their reader.
EVENTS = 256


class Client:
    """A daemon. Without arguments it is the user's shared one, which the hutch command talks to as well, and which is
    started where none runs. private=True is one of this program's own, which ends with the client.

    It connects at the first call, and again when the connection was lost; sandboxes that live as long as the connection
    are kept over the death of a shared daemon. Safe for any number of threads or tasks. rpc has every method.
    """

    def __init__(self, *, socket: Optional[str] = None, private: bool = False, token: Optional[str] = None,
                 log: Optional[str] = None) -> None:
        self.rpc = Rpc(self)
        self.link = Link(socket, private, token, log)

    def __enter__(self) -> "Client":
        self.connect()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.close()

    def connect(self) -> None:
        """Connects now, and not at the first call, so that what is wrong is known here."""
        self._connected()

    def close(self) -> None:
        """Ends the connection: sandboxes that are not detached are removed. A private daemon has ended on return."""
        run(self.link.close)

    def call(self, method: str, params: Dict[str, Any], fds: Sequence[int] = (),
                   on_progress: Optional[Callable[[Any], None]] = None,
                   on_sent: Optional[Callable[[Callable[[], None]], None]] = None) -> Any:
        """Calls a method by its name (docs/rpc.md). Params that are None are left out. on_sent gets what cancels the
        call, when the request has been written."""
        for again in (True, False):
            try:
                call = (self._connected()).call(method, params, fds, on_progress)
                if on_sent:
                    again = False
                    on_sent(call.cancel)
                return result(call)
            except ConnectionLostError as e:  # the daemon has died, and the next one serves
                if e.sent or not again:
                    raise

    def events(self, *, kinds: Optional[Sequence[str]] = None, sandbox: Optional[str] = None,
                     from_seq: Optional[int] = None, follow: bool = True) -> Iterator[t.EventNotification]:
        """What happens, from now on or from an event on. It goes on after the death of the daemon, without a gap."""
        params = {"kinds": list(kinds) if kinds else None, "sandbox": sandbox, "from_seq": from_seq, "follow": follow,
                  "credit": EVENTS}
        while True:
            box = Mailbox()
            connection, ident, _ = self.follow("events.subscribe", params, "subscription", box.put)
            try:
                owed = 0
                while True:
                    item = box.get()
                    if "lost" in item:
                        break
                    if item["method"] == "events.end":
                        return
                    params["from_seq"] = item["seq"] + 1
                    yield cast(t.EventNotification, item)
                    owed += 1
                    if owed >= EVENTS // 2:
                        result(connection.call("events.credit", {"subscription": ident, "events": owed}))
                        owed = 0
            finally:
                connection.forget(ident)
                if not connection.lost:
                    connection.call("events.unsubscribe", {"subscription": ident})

    def follow(self, method: str, params: Dict[str, Any], member: str, sink: Sink) -> Tuple[Connection, str, Any]:
        """Calls a method whose result has, as member, the id that notifications carry, which go to sink from then on."""
        connection = self._connected()
        reply = result(connection.call(
            method, params, on_result=lambda r: connection.listen(r[member], sink)))
        return connection, reply[member], reply

    def _connected(self) -> Connection:
        connection = self.link.ready()
        return connection if connection is not None else run(self.link.connect)

    def list(self, *, labels: Optional[Dict[str, str]] = None) -> List[t.Sandbox]:
        """The sandboxes that there are, also those that others have made."""
        return (self.rpc.sandbox_list(labels=labels))["sandboxes"]


_shared: Dict[int, Client] = {}


def shared() -> Client:
    """The client of all sandboxes whose maker names none."""
    pid = os.getpid()
    client = _shared.get(pid)
    if client is None or client.link.closed:
        client = _shared[pid] = Client()
    return client
