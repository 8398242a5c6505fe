"""smolagents: the Python that a CodeAgent writes runs in a sandbox of hutch's.

    python smolagents_code.py "What is the 20th Fibonacci number?"
"""

import sys

from hutch import Sandbox
from smolagents import CodeAgent, OpenAIModel
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError


class HutchExecutor(RemotePythonExecutor):
    """Runs code in a kept interpreter of a sandbox: what one step defines the next one has."""

    def __init__(self, sandbox: Sandbox, logger: AgentLogger) -> None:
        super().__init__([], logger)
        self.sandbox = sandbox

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        run = self.sandbox.code.run(code, timeout=120)
        if run.error is None:
            return CodeOutput(output=run.text or None, logs=run.stdout, is_final_answer=False)
        if run.error["name"] == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(run.error["value"], self.allow_pickle)
            return CodeOutput(output=answer, logs=run.stdout, is_final_answer=True)
        raise AgentError(f"{run.stdout}\n{run.error.get('traceback') or run.error['value']}", self.logger)

    def install_packages(self, additional_imports: "list[str]") -> "list[str]":
        return additional_imports  # the image has what tools import; the sandbox reaches no index

    def cleanup(self) -> None:
        self.sandbox.remove()


if __name__ == "__main__":
    logger = AgentLogger()
    executor = HutchExecutor(Sandbox.create(memory="1g", pids=256), logger)
    agent = CodeAgent(tools=[], model=OpenAIModel("gpt-4.1"), executor=executor, logger=logger, max_steps=10)
    print(agent.run(sys.argv[1]))
    agent.cleanup()
