"""The package against a real daemon: python -m unittest discover -s tests."""

import base64
import io
import os
import tempfile
import threading
import time
import unittest
from typing import List

import hutch
from hutch import Sandbox


class SandboxTest(unittest.TestCase):
    """One sandbox for all of them."""

    sandbox: Sandbox

    @classmethod
    def setUpClass(cls) -> None:
        memory = "512m" if os.geteuid() == 0 else None  # ordinary users of some machines have no cgroups
        cls.sandbox = Sandbox.create(memory=memory, timeout=60, undo=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.sandbox.remove()
        with cls.assertRaises(cls(), hutch.NotFoundError):
            Sandbox.get(cls.sandbox.id)

    def test_run(self) -> None:
        res = self.sandbox.run("echo out; echo err >&2; exit 3", env={"A": "b"})
        self.assertEqual((res.stdout, res.stderr, res.exit_code, res.verdict), ("out\n", "err\n", 3, "nonzero"))
        self.assertFalse(res.ok)
        self.assertEqual(self.sandbox.run(["printf", "%s", "$A"], env={"A": "b"}).stdout, "$A")
        self.assertEqual(self.sandbox.run("cat", stdin="text").stdout, "text")
        self.assertEqual(self.sandbox.run("cat", stdin=b"\xff\x00").stdout_bytes, b"\xff\x00")
        self.assertEqual(self.sandbox.run("pwd", cwd="/tmp").stdout, "/tmp\n")
        with self.assertRaises(hutch.CommandError) as failed:
            self.sandbox.run("echo why >&2; exit 4", check=True)
        self.assertEqual(failed.exception.result.exit_code, 4)
        self.assertIn("why", str(failed.exception))

    def test_timeout(self) -> None:
        begin = time.monotonic()
        res = self.sandbox.run("sleep 600", timeout=0.3)
        self.assertTrue(res.timed_out)
        self.assertEqual(res.verdict, "timeout_wall")
        self.assertLess(time.monotonic() - begin, 60)

    def test_callbacks(self) -> None:
        out, err = [], []
        res = self.sandbox.run("printf 'a\\303'; printf '\\244b'; echo c >&2", on_stdout=out.append, on_stderr=err.append)
        self.assertEqual(("".join(out), "".join(err), res.exit_code), ("a\u00e4b", "c\n", 0))

    def test_stream(self) -> None:
        with self.sandbox.exec("read line; echo got $line; read line; exit 7", stdin=True) as process:
            process.write("one\n")
            output = iter(process)
            self.assertEqual(next(output).text, "got one\n")
            process.write(b"two\n")
            self.assertEqual(list(output), [])
            self.assertEqual(process.wait().exit_code, 7)

    def test_stream_large(self) -> None:
        total = 20 << 20
        seen = sum(len(piece.data) + piece.dropped for piece in self.sandbox.exec(f"head -c {total} /dev/zero"))
        self.assertEqual(seen, total)

    def test_killed(self) -> None:
        with self.sandbox.exec("echo up; exec sleep 600") as process:
            self.assertEqual(next(iter(process)).text, "up\n")
        self.assertEqual(process.wait().verdict, "killed")
        process = self.sandbox.exec("exec sleep 600")
        process.signal(9)
        self.assertEqual(process.wait().signal, "SIGKILL")
        process = self.sandbox.exec("trap 'exit 5' TERM; echo up; while :; do sleep 0.01; done")
        self.assertEqual(next(iter(process)).text, "up\n")
        process.signal("TERM")
        self.assertEqual(process.wait(timeout=30).exit_code, 5)

    def test_terminal(self) -> None:
        with self.sandbox.exec("tty; stty size", terminal=(33, 77)) as process:
            text = "".join(piece.text for piece in process)
        self.assertIn("/dev/pts/", text)
        self.assertIn("33 77", text)

    def test_files(self) -> None:
        files = self.sandbox.files
        files.write("/tmp/d/a.txt", "h\u00e4llo\n", mode="0755")
        self.assertEqual(files.read_text("/tmp/d/a.txt"), "h\u00e4llo\n")
        files.write("/tmp/d/a.txt", b"more", append=True)
        self.assertEqual(files.read("/tmp/d/a.txt"), "h\u00e4llo\nmore".encode())
        self.assertEqual(files.stat("/tmp/d/a.txt")["mode"], "0755")
        self.assertEqual([f["name"] for f in files.list("/tmp/d")], ["a.txt"])
        files.move("/tmp/d/a.txt", "/tmp/d/b.txt")
        self.assertFalse(files.exists("/tmp/d/a.txt"))
        self.assertEqual(files.remove("/tmp/d", recursive=True), 2)
        self.assertEqual(files.remove("/tmp/d", missing_ok=True), 0)
        self.assertTrue(files.mkdir("/tmp/e/f"))
        self.assertFalse(files.mkdir("/tmp/e/f"))
        with self.assertRaises(hutch.NotFoundError):
            files.read("/tmp/nothing")

    def test_files_large(self) -> None:
        data = os.urandom(3 << 20)
        files = self.sandbox.files
        files.write("/tmp/large", data)
        self.assertEqual(files.read("/tmp/large"), data)
        files.write("/tmp/large", io.BytesIO(data[:-1]))
        with tempfile.TemporaryDirectory() as folder:
            local = os.path.join(folder, "local")
            files.download("/tmp/large", local)
            with open(local, "rb") as f:
                self.assertEqual(f.read(), data[:-1])
            self.assertEqual(os.stat(local).st_mode & 0o077, 0)
            files.upload(local, "/tmp/up/")
            self.assertEqual(files.stat("/tmp/up/local")["size"], len(data) - 1)
            with self.assertRaises(hutch.NotFoundError):
                files.download("/tmp/nothing", local)
            self.assertEqual(os.listdir(folder), ["local"])
            self.assertEqual(os.stat(local).st_size, len(data) - 1)

    def test_upload_fails(self) -> None:
        """What cannot be read or is no data leaves the old file."""
        class Broken(io.RawIOBase):
            left = 3

            def read(self, size: int = -1) -> bytes:
                self.left -= 1
                if self.left < 0:
                    raise OSError("broken")
                return b"x" * (1 << 20)

        files = self.sandbox.files
        files.write("/tmp/old", "old")
        with self.assertRaisesRegex(OSError, "broken"):
            files.write("/tmp/old", Broken())  # type: ignore[arg-type]
        for wrong in (5, {"a": 1}, io.StringIO("text"), None):
            with self.assertRaises(hutch.InvalidArgumentError):
                files.write("/tmp/old", wrong)  # type: ignore[arg-type]
        self.assertEqual(files.read("/tmp/old"), b"old")
        files.write("/tmp/old", bytearray(b"new"))
        self.assertEqual(files.read("/tmp/old"), b"new")

    def test_code(self) -> None:
        code = self.sandbox.code
        self.assertEqual(code.run("x = 6*7\nx").text, "42")
        self.assertEqual(code.run("print(x)").stdout, "42\n")
        out: List[str] = []
        err: List[str] = []
        both = code.run("import sys\nprint('out')\nprint('err', file=sys.stderr)", on_stdout=out.append,
                        on_stderr=err.append)
        self.assertEqual(("".join(out), "".join(err)), (both.stdout, both.stderr))
        self.assertEqual("".join(out), "out\n")
        failed = code.run("1/0")
        assert failed.error is not None
        self.assertEqual((failed.ok, failed.error["name"]), (False, "ZeroDivisionError"))
        shown = code.run(f"""
class Picture:
    def _repr_png_(self):
        import base64
        return base64.b64decode({base64.b64encode(b'not really a png').decode()!r})
    def _repr_html_(self):
        return "<script>alert(1)</script>"
Picture()""")
        bundle = shown._repr_mimebundle_()[0]
        self.assertNotIn("text/html", bundle)
        self.assertEqual(base64.b64decode(bundle["image/png"]), b"not really a png")
        self.assertIn("default", [c["context"] for c in code.contexts()])
        code.end_context("default")
        self.assertEqual(code.run("x").error["name"], "NameError")  # type: ignore[index]

    def test_denied(self) -> None:
        res = self.sandbox.run("python3 -c 'import socket; socket.create_connection((\"192.0.2.7\", 443), 5)'")
        self.assertFalse(res.ok)
        denied = [d for d in self.sandbox.why() if d["kind"] == "net"]  # which address it was, eBPF tells
        self.assertTrue(denied and denied[0]["how_to_allow"], self.sandbox.why())

    def test_folders(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(f"{folder}/in/sub")
            for name in ("a", "sub/b"):
                with open(f"{folder}/in/{name}", "w", encoding="ascii") as f:
                    f.write(name)
            self.sandbox.files.upload(f"{folder}/in", "/tmp/folders/")
            self.sandbox.files.upload(f"{folder}/in", "/tmp/folders/in/again")
            self.sandbox.run("cd /tmp/folders/in && ln -s /etc/passwd out && ln -s a same && echo x >.envrc", check=True)
            self.assertEqual(self.sandbox.files.read("/tmp/folders/in/again/sub/b"), b"sub/b")
            left = self.sandbox.files.download("/tmp/folders/in", f"{folder}/back")
            self.assertRegex("\n".join(left), r"(?s)links out of the folder.*: out\n.*\.envrc")
            self.assertEqual(sorted(os.listdir(f"{folder}/back")), ["a", "again", "same", "sub"])
            self.assertEqual(self.sandbox.files.download("/tmp/folders/in/a", f"{folder}/a"), [])

    def test_errors(self) -> None:
        with self.assertRaises(hutch.InvalidArgumentError) as failed:
            Sandbox.create(memory="much")
        self.assertEqual(failed.exception.field, "memory")
        with self.assertRaises(hutch.InvalidArgumentError):
            Sandbox.create(allow="pypi.org")  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "nonsense"):
            Sandbox.create(nonsense=1)  # type: ignore[call-arg]
        with self.assertRaises(hutch.InvalidArgumentError) as failed:
            Sandbox.create(options={"nonsense": 1})
        self.assertIn("nonsense", str(failed.exception))
        for wrong in (None, 7, ["echo", 1]):
            with self.assertRaises(hutch.InvalidArgumentError):
                self.sandbox.run(wrong)  # type: ignore[arg-type]
        with self.assertRaises(hutch.InvalidArgumentError):
            self.sandbox.run("echo \ud800")
        self.assertEqual(self.sandbox.run("echo still here").stdout, "still here\n")
        with self.assertRaises(hutch.NotFoundError) as missing:
            Sandbox.get("nobody")
        self.assertTrue(missing.exception.hint)

    def test_raising_callback(self) -> None:
        """A command whose output nobody takes any more ends."""
        def refuse(text: str) -> None:
            raise KeyError(text)

        with self.assertRaises(KeyError):
            self.sandbox.run("echo up; exec sleep 601", on_stdout=refuse)
        self.assertEqual(self.sandbox.run("ps -eo args | grep -c '[s]leep 601' || true").stdout, "0\n")

    def test_threads(self) -> None:
        got = [""] * 16

        def work(i: int) -> None:
            got[i] = self.sandbox.run(f"echo {i}").stdout

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(got))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [f"{i}\n" for i in range(len(got))])

    def test_fork_process(self) -> None:
        pid = os.fork()
        if pid == 0:
            try:
                with Sandbox.create() as other:
                    os._exit(0 if other.run("echo child").stdout == "child\n" else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(self.sandbox.run("echo parent").stdout, "parent\n")


class LifeTest(unittest.TestCase):
    def test_with(self) -> None:
        with Sandbox.create(name="py-with") as sandbox:
            self.assertEqual(sandbox.name, "py-with")
            self.assertIn(sandbox.id, [s.id for s in Sandbox.list()])
        with self.assertRaises(hutch.NotFoundError):
            Sandbox.get("py-with")

    def test_fork_and_snapshot(self) -> None:
        with Sandbox.create() as sandbox:
            sandbox.files.write("/tmp/state", "one")
            kept = sandbox.snapshot()
            sandbox.files.write("/tmp/state", "two")
            forks = sandbox.fork(2)
            for fork in forks:
                with fork:
                    self.assertEqual(fork.files.read("/tmp/state"), b"two")
            with Sandbox.from_snapshot(kept) as other:
                self.assertEqual(other.files.read("/tmp/state"), b"one")
            sandbox.restore(kept)
            self.assertEqual(sandbox.files.read("/tmp/state"), b"one")
            sandbox.client.rpc.snapshot_remove(snapshot=kept["id"])

    def test_stop_and_start(self) -> None:
        sandbox = Sandbox.create()
        sandbox.files.write("/tmp/state", "kept")
        sandbox.stop()
        self.assertEqual(sandbox.refresh()["state"], "stopped")
        sandbox.start()
        with sandbox:
            self.assertEqual(sandbox.files.read("/tmp/state"), b"kept")
            sandbox.remove()

    def test_pause(self) -> None:
        with Sandbox.create() as sandbox:
            sandbox.pause()
            self.assertEqual(sandbox.record["state"], "paused")
            sandbox.resume()
            self.assertEqual(sandbox.run("echo on").stdout, "on\n")

    def test_undo(self) -> None:
        with Sandbox.create(undo=True) as sandbox:
            sandbox.code.run("open('/tmp/a', 'w').write('first')")
            sandbox.code.run("open('/tmp/a', 'w').write('second')")
            sandbox.undo()
            self.assertEqual(sandbox.files.read("/tmp/a"), b"first")

    def test_workspace(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a.txt"), "w") as f:
                f.write("old\n")
            with Sandbox.create(workspace=folder, env={"KEY": "a b=c"}) as sandbox:
                self.assertEqual(sandbox.run("echo $KEY").stdout, "a b=c\n")
                sandbox.run("echo new >/workspace/a.txt", check=True)
                with open(os.path.join(folder, "a.txt")) as f:
                    self.assertEqual(f.read(), "old\n")
                diff = sandbox.workspace.diff()
                self.assertIn("+new", diff["diff"])
                self.assertEqual(sandbox.workspace.apply(digest=diff["digest"])["applied"], ["a.txt"])
                with open(os.path.join(folder, "a.txt")) as f:
                    self.assertEqual(f.read(), "new\n")

    def test_ports(self) -> None:
        import urllib.request

        with Sandbox.create() as sandbox:
            sandbox.run("mkdir /tmp/www && echo served >/tmp/www/index.html", check=True)
            server = sandbox.exec(["python3", "-u", "-m", "http.server", "-d", "/tmp/www", "8000"])
            self.assertIn("Serving", next(iter(server)).text)
            port = sandbox.ports.expose(8000)
            with urllib.request.urlopen("http://" + port["address"], timeout=30) as response:
                self.assertEqual(response.read(), b"served\n")
            sandbox.ports.close(8000)
            server.kill()

    def test_pool(self) -> None:
        with hutch.SandboxPool.create(size=1, limit=1, config=hutch.SandboxConfig(timeout=60)) as pool:
            with pool.acquire() as sandbox:
                self.assertEqual(sandbox.run("echo pool").stdout, "pool\n")
                self.assertEqual(pool.status()["in_use"], 1)
                with self.assertRaises(hutch.ResourceExhaustedError):
                    pool.acquire()
            pool.release(pool.acquire())

    def test_events(self) -> None:
        with hutch.Client() as client, Sandbox.create(client=client) as sandbox:
            sandbox.run("true")
            kinds = [e["kind"] for e in client.events(sandbox=sandbox.id, from_seq=1, follow=False)]
            self.assertIn("exec.exited", kinds)


class PrivateTest(unittest.TestCase):
    def test_private(self) -> None:
        with hutch.Client(private=True) as client:
            sandbox = Sandbox.create(client=client)
            self.assertEqual(sandbox.run("echo mine").stdout, "mine\n")
            self.assertEqual([s["id"] for s in client.list()], [sandbox.id])
            self.assertNotIn(sandbox.id, [s.id for s in Sandbox.list()])
        with self.assertRaises(hutch.ConnectionLostError):
            sandbox.run("true")


if __name__ == "__main__":
    unittest.main()
