"""Files that go through a pipe to or from the daemon, in bounded memory."""

import os
import stat
import tempfile
import threading
from typing import BinaryIO, Callable, Optional

# PIECE is how much is copied at once, in bytes.
PIECE = 1 << 20


class Feeder:
    """Writes what source holds into a pipe, on a thread of its own; fd is the end to read from.

    The end of the pipe is the end of the file. So when source fails the pipe stays open until cancel, which ends the
    call, has been heard: what is half is never taken for whole."""

    def __init__(self, source: BinaryIO) -> None:
        self.fd, self._end = os.pipe()
        self._source = source
        self._error: Optional[BaseException] = None
        self._thread: Optional[threading.Thread] = None

    def start(self, cancel: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._copy, args=(cancel,), name="hutch-upload", daemon=True)
        self._thread.start()

    def _copy(self, cancel: Callable[[], None]) -> None:
        try:
            while True:
                piece = memoryview(self._source.read(PIECE))
                if not piece:
                    break
                while piece:
                    piece = piece[os.write(self._end, piece):]
        except BrokenPipeError:
            pass  # the daemon says why
        except BaseException as e:  # of source: the caller's
            self._error = e
            cancel()
            return
        os.close(self._end)
        self._end = -1

    def close(self) -> None:
        """Waits for the end of the thread, after the call, and raises what reading the source has raised."""
        os.close(self.fd)
        if self._thread is not None:
            self._thread.join()
        if self._end >= 0:
            os.close(self._end)
        if self._error is not None:
            raise self._error


class Replacement:
    """A file that takes the place of path in a single step, by keep, or never does. A new one has mode 0600, an old one
    keeps its mode; a link is replaced and not followed."""

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        folder, name = os.path.split(self._path)
        fd, self._temporary = tempfile.mkstemp(prefix=f".{name[:64]}.", dir=folder)
        self.file: BinaryIO = os.fdopen(fd, "wb")

    def keep(self) -> None:
        try:
            old = os.lstat(self._path)
            if stat.S_ISREG(old.st_mode):
                os.fchmod(self.file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
        except FileNotFoundError:
            pass
        self.file.close()
        os.replace(self._temporary, self._path)
        self._temporary = ""

    def close(self) -> None:
        self.file.close()
        if self._temporary:
            os.unlink(self._temporary)


class Drain:
    """Copies what comes out of a pipe into sink, on a thread of its own; fd is the end to write to."""

    def __init__(self, sink: BinaryIO) -> None:
        self._end, self.fd = os.pipe()
        self._sink = sink
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._copy, name="hutch-download", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        try:
            with os.fdopen(self._end, "rb", 0) as pipe:
                while True:
                    piece = pipe.read(PIECE)
                    if not piece:
                        return
                    self._sink.write(piece)
        except BaseException as e:  # of sink: the caller's
            self._error = e

    def close(self) -> None:
        """Waits until all is in sink, after the call."""
        os.close(self.fd)
        self._thread.join()
        if self._error is not None:
            raise self._error
