# Commands: streams, stdin, background, connect, list, kill, terminals; variables, folders, users, timeouts.
import sys, time, threading
from e2b import Sandbox, CommandExitException, TimeoutException
from e2b.sandbox.commands.command_handle import PtySize

with Sandbox.create(timeout=300) as sb:
    out, err = [], []
    r = sb.commands.run("echo out; echo err >&2; printf '\\360\\237\\246\\206'", on_stdout=out.append, on_stderr=err.append)
    assert (r.stdout, r.stderr, r.exit_code) == ("out\n\U0001F986", "err\n", 0), r
    assert "".join(out) == r.stdout and "".join(err) == r.stderr
    try:
        sb.commands.run("echo gone; exit 7")
        raise AssertionError("it has failed")
    except CommandExitException as e:
        assert e.exit_code == 7 and e.stdout == "gone\n", e
    r = sb.commands.run("echo $A; pwd", envs={"A": "b c"}, cwd="/tmp")
    assert r.stdout == "b c\n/tmp\n", r
    assert sb.commands.run("id -u", user="root").stdout == "0\n"
    sb.commands.run("id -u", user="user")
    try:
        sb.commands.run("true", cwd="/no/such/folder")
        raise AssertionError("there is no such folder")
    except Exception as e:
        assert "/no/such/folder" in str(e), e
    begun = time.monotonic()
    try:
        sb.commands.run("sleep 60", timeout=1)
        raise AssertionError("it has a timeout")
    except TimeoutException:
        pass
    assert time.monotonic() - begun < 20
    big = sb.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(big.stdout) == 3000000

    # In the background: what runs is listed, takes input, can be connected to, and is killed.
    h = sb.commands.run("while read x; do echo got $x; done; echo end", background=True, stdin=True)
    assert h.pid in [p.pid for p in sb.commands.list()]
    sb.commands.send_stdin(h.pid, "one\n")
    for o, e, _ in h:
        assert o == "got one\n", o
        break
    again = sb.commands.connect(h.pid)
    sb.commands.send_stdin(h.pid, "two\n")
    if hasattr(sb.commands, "close_stdin"):
        sb.commands.close_stdin(h.pid)
        r = again.wait()
        assert r.stdout == "got two\nend\n", r
    else:
        assert again.kill()
    h = sb.commands.run("exec sleep 1000", background=True)
    assert sb.commands.kill(h.pid)
    try:
        h.wait()
        raise AssertionError("it was killed")
    except CommandExitException as e:
        assert e.exit_code != 0, e
    assert not sb.commands.kill(h.pid)
    assert h.pid not in [p.pid for p in sb.commands.list()]
    if hasattr(sb.commands, "stream_input"):
        h = sb.commands.run("cat", background=True, stdin=True)
        sb.commands.stream_input(h.pid, ["a", b"b", "c\n"])
        sb.commands.close_stdin(h.pid)
        assert h.wait().stdout == "abc\n"

    # A terminal.
    seen = []
    p = sb.pty.create(PtySize(rows=20, cols=77), envs={"PS1": "$ "}, timeout=60)
    t = threading.Thread(target=lambda: p.wait(on_pty=lambda b: seen.append(b)), daemon=True)
    t.start()
    sb.pty.send_stdin(p.pid, b"stty size; tty >/dev/null && echo 'a''b'\n")
    def wait(what):
        end = time.monotonic() + 20
        while what not in b"".join(seen):
            assert time.monotonic() < end, (what, seen)
            time.sleep(0.02)
    wait(b"20 77"); wait(b"ab")
    sb.pty.resize(p.pid, PtySize(rows=30, cols=99))
    sb.pty.send_stdin(p.pid, b"stty size\n")
    wait(b"30 99")
    sb.pty.send_stdin(p.pid, b"exit 0\n")
    t.join(20)
    assert not t.is_alive()

    # Something that dies with its sandbox.
    h = sb.commands.run("sleep 1000", background=True)
    sb.kill()
    try:
        h.wait()
        raise AssertionError("its sandbox is gone")
    except Exception as e:
        assert not isinstance(e, AssertionError), e
if len(sys.argv) > 1:
    with Sandbox.create(timeout=300) as sb:
        took = []
        for _ in range(int(sys.argv[1])):
            begun = time.perf_counter(); sb.commands.run("true"); took.append(time.perf_counter() - begun)
        print("p50 %.1f ms" % (sorted(took)[len(took) // 2] * 1000))
print("ok")
