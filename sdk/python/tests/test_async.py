"""The package for asyncio against a real daemon."""

import asyncio
import unittest

import hutch
from hutch import AsyncSandbox


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def test_run(self) -> None:
        async with await AsyncSandbox.create() as sandbox:
            results = await asyncio.gather(*(sandbox.run(f"echo {i}") for i in range(8)))
            self.assertEqual([r.stdout for r in results], [f"{i}\n" for i in range(8)])
            await sandbox.files.write("/tmp/a", b"x" * (1 << 20))
            self.assertEqual(len(await sandbox.files.read("/tmp/a")), 1 << 20)
            self.assertEqual((await sandbox.code.run("6*7")).text, "42")
        with self.assertRaises(hutch.NotFoundError):
            await AsyncSandbox.get(sandbox.id)

    async def test_stream(self) -> None:
        async with await AsyncSandbox.create() as sandbox:
            async with await sandbox.exec("cat", stdin=True) as process:
                await process.write("one\n")
                async for piece in process:
                    self.assertEqual(piece.text, "one\n")
                    await process.close_stdin()
                self.assertTrue((await process.wait()).ok)

    async def test_cancelled(self) -> None:
        """A task that is cancelled ends its command."""
        async with await AsyncSandbox.create() as sandbox:
            await sandbox.run("mkfifo /tmp/up", check=True)
            task = asyncio.ensure_future(sandbox.run("echo up >/tmp/up; exec sleep 600"))
            self.assertEqual((await sandbox.run("cat /tmp/up")).stdout, "up\n")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            events = sandbox.client.events(sandbox=sandbox.id, kinds=["exec.exited"], from_seq=1)
            async for event in events:
                if event["data"]["verdict"] == "cancelled":
                    break
            await events.aclose()


if __name__ == "__main__":
    unittest.main()
