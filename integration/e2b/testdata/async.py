# The asynchronous client: what is other about it is streams.
import asyncio
from e2b import AsyncSandbox
from e2b.sandbox.commands.command_handle import PtySize


async def main():
    sb = await AsyncSandbox.create(timeout=300)
    try:
        runs = await asyncio.gather(*[sb.commands.run("echo %d" % i) for i in range(10)])
        assert [r.stdout for r in runs] == ["%d\n" % i for i in range(10)]
        out = asyncio.Queue()
        h = await sb.commands.run("read x; echo got $x", background=True, stdin=True, on_stdout=out.put_nowait)
        await sb.commands.send_stdin(h.pid, "one\n")
        assert await asyncio.wait_for(out.get(), 20) == "got one\n"
        assert (await h.wait()).exit_code == 0
        await sb.files.write("/tmp/w/a", "1")
        assert await sb.files.read("/tmp/w/a") == "1"
        events = asyncio.Queue()
        w = await sb.files.watch_dir("/tmp/w", on_event=events.put_nowait)
        await sb.files.write("/tmp/w/b", "2")
        seen = set()
        while ("b", "write") not in seen:
            e = await asyncio.wait_for(events.get(), 20)
            seen.add((e.name, e.type.value))
        assert ("b", "create") in seen, seen
        await w.stop()
        pty = asyncio.Queue()
        t = await sb.pty.create(PtySize(rows=20, cols=77), on_data=pty.put_nowait)
        await sb.pty.send_stdin(t.pid, b"stty size\n")
        text = b""
        while b"20 77" not in text:
            text += await asyncio.wait_for(pty.get(), 20)
        assert await t.kill()
    finally:
        await sb.kill()


asyncio.run(main())
print("ok")
