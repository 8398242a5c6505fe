"""Files that go through a pipe to or from the daemon, in bounded memory."""

import os
import threading
from typing import BinaryIO, Optional

# PIECE is how much is copied at once, in bytes.
PIECE = 1 << 20


class Feeder:
    """Writes what source holds into a pipe, on a thread of its own; fd is the end to read from."""

    def __init__(self, source: BinaryIO) -> None:
        self.fd, self._end = os.pipe()
        self._source = source
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._copy, name="hutch-upload", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        try:
            with os.fdopen(self._end, "wb", 0) as pipe:
                while True:
                    piece = memoryview(self._source.read(PIECE))
                    if not piece:
                        return
                    while piece:
                        piece = piece[pipe.write(piece) or 0:]
        except BrokenPipeError:
            pass  # the daemon says why
        except BaseException as e:  # of source: the caller's
            self._error = e

    def close(self) -> None:
        """Waits for the end of the thread, after the call, and raises what reading the source has raised."""
        os.close(self.fd)
        self._thread.join()
        if self._error is not None:
            raise self._error


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
