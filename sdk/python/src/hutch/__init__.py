"""hutch runs what nobody has read yet: rootless sandboxes for AI agents on this machine.

    from hutch import Sandbox

    with Sandbox.create("python:3.12") as sandbox:
        print(sandbox.run("echo hello").stdout)

AsyncSandbox is the same for asyncio. Client has every method of the daemon.
"""

from ._async.client import AsyncClient
from ._async.pool import AsyncSandboxPool
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncSandbox
from ._sync.client import Client
from ._sync.pool import SandboxPool
from ._sync.process import Process
from ._sync.sandbox import Sandbox
from .config import SandboxConfig
from .errors import (AlreadyExistsError, CanceledError, CommandError, ConnectionLostError, DeadlineExceededError,
                     FailedPreconditionError, HutchError, InvalidArgumentError, NotFoundError, PermissionDeniedError,
                     ResourceExhaustedError, UnavailableError, UnimplementedError)
from .results import Artifact, CodeResult, ExecutionResult, Output

__all__ = [
    "AlreadyExistsError", "Artifact", "AsyncClient", "AsyncProcess", "AsyncSandbox", "AsyncSandboxPool",
    "CanceledError", "Client", "CodeResult", "CommandError", "ConnectionLostError", "DeadlineExceededError",
    "ExecutionResult", "FailedPreconditionError", "HutchError", "InvalidArgumentError", "NotFoundError", "Output",
    "PermissionDeniedError", "Process", "ResourceExhaustedError", "Sandbox", "SandboxConfig", "SandboxPool",
    "UnavailableError", "UnimplementedError",
]
