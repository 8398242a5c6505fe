"""One connection to hutchd: JSON-RPC 2.0, one value a line (docs/rpc.md).

A thread reads and hands replies to whoever waits for them, so that calls of many threads, and of many event loops, share
one connection. Calls do not wait for each other.
"""

import array
import errno
import json
import os
import socket
import threading
import weakref
from concurrent.futures import Future
from typing import Any, Callable, Dict, Optional, Sequence

from .errors import ConnectionLostError, InvalidArgumentError, from_wire

# MAX_LINE is the longest request in bytes, MAX_FDS how many descriptors ride on one.
MAX_LINE = 4 << 20
MAX_FDS = 8
# CANCEL_WAIT is how long, in seconds, a call that was cancelled waits for its answer, which says that nothing is left.
CANCEL_WAIT = 10.0

Sink = Callable[[Dict[str, Any]], None]


# The connections of this process. A child that it forks has copies of their sockets, which would keep them open.
_open: "weakref.WeakSet[Connection]" = weakref.WeakSet()


def _forked() -> None:
    for connection in list(_open):
        connection._socket.close()


os.register_at_fork(after_in_child=_forked)


class Call:
    """A call under way. reply is done, with the result or the error, by the thread that reads."""

    def __init__(self, connection: "Connection", number: int, method: str, on_progress: Optional[Sink],
                 on_result: Optional[Sink]) -> None:
        self.method = method
        self.reply: "Future[Any]" = Future()
        self.reply.set_running_or_notify_cancel()  # only the reader may end it
        self.on_progress = on_progress
        self.on_result = on_result
        self._connection = connection
        self._number = number

    def cancel(self) -> None:
        """Tells the daemon that nobody wants the result. What the call has started ends."""
        self._connection.cancel(self._number)


class Connection:
    """A connection. Its lock guards calls, sinks and lost; another one keeps requests from mixing."""

    def __init__(self, s: socket.socket, on_lost: Callable[[], None] = lambda: None) -> None:
        """on_lost is called on the reading thread, as the last thing that it does."""
        self._socket = s
        self._on_lost = on_lost
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._calls: Optional[Dict[int, Call]] = {}  # None once it is lost
        self._sinks: Dict[str, Sink] = {}  # of attachments and subscriptions, by id
        self._next = 0
        self._last = 0  # the number of the request that was written last, 0 of a notification
        self._why = "the connection is closed"
        _open.add(self)
        self._reader = threading.Thread(target=self._read, name="hutch-reader", daemon=True)
        self._reader.start()

    @property
    def lost(self) -> bool:
        return self._calls is None

    def call(self, method: str, params: Dict[str, Any], fds: Sequence[int] = (), on_progress: Optional[Sink] = None,
             on_result: Optional[Sink] = None) -> Call:
        """Sends a request. on_result gets the result on the reading thread, before any line after it is looked at."""
        params = {k: v for k, v in params.items() if v is not None}
        if fds:
            params["fds"] = len(fds)
        if on_progress:
            params["progress"] = True
        with self._lock:
            if self._calls is None:
                raise ConnectionLostError(self._why, sent=False, op=method)
            self._next += 1
            number = self._next
            call = self._calls[number] = Call(self, number, method, on_progress, on_result)
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, fds)
        except BaseException:
            with self._lock:
                if self._calls is not None:
                    self._calls.pop(number, None)
            raise
        return call

    def cancel(self, number: int) -> None:
        try:
            self._send({"jsonrpc": "2.0", "method": "rpc.cancel", "params": {"id": number}}, ())
        except ConnectionLostError:
            pass  # it is cancelled

    def listen(self, ident: str, sink: Sink) -> None:
        """Hands the notifications of an attachment or subscription to sink, on the reading thread."""
        with self._lock:
            if self._calls is not None:
                self._sinks[ident] = sink
                return
        sink({"lost": self._why})

    def forget(self, ident: str) -> None:
        with self._lock:
            self._sinks.pop(ident, None)

    def close(self) -> None:
        """Ends the connection, and with it what the daemon runs for its calls."""
        self._fail("the connection is closed")
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def _send(self, message: Dict[str, Any], fds: Sequence[int]) -> None:
        method = message["method"]
        try:
            line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        except (TypeError, ValueError) as e:
            raise InvalidArgumentError(f"the params cannot be sent as JSON: {e}", op=method) from e
        if len(line) > MAX_LINE:
            raise InvalidArgumentError(f"the request has {len(line)} bytes, at most {MAX_LINE} are possible", op=method,
                                       hint="write large files by Files.upload or Files.write, which stream")
        if len(fds) > MAX_FDS:
            raise InvalidArgumentError(f"{len(fds)} file descriptors, at most {MAX_FDS} are possible", op=method)
        sent = 0
        try:
            with self._sending:
                if self._calls is None:
                    raise ConnectionLostError(self._why, sent=False, op=method)
                if fds:  # they ride on the first bytes
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                    sent = self._socket.sendmsg([line], rights)
                self._last = message.get("id", 0)
                while sent < len(line):
                    sent += self._socket.send(line[sent:] if sent else line)
        except OSError as e:
            self._fail(f"write to the daemon: {e.strerror}")
            raise ConnectionLostError(self._why, sent=sent > 0, op=method) from e
        except BaseException:  # KeyboardInterrupt: half a line may be out, and nothing sensible can follow
            if 0 < sent < len(line):
                self._fail("a request was interrupted while it was written")
            raise

    def _read(self) -> None:
        why, unread = "the daemon closed the connection", False
        rest = bytearray()
        try:
            while True:
                piece = self._socket.recv(1 << 18)
                if not piece:
                    break
                rest += piece
                if b"\n" not in piece:
                    continue
                *lines, tail = bytes(rest).split(b"\n")
                rest = bytearray(tail)
                for line in lines:
                    self._dispatch(json.loads(line))
        except OSError as e:
            why, unread = f"read from the daemon: {e.strerror}", e.errno == errno.ECONNRESET
        except Exception as e:  # whatever it is, those who wait must hear of it
            why = f"the daemon sent a line that is no JSON-RPC message: {e}"
        self._fail(why, unread)
        self._on_lost()

    def _dispatch(self, message: Dict[str, Any]) -> None:
        method = message.get("method")
        if method is not None:
            self._notify(method, message["params"])
            return
        with self._lock:
            call = self._calls.pop(message["id"], None) if self._calls is not None else None
        if call is None:
            return
        if "error" in message:
            call.reply.set_exception(from_wire(message["error"], call.method))
            return
        if call.on_result:
            call.on_result(message["result"])
        call.reply.set_result(message["result"])

    def _notify(self, method: str, params: Dict[str, Any]) -> None:
        if method == "progress":
            with self._lock:
                call = self._calls.get(params["request"]) if self._calls is not None else None
            if call and call.on_progress:
                call.on_progress(params)
            return
        with self._lock:
            sink = self._sinks.get(params.get("attachment") or params.get("subscription") or "")
        if sink:
            sink({**params, "method": method})

    def _fail(self, why: str, unread: bool = False) -> None:
        """Ends the connection; the first reason stays. What the other end has not read resets a connection
        (net/unix/af_unix.c, unix_release_sock): then at least the end of what was written last was not read."""
        with self._lock:
            calls, self._calls = self._calls, None
            if calls is None:
                return
            self._why = why
            sinks, self._sinks = self._sinks, {}
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the reader
        except OSError:
            pass
        self._socket.close()
        for number, call in calls.items():
            call.reply.set_exception(ConnectionLostError(
                why, sent=not unread or number != self._last, op=call.method, hint="what the call has begun may go on: look before it is made again"))
        for sink in sinks.values():
            sink({"lost": why})
