"""The files of a sandbox."""

import io
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, List, Optional, Union

from .. import types as t
from .._find import run_hutch
from .._pipes import Drain, Feeder, Replacement
from ..errors import InvalidArgumentError, NotFoundError
from ..results import pack, unpack
from ._io import run

if TYPE_CHECKING:
    from .client import AsyncClient

# INLINE is the size in bytes up to which a file travels in the call itself, and not through a pipe.
INLINE = 256 << 10

Local = Union[str, "os.PathLike[str]"]


class AsyncFiles:
    """The files of a sandbox. Paths are those inside; relative ones start at its working directory. What is read and
    written has the rights of user, by default the sandbox's."""

    def __init__(self, client: "AsyncClient", sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    async def read(self, path: str, *, user: Optional[str] = None) -> bytes:
        """What a file holds."""
        first = await self._client.rpc.fs_read(sandbox=self._sandbox, path=path, user=user, limit=INLINE,
                                               encoding="base64")
        data = unpack(first["data"], first["encoding"])
        if first["eof"]:
            return data
        rest = io.BytesIO()
        await self._drain(path, rest, user, first["next"])
        return data + rest.getvalue()

    async def read_text(self, path: str, *, encoding: str = "utf-8", user: Optional[str] = None) -> str:
        """What a text file holds."""
        return (await self.read(path, user=user)).decode(encoding)

    async def write(self, path: str, data: Union[str, bytes, bytearray, memoryview, BinaryIO], *, mode: Optional[str] = None,
                    append: bool = False, user: Optional[str] = None) -> None:
        """Writes a file in a single step, and makes missing folders above it. mode is octal, "0755". data may be an
        open file, which is copied in bounded memory."""
        params: Dict[str, Any] = {"sandbox": self._sandbox, "path": path, "mode": mode, "append": append or None,
                                  "user": user, "parents": True}
        if isinstance(data, (bytearray, memoryview)):
            data = bytes(data)
        if isinstance(data, (str, bytes)) and len(data) <= INLINE:
            params["data"], params["encoding"] = pack(data)
            await self._client.call("fs.write", params)
            return
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, bytes):
            params["size_bytes"] = len(data)
            data = io.BytesIO(data)
        if isinstance(data, io.TextIOBase) or not callable(getattr(data, "read", None)):
            raise InvalidArgumentError(f"data of {type(data).__name__} cannot be written", op="write", field="data",
                                       hint="give str, bytes or a file that was opened in mode 'rb'")
        await self._feed(params, data)

    async def upload(self, local: Local, path: str, *, mode: Optional[str] = None, user: Optional[str] = None) -> None:
        """Copies a file or a folder of this machine into the sandbox. path is that of the copy, or ends in "/" and is the
        folder that it goes to. What a folder there holds already stays, but for what has the same name. mode is a
        file's."""
        local = os.fspath(local)
        if path.endswith("/"):
            path += os.path.basename(local.rstrip("/"))
        if os.path.isdir(local):
            await self.mkdir(path, user=user)
            await self._copy(os.path.abspath(local) + "/.", f"{self._sandbox}:{path}", user)
            return
        with open(local, "rb") as f:
            st = os.fstat(f.fileno())
            await self._feed({"sandbox": self._sandbox, "path": path, "user": user, "parents": True,
                              "size_bytes": st.st_size, "mode": mode or f"{st.st_mode & 0o777:04o}"}, f)

    async def download(self, path: str, local: Local, *, user: Optional[str] = None) -> "List[str]":
        """Copies a file or a folder of the sandbox to this machine. local is the copy itself. A file takes its place when
        all of it is there, and a new one has mode 0600. Of a folder this leaves out what is dangerous here: devices, links
        that lead out of it, and what programs of yours would obey, such as .envrc and hooks of git (docs/guarded.md).
        It returns what was left out, a line for each reason."""
        local = os.fspath(local)
        if (await self.stat(path, user=user))["type"] == "folder":
            os.makedirs(local, exist_ok=True)
            said = await self._copy(f"{self._sandbox}:{path}/.", os.path.abspath(local), user)
            return [line.removeprefix("hutch: ") for line in said.splitlines()]
        if local.endswith("/") or os.path.isdir(local):
            raise InvalidArgumentError(f"{local} is a folder: the name of a file is wanted", op="download", field="local")
        place = Replacement(local)
        try:
            await self._drain(path, place.file, user, 0)
            place.keep()
        finally:
            place.close()
        return []

    async def list(self, path: str = ".", *, recursive: bool = False, depth: Optional[int] = None,
                   user: Optional[str] = None) -> "List[t.File]":
        """What is in a folder, and below it if asked to."""
        entries: "List[t.File]" = []
        while True:
            page = await self._client.rpc.fs_list(sandbox=self._sandbox, path=path, recursive=recursive, depth=depth,
                                                  user=user, offset=len(entries) or None)
            entries += page["entries"]
            if not page["truncated"] or not page["entries"]:
                return entries

    async def stat(self, path: str, *, follow: bool = True, user: Optional[str] = None) -> t.File:
        """What is known of a file."""
        return await self._client.rpc.fs_stat(sandbox=self._sandbox, path=path, follow=follow, user=user)

    async def exists(self, path: str, *, user: Optional[str] = None) -> bool:
        try:
            await self.stat(path, follow=False, user=user)
        except NotFoundError:
            return False
        return True

    async def mkdir(self, path: str, *, parents: bool = True, mode: Optional[str] = None,
                    user: Optional[str] = None) -> bool:
        """Makes a folder; False says that it was there."""
        made = await self._client.rpc.fs_mkdir(sandbox=self._sandbox, path=path, parents=parents, mode=mode, user=user)
        return made["created"]

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False,
                     user: Optional[str] = None) -> int:
        """Removes a file or a folder, and returns how many went."""
        gone = await self._client.rpc.fs_remove(sandbox=self._sandbox, path=path, recursive=recursive,
                                                missing_ok=missing_ok, user=user)
        return gone["removed"]

    async def move(self, path: str, to: str, *, replace: bool = True, user: Optional[str] = None) -> None:
        """Renames a file or a folder. to is the new path itself, also where that is a folder."""
        await self._client.rpc.fs_move(sandbox=self._sandbox, path=path, to=to, no_replace=not replace, user=user)

    async def _copy(self, source: str, target: str, user: Optional[str]) -> str:
        """Copies a folder by the command line, which knows what must not get to the host; the result is what it says."""
        flags = ["--user=" + user] if user else []
        _, said = await run(run_hutch, ["cp", *flags, "--", source, target], self._client.link.environment())
        return said

    async def _feed(self, params: Dict[str, Any], source: BinaryIO) -> None:
        feeder = Feeder(source)
        try:
            await self._client.call("fs.write", {**params, "fd": 0}, (feeder.fd,), on_sent=feeder.start)
        finally:
            await run(feeder.close)

    async def _drain(self, path: str, sink: BinaryIO, user: Optional[str], offset: int) -> None:
        drain = Drain(sink)
        try:
            await self._client.call("fs.read", {"sandbox": self._sandbox, "path": path, "user": user, "fd": 0,
                                                "offset": offset or None}, (drain.fd,))
        finally:
            await run(drain.close)
