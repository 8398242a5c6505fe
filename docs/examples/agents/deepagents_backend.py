"""LangChain deepagents: a backend whose shell and files are those of a sandbox of hutch's.

    python deepagents_backend.py "Write a program that prints the primes below 100, and run it"
"""

import sys

from deepagents import create_deep_agent
from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox
from hutch import HutchError, NotFoundError, Sandbox
from langchain_openai import ChatOpenAI


class HutchBackend(BaseSandbox):
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: "int | None" = None) -> ExecuteResponse:
        run = self.sandbox.run(command, timeout=timeout or 120)
        return ExecuteResponse(output=run.stdout + run.stderr, exit_code=run.exit_code, truncated=run.truncated)

    def upload_files(self, files: "list[tuple[str, bytes]]") -> "list[FileUploadResponse]":
        done = []
        for path, content in files:
            try:
                self.sandbox.files.write(path, content)
                done.append(FileUploadResponse(path=path))
            except HutchError as e:
                done.append(FileUploadResponse(path=path, error=str(e)))
        return done

    def download_files(self, paths: "list[str]") -> "list[FileDownloadResponse]":
        done = []
        for path in paths:
            try:
                done.append(FileDownloadResponse(path=path, content=self.sandbox.files.read(path)))
            except NotFoundError:
                done.append(FileDownloadResponse(path=path, error="file_not_found"))
            except HutchError as e:
                done.append(FileDownloadResponse(path=path, error=str(e)))
        return done


if __name__ == "__main__":
    with Sandbox.create(memory="1g") as sandbox:
        agent = create_deep_agent(model=ChatOpenAI(model="gpt-4.1"), backend=HutchBackend(sandbox))
        answer = agent.invoke({"messages": [{"role": "user", "content": sys.argv[1]}]})
        print(answer["messages"][-1].content)
