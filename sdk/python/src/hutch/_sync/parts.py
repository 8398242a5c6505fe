# Made by make generate of hutch/_async: change that.
"""Further parts of a sandbox."""

import json
import os
from typing import TYPE_CHECKING, List, Optional, Sequence, cast

from .. import types as t
from .._find import run_hutch
from ._io import run

if TYPE_CHECKING:
    from .client import Client


class Ports:
    """Servers in a sandbox, which programs of this machine reach."""

    def __init__(self, client: "Client", sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    def expose(self, port: int, *, address: Optional[str] = None, token: bool = False) -> t.Port:
        """Lets this machine connect to a TCP port in the sandbox, at the address of the result: by default a free port
        of 127.0.0.1. With token only HTTP requests that have it pass; url has it."""
        return self._client.rpc.port_expose(sandbox=self._sandbox, port=port, address=address,
                                                  token=token or None)

    def list(self) -> "List[t.Port]":
        return (self._client.rpc.port_list(sandbox=self._sandbox))["ports"]

    def close(self, port: int) -> None:
        """Lets nobody connect any more."""
        self._client.rpc.port_close(sandbox=self._sandbox, port=port)


class Workspace:
    """What a sandbox has changed in its workspace of mode overlay. Paths are relative to the workspace, and each stands
    for all that is below it; none means everything."""

    def __init__(self, client: "Client", sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    def diff(self, *paths: str, unified: bool = True) -> t.WorkspaceDiff:
        """The changes, and with unified their text as git writes it."""
        return self._client.rpc.workspace_diff(sandbox=self._sandbox, paths=_list(paths), unified=unified)

    def apply(self, *paths: str, digest: Optional[str] = None, force: bool = False) -> t.WorkspaceApplied:
        """Brings the changes into the folder. digest, of the diff that was looked at, keeps it from applying what came
        later, also by apply itself; force applies also what somebody else has changed in the folder meanwhile."""
        if os.geteuid() == 0:  # whose daemon has no right to root's folders: the command line hands them over
            flags = [*(["--digest", digest] if digest else []), *(["--force"] if force else [])]
            done, _ = run(run_hutch, ["workspace", "apply", "--json", *flags, self._sandbox, "--", *paths],
                             self._client.link.environment())
            return cast(t.WorkspaceApplied, json.loads(done))
        return self._client.rpc.workspace_apply(sandbox=self._sandbox, paths=_list(paths), digest=digest,
                                                      force=force or None)

    def discard(self, *paths: str) -> t.WorkspaceDiscarded:
        """Makes them as they are in the folder."""
        return self._client.rpc.workspace_discard(sandbox=self._sandbox, paths=_list(paths))


def _list(paths: Sequence[str]) -> Optional[List[str]]:
    return [*paths] or None
