"""A client of hutch's socket, with nothing but Python's standard library.

The socket speaks JSON-RPC 2.0, one JSON object a line. `hutch rpc rpc.discover`
prints the whole interface.

    with Hutch() as hutch:
        box = hutch.call("sandbox.create", image="host", owner="connection")
        done = hutch.call("exec.run", sandbox=box["id"], command="echo hello | rev")
        print(done["stdout"], done["exit_code"])
"""

import base64
import collections
import json
import os
import signal
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
        self.notes = collections.deque()  # notifications that came while a reply was awaited
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
        while True:
            reply = self.read()
            if reply.get("id") != self.id:
                self.notes.append(reply)  # a notification
            elif "error" in reply:
                raise HutchError(reply["error"])
            else:
                return reply["result"]

    def read(self):
        line = self.lines.readline()
        if not line:
            raise ConnectionError("the daemon has ended")
        return json.loads(line)

    def run(self, sandbox, **params):
        """Run a command and return its result. Ctrl-C cancels it: nothing of it is left."""
        try:
            return self.call("exec.run", sandbox=sandbox, **params)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self):
        """Cancel the last call, and wait until the daemon has cleaned up."""
        note = {"jsonrpc": "2.0", "method": "rpc.cancel", "params": {"id": self.id}}
        self.socket.sendall(json.dumps(note).encode() + b"\n")
        while True:
            reply = self.read()
            if reply.get("id") == self.id:
                return
            self.notes.append(reply)

    def write_file(self, sandbox, path, data):
        """Write bytes to a file, up to 3 MiB at once."""
        text = base64.b64encode(data).decode()
        self.call("fs.write", sandbox=sandbox, path=path, data=text, encoding="base64", parents=True)

    def read_file(self, sandbox, path):
        """Return all bytes of a file."""
        data, eof = b"", False
        while not eof:
            piece = self.call("fs.read", sandbox=sandbox, path=path, offset=len(data), encoding="base64")
            data += base64.b64decode(piece["data"])
            eof = piece["eof"]
        return data

    def follow(self, exec_id):
        """Yield (stream, bytes) as a command writes them; return its result when it has ended."""
        self.call("exec.attach", exec=exec_id, credit_bytes=1 << 20)
        while True:
            note = self.notes.popleft() if self.notes else self.read()
            news = note["params"]
            if news.get("exec") != exec_id:
                continue
            if note["method"] == "exec.exited":
                return news
            data = news["data"].encode() if news["encoding"] == "utf-8" else base64.b64decode(news["data"])
            self.call("exec.credit", exec=exec_id, bytes=len(data))  # so much more may come
            yield news["stream"], data


def main():
    with Hutch(os.environ.get("HUTCH", "hutch")) as hutch:
        box = hutch.call("sandbox.create", image="host", owner="connection")
        done = hutch.call("exec.run", sandbox=box["id"], command="echo hello | rev; exit 3")
        print("ran:", done["stdout"].strip(), "exit code", done["exit_code"])

        job = hutch.call("exec.start", sandbox=box["id"], command="for i in 1 2 3; do echo step $i; done")
        text = b"".join(data for stream, data in hutch.follow(job["exec"]) if stream == "stdout")
        print("followed:", text.decode().split("\n")[:3])

        job = hutch.call("exec.start", sandbox=box["id"], command='read name; echo "hello $name"')
        hutch.call("exec.write", exec=job["exec"], data="agent\n")
        print("answered:", hutch.call("exec.wait", exec=job["exec"])["stdout"].strip())

        hutch.write_file(box["id"], "/tmp/demo/data", bytes(range(256)) * 4096)
        print("read back:", hutch.read_file(box["id"], "/tmp/demo/data") == bytes(range(256)) * 4096)

        slow = hutch.run(box["id"], command="echo started; sleep 1000", timeout_s=2)
        print("timed out:", slow["verdict"], slow["stdout"].strip())

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # somebody presses Ctrl-C
        try:
            hutch.run(box["id"], command="sleep 1000 & sleep 1000")
        except KeyboardInterrupt:
            left = hutch.run(box["id"], command="grep -l '^sleep$' /proc/[0-9]*/comm | wc -l")
            print("cancelled, processes left:", left["stdout"].strip())

        shell = hutch.call("shell.open", sandbox=box["id"])["shell"]
        hutch.call("shell.run", shell=shell, command="cd /tmp/demo; x=42")
        print("shell:", hutch.call("shell.run", shell=shell, command="echo $PWD $x")["stdout"].strip())

        try:
            hutch.call("exec.run", sandbox="no-such-sandbox", argv=["true"])
        except HutchError as e:
            print("refused:", e.code)


if __name__ == "__main__":
    main()
