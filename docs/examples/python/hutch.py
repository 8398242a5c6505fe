"""A client of hutch's socket, with nothing but Python's standard library.

The socket speaks JSON-RPC 2.0, one JSON object a line. `hutch rpc rpc.discover`
prints the whole interface.

    with Hutch() as hutch:
        box = hutch.call("sandbox.create", image="host", owner="connection")
        done = hutch.call("exec.run", sandbox=box["id"], command="echo hello | rev")
        print(done["stdout"], done["exit_code"])
"""

import json
import os
import socket
import subprocess


class HutchError(Exception):
    """An error of hutch: what failed is the text, what to do is .hint."""

    def __init__(self, error):
        data = error.get("data", {})
        super().__init__(error["message"])
        self.code = data.get("code", error["code"])
        self.hint = data.get("hint", "")


class Hutch:
    """One connection. It is for one thread at a time."""

    def __init__(self, hutch="hutch"):
        # The command line starts the daemon when none runs, and says where it is.
        info = subprocess.run([hutch, "rpc", "system.info"], check=True, stdout=subprocess.PIPE)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(json.loads(info.stdout)["paths"]["socket"])
        self.lines = self.socket.makefile("rb")
        self.id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Sandboxes with owner="connection" are removed with it.
        self.lines.close()
        self.socket.close()

    def call(self, method, **params):
        """Call a method and return its result."""
        self.id += 1
        request = {"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        for line in self.lines:
            reply = json.loads(line)
            if reply.get("id") != self.id:
                continue  # a notification
            if "error" in reply:
                raise HutchError(reply["error"])
            return reply["result"]
        raise ConnectionError("the daemon has ended")

    def follow(self, exec_id, stream="stdout"):
        """Yield what a command writes, as it comes, until it ends."""
        offset, end = 0, False
        while not end:
            chunk = self.call("exec.read", exec=exec_id, stream=stream, offset=offset, wait_s=30)
            offset, end = chunk["next"], chunk["eof"]
            if chunk["data"]:
                yield chunk["data"]


def main():
    with Hutch(os.environ.get("HUTCH", "hutch")) as hutch:
        box = hutch.call("sandbox.create", image="host", owner="connection")
        done = hutch.call("exec.run", sandbox=box["id"], command="echo hello | rev; exit 3")
        print("ran:", done["stdout"].strip(), "exit code", done["exit_code"])

        job = hutch.call("exec.start", sandbox=box["id"], command="for i in 1 2 3; do echo step $i; done")
        print("followed:", "".join(hutch.follow(job["exec"])).split("\n")[:3])

        try:
            hutch.call("exec.run", sandbox="no-such-sandbox", argv=["true"])
        except HutchError as e:
            print("refused:", e.code)


if __name__ == "__main__":
    main()
