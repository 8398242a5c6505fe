"""Inspect AI: a sandbox provider, named by sandbox="hutch" or ("hutch", IMAGE). Each sample has a sandbox of its own.

    inspect eval inspect_sandbox.py --model openai/gpt-4.1
"""

import posixpath

from hutch import AsyncSandbox, NotFoundError
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv


@sandboxenv(name="hutch")
class HutchSandbox(SandboxEnvironment):
    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        sandbox = await AsyncSandbox.create(config, workdir="/work", memory="1g")
        await sandbox.files.mkdir("/work")
        return {"default": cls(sandbox)}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted):
        for environment in environments.values():
            await environment.as_type(cls).sandbox.remove()

    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True,
                   concurrency=True, truncate=True):
        cwd = posixpath.join("/work", cwd) if cwd else None
        run = await self.sandbox.run(cmd, stdin=input, cwd=cwd, env=env, user=user, timeout=timeout)
        if run.timed_out:
            raise TimeoutError("the command took too long")
        return ExecResult(run.ok, run.exit_code, run.stdout, run.stderr or run.hint)

    async def write_file(self, file, contents):
        await self.sandbox.files.write(file, contents)

    async def read_file(self, file, text=True):
        try:
            data = await self.sandbox.files.read(file)
        except NotFoundError as e:
            raise FileNotFoundError(file) from e
        return data.decode() if text else data


@task
def hello():
    sample = Sample(input="What is in the file secret.txt?", target="swordfish", files={"secret.txt": "swordfish"})
    return Task(dataset=[sample], solver=[use_tools(bash()), generate()], scorer=includes(), sandbox="hutch")
