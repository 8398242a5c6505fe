"""Finds hutch: its socket, its binaries, and starts a daemon. internal/paths and runtime/client do the same in Go."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .errors import (FailedPreconditionError, HutchError, InvalidArgumentError, PermissionDeniedError,
                     UnavailableError)

# MAX_SOCKET is the longest path of a Unix socket in bytes (unix(7)).
MAX_SOCKET = 107
# SO_PEERCRED of the kernel's asm-generic/socket.h, which PyPy has no name for.
SO_PEERCRED = 17
# MAX_WORD bounds what a starting daemon says of itself.
MAX_WORD = 64 << 10


def socket_path() -> str:
    """Where the user's shared daemon listens."""
    named = os.environ.get("HUTCH_SOCKET")
    if named:
        return os.path.abspath(named)
    uid = os.geteuid()
    if uid == 0:
        return "/run/hutch/hutchd.sock"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return os.path.join(runtime, "hutch", "hutchd.sock")
    own = f"/run/user/{uid}"
    try:
        if os.stat(own).st_uid == uid:
            return os.path.join(own, "hutch", "hutchd.sock")
    except OSError:
        pass
    return f"/tmp/hutch-{uid}/hutchd.sock"


def binary() -> str:
    """The hutch command: HUTCH_BIN, else the one in PATH, else the copy that came with this package."""
    named = os.environ.get("HUTCH_BIN")
    if named:
        if not _runs(named):
            raise FailedPreconditionError(f"HUTCH_BIN names {named!r}, which is no program", op="find hutch",
                                          hint="give it the path of the file hutch")
        return named
    for folder in os.get_exec_path():
        found = os.path.join(folder, "hutch")
        if _runs(found) and _is_program(found):
            return found
    own = own_binary()
    if own:
        return own
    raise FailedPreconditionError("there is no hutch in PATH, and none in this package", op="find hutch",
                                  hint="install hutch, or set HUTCH_BIN to the path of the file hutch")


def own_binary() -> str:
    """The copy of the command that came with this package, "" where there is none."""
    own = str(Path(__file__).parent / "_bin" / "hutch")
    return own if _runs(own) else ""


def _is_program(path: str) -> bool:
    """Whether a file is hutch itself, and not this package's script of its name."""
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def hutchd() -> str:
    """The daemon's binary, which lies beside the command's or in ../libexec/hutch."""
    real = Path(os.path.realpath(binary()))
    for path in (real.parent / "hutchd", real.parent.parent / "libexec" / "hutch" / "hutchd"):
        if _runs(str(path)):
            return str(path)
    raise FailedPreconditionError(f"there is no hutchd beside {real}", op="find hutchd",
                                  hint="install hutch again: its binaries belong in one folder")


def dial(path: str) -> Optional[socket.socket]:
    """A connection to the daemon at path; None if none runs there."""
    if len(os.fsencode(path)) > MAX_SOCKET:
        raise FailedPreconditionError(f"socket path {path!r} has over {MAX_SOCKET} bytes", op="connect",
                                      hint="set HUTCH_SOCKET to a shorter path")
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.connect(path)
        _check_peer(s, path)
        return s
    except (FileNotFoundError, ConnectionRefusedError):
        s.close()
        return None
    except PermissionError as e:
        s.close()
        raise PermissionDeniedError(f"socket {path}: {e.strerror}", op="connect",
                                    hint="a daemon serves the user who started it") from e
    except BaseException:
        s.close()
        raise


def _check_peer(s: socket.socket, path: str) -> None:
    """Requests carry fds, and a socket in a shared folder could be anybody's: it must be the caller's or root's."""
    cred = s.getsockopt(socket.SOL_SOCKET, SO_PEERCRED, 12)
    uid = int.from_bytes(cred[4:8], sys.byteorder)
    if uid not in (0, os.geteuid()):
        raise PermissionDeniedError(f"socket {path} is served by uid {uid}, not by uid {os.geteuid()}", op="connect",
                                    hint="set HUTCH_SOCKET to your own daemon's socket")


def run_hutch(arguments: List[str], env: Dict[str, str],
              inside: Optional[Mapping[str, str]] = None) -> Tuple[bytes, str]:
    """What the command line prints, and what it says meanwhile, or raises what it says went wrong. inside are variables for a sandbox: they go by a file
    in memory, because other users see arguments."""
    with os.fdopen(os.memfd_create("env"), "w+b") as f:
        for name, value in (inside or {}).items():
            if "\n" in value or "\n" in name or "=" in name:
                raise InvalidArgumentError(f"env {name!r} cannot be handed to root's sandbox with folders", op="create",
                                           field="env", hint="give values of one line, or write a file into the sandbox")
            f.write(f"{name}={value}\n".encode())
        f.flush()
        if inside:
            arguments = [arguments[0], f"--env-file=/dev/fd/{f.fileno()}", *arguments[1:]]
        done = subprocess.run([binary(), *arguments], env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=(f.fileno(),), check=False)
    if done.returncode != 0:
        raise _said(done.stderr)
    return done.stdout, done.stderr.decode("utf-8", "replace")


def _said(stderr: bytes) -> HutchError:
    """The error that the command line has printed: "hutch: WHAT", and what to try."""
    what, _, hint = stderr.decode("utf-8", "replace").strip().partition("\n  try: ")
    return FailedPreconditionError(what.removeprefix("hutch: "), hint=hint.strip())


def start_shared(path: str, token: Optional[str]) -> socket.socket:
    """Connects to the user's shared daemon after the command line has started it, which knows how many may try. token is
    for a daemon whose configuration names some."""
    run_hutch(["rpc", "system.info", "{}"], {"HUTCH_SOCKET": path, **({"HUTCH_TOKEN": token} if token else {})})
    s = dial(path)
    if s is None:
        raise UnavailableError(f"no daemon answers on {path} after it was started", op="start hutchd",
                               hint="its log says why: hutch doctor")
    return s


def start_private(log: Optional[str] = None) -> Tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """A daemon of this program's own. It serves nobody else and ends, with its sandboxes, when the connection does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ready, word = os.pipe()
    env = {k: v for k, v in os.environ.items() if k not in ("HUTCH_TOKEN", "HUTCH_TOKEN_FILE")}
    try:
        with open(log, "ab") if log else open(os.devnull, "wb") as sink:
            # A session of its own: a Ctrl-C at the caller's terminal is not for it.
            process = subprocess.Popen(
                [hutchd(), "serve", "--private-fd", str(theirs.fileno()), "--ready-fd", str(word)],
                pass_fds=(theirs.fileno(), word), env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                start_new_session=True)
    except BaseException:
        ours.close()
        os.close(ready)
        raise
    finally:
        theirs.close()
        os.close(word)
    try:
        _await_ready(ready)
    except BaseException:
        ours.close()
        process.kill()
        process.wait()
        raise
    return ours, process


def _await_ready(ready: int) -> None:
    """Waits for the line of a starting daemon: that it is ready, or why it is not."""
    with os.fdopen(ready, "rb") as f:
        line = f.readline(MAX_WORD)
    if not line.strip():
        raise UnavailableError("the daemon ended before it was ready", op="start hutchd",
                               hint="hutch doctor says what this machine lacks")
    word: Dict[str, Any] = json.loads(line)
    error = word.get("error")
    if error:
        raise HutchError(str(error.get("msg", "")), op=str(error.get("op", "")), hint=str(error.get("hint", "")),
                         code=str(error.get("code", "")))


def token() -> str:
    """The token that the environment has for a daemon whose configuration names some."""
    value = os.environ.get("HUTCH_TOKEN", "")
    path = os.environ.get("HUTCH_TOKEN_FILE", "")
    if value or not path:
        return value
    with open(path, encoding="ascii") as f:
        st = os.fstat(f.fileno())
        if stat.S_ISREG(st.st_mode) and st.st_mode & 0o077:
            raise PermissionDeniedError(f"{path} can be read by others", op="connect", hint=f"chmod 600 {path}")
        return f.read(1 << 16).strip()

