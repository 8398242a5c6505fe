"""mini-swe-agent: its environment is a sandbox of hutch's, with a repository as an overlay: the fix is a diff to look at.

    python mini_swe_agent.py REPOSITORY "Fix the failing test"
"""

import sys

from hutch import Sandbox
from minisweagent.agents.default import DefaultAgent
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_model import LitellmModel

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class HutchEnvironment:
    def __init__(self, sandbox: Sandbox, timeout: int = 60) -> None:
        self.sandbox = sandbox
        self.timeout = timeout

    def execute(self, action: dict, cwd: str = "", *, timeout: "int | None" = None) -> dict:
        run = self.sandbox.run(action.get("command", ""), cwd=cwd or None, timeout=timeout or self.timeout)
        out = run.stdout + run.stderr
        why = "the command took too long" if run.timed_out else run.hint
        first, _, rest = out.lstrip().partition("\n")
        if first.strip() == SUBMIT and run.ok:
            raise Submitted({"role": "exit", "content": rest,
                             "extra": {"exit_status": "Submitted", "submission": rest}})
        return {"output": out, "returncode": run.exit_code, "exception_info": why}

    def get_template_vars(self, **kwargs) -> dict:
        return {"timeout": self.timeout, **kwargs}

    def serialize(self) -> dict:
        return {"info": {"config": {"environment_type": "hutch", "image": self.sandbox.record["image"]}}}


if __name__ == "__main__":
    with Sandbox.create(workspace=sys.argv[1], memory="2g") as sandbox:
        agent = DefaultAgent(
            LitellmModel(model_name="openai/gpt-4.1", cost_tracking="ignore_errors"),
            HutchEnvironment(sandbox),
            system_template="You fix the repository in /workspace by calls of the tool bash.",
            instance_template="{{task}}\nWhen you are done, run: echo " + SUBMIT,
        )
        print(agent.run(sys.argv[2]).get("exit_status"))
        print(sandbox.workspace.diff()["diff"])
