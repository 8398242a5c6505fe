"""The way to one daemon: a connection that is made at the first call, and again when it was lost."""

import atexit
import os
import subprocess
import threading
from typing import Dict, Optional, Set

from . import _find
from ._connection import Connection
from .errors import ConnectionLostError, HutchError, InvalidArgumentError


class Link:
    """A connection and how to make it again. The lock is held while one is made; owned are the sandboxes that live as
    long as the connection does, which its successor claims."""

    def __init__(self, socket: Optional[str], private: bool, token: Optional[str], log: Optional[str]) -> None:
        self.owned: Set[str] = set()
        self.closed = False
        self._socket = socket
        self._private = private
        self._token = token
        self._log = log
        self._lock = threading.Lock()
        self._connection: Optional[Connection] = None
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._pid = 0  # of the process that has connected: a connection is not for those that it forks

    def ready(self) -> Optional[Connection]:
        """The connection, if there is one."""
        connection = self._connection
        if connection is None or connection.lost or self._pid != os.getpid():
            return None
        return connection

    def connect(self) -> Connection:
        """The connection, which is made if there is none. It may take as long as a daemon takes to start."""
        with self._lock:
            connection = self.ready()
            if connection is not None:
                return connection
            if self.closed or self._private and self._connection is not None:
                why = "the client is closed" if self.closed else "the private daemon has ended"
                raise ConnectionLostError(why, sent=False, op="connect", hint="make another client")
            if self._pid not in (0, os.getpid()):
                self.owned = set()  # the parent's
            connection = self._open()
            self._connection, self._pid = connection, os.getpid()
            self._claim(connection)
            return connection

    def close(self) -> None:
        """Ends the connection; a private daemon has ended on return."""
        self.closed = True
        connection = self.ready()
        if connection is not None:
            connection.close()
        if self._process is not None and self._pid == os.getpid():
            self._process.wait()

    def environment(self) -> Dict[str, str]:
        """What makes the hutch command talk to the same daemon."""
        if self._private:
            raise InvalidArgumentError("a private daemon cannot take this folder of the host's", op="connect",
                                       hint="use the shared daemon, or upload and download files one by one")
        env = {"HUTCH_SOCKET": self._socket or _find.socket_path()}
        if self._token:
            env["HUTCH_TOKEN"] = self._token
        return env

    def remove_at_exit(self, ident: str) -> None:
        """Removes a sandbox that belongs to no connection when the program ends."""
        pid = os.getpid()

        def remove() -> None:
            if os.getpid() != pid:
                return  # a child that was forked
            try:
                self.connect().call("sandbox.remove", {"sandbox": ident}).reply.result()
            except HutchError:
                pass  # it is gone
        atexit.register(remove)

    def _open(self) -> Connection:
        if self._private:
            s, self._process = _find.start_private(self._log)
        else:
            path = self._socket or _find.socket_path()
            s = _find.dial(path) or _find.start_shared(path, self._token)
        connection = Connection(s, self._lost)
        try:
            token = self._token if self._token is not None else _find.token()
            if token:
                connection.call("system.authenticate", {"token": token}).reply.result()
        except BaseException:
            connection.close()
            raise
        return connection

    def _lost(self) -> None:
        """Connects again at once where sandboxes hang on it: the next daemon waits ten seconds for them to be claimed."""
        if self.owned and not self.closed and not self._private:
            try:
                self.connect()
            except (HutchError, OSError):
                pass  # the next call says so

    def _claim(self, connection: Connection) -> None:
        """Ties the sandboxes of the connection that was lost to its successor. Those that are gone say so when they are
        used."""
        for ident in sorted(self.owned):
            try:
                connection.call("sandbox.claim", {"sandbox": ident}).reply.result()
            except ConnectionLostError:
                raise
            except HutchError:
                self.owned.discard(ident)
