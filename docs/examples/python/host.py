"""A host of agents in Python: streams, answers, files, time-outs, Ctrl-C, and a shell whose state lasts.

    PYTHONPATH=sdk/python/src python3 docs/examples/python/host.py     (or with the package installed)
"""

import signal

from hutch import Client, NotFoundError, Sandbox


def main() -> None:
    # A daemon of the program's own, which ends with it; without it the sandbox is one of the user's daemon.
    with Client(private=True) as client, Sandbox.create(client=client) as sandbox:
        done = sandbox.run("echo hello | rev; exit 3")
        print("ran:", done.stdout.strip(), "exit code", done.exit_code)

        with sandbox.exec("for i in 1 2 3; do echo step $i; done") as process:
            text = "".join(piece.text for piece in process if piece.stream == "stdout")
        print("followed:", text.split("\n")[:3])

        with sandbox.exec('read name; echo "hello $name"', stdin=True) as process:
            process.write("agent\n")
            print("answered:", process.wait().stdout.strip())

        data = bytes(range(256)) * 4096
        sandbox.files.write("/tmp/demo/data", data)
        print("read back:", sandbox.files.read("/tmp/demo/data") == data)

        slow = sandbox.run("echo started; sleep 1000", timeout=2)
        print("timed out:", slow.verdict, slow.stdout.strip())

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # somebody presses Ctrl-C
        try:
            sandbox.run("sleep 1000 & sleep 1000")
        except KeyboardInterrupt:
            left = sandbox.run("grep -l '^sleep$' /proc/[0-9]*/comm | wc -l")
            print("cancelled, processes left:", left.stdout.strip())

        shell = client.rpc.shell_open(sandbox=sandbox.id)["shell"]
        client.rpc.shell_run(shell=shell, command="cd /tmp/demo; x=42")
        print("shell:", client.rpc.shell_run(shell=shell, command="echo $PWD $x")["stdout"].strip())

        try:
            Sandbox.get("no-such-sandbox", client=client)
        except NotFoundError as e:
            print("refused:", e.code)


if __name__ == "__main__":
    main()
