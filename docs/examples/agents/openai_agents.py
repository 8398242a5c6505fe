"""OpenAI Agents SDK: a shell and files for an agent, in a sandbox of hutch's.

    python openai_agents.py "Count the words of the README"
"""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from hutch import AsyncSandbox, HutchError
from openai import AsyncOpenAI


def tools(sandbox: AsyncSandbox):
    @function_tool
    async def shell(command: str) -> str:
        """Run a shell command in /workspace and return its output."""
        run = await sandbox.run(command, timeout=120)
        denied = "".join(f"\nrefused: {d['target']}: {d['why']}" for d in run.denials)
        return f"{run.stdout}{run.stderr}\nexit code {run.exit_code}{denied}"

    @function_tool
    async def write_file(path: str, content: str) -> str:
        """Write a text file."""
        try:
            await sandbox.files.write(path, content)
            return "written"
        except HutchError as e:
            return str(e)

    return [shell, write_file]


async def main(task: str) -> None:
    async with await AsyncSandbox.create(workspace=".", memory="1g") as sandbox:
        agent = Agent(
            name="worker",
            instructions="You work in a sandbox, on the folder /workspace.",
            tools=tools(sandbox),
            model=OpenAIChatCompletionsModel(model="gpt-4.1", openai_client=AsyncOpenAI()),
        )
        print((await Runner.run(agent, task)).final_output)
        print((await sandbox.workspace.diff())["diff"])  # apply it by sandbox.workspace.apply()


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(main(sys.argv[1]))
