# Sandboxes: make, connect, list by metadata, state and page, time, end; templates by name.
import os, time
from e2b import Sandbox, SandboxQuery, SandboxState, NotFoundException, AuthenticationException, SandboxException


def fails(kind, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError("%r is not raised" % kind)


def pages(**kwargs):
    found, count, p = [], 0, Sandbox.list(**kwargs)
    while p.has_next:
        found += [s.sandbox_id for s in p.next_items()]
        count += 1
    return found, count


sb = Sandbox.create(timeout=120, metadata={"team": "a b&c=d", "n": "1"}, envs={"GREETING": "hello"})
assert sb.is_running()
info = sb.get_info()
assert info.sandbox_id == sb.sandbox_id and info.template_id == "base", info
assert info.metadata == {"team": "a b&c=d", "n": "1"}, info.metadata
assert info.state == SandboxState.RUNNING
left = (info.end_at - info.started_at).total_seconds()
assert 100 < left < 140, left
sb.set_timeout(600)
left = (sb.get_info().end_at - info.started_at).total_seconds()
assert 590 < left < 700, left
assert sb.commands.run("echo $GREETING; pwd; echo $HOME").stdout == "hello\n/home/user\n/home/user\n"

again = Sandbox.connect(sb.sandbox_id)
again.files.write("/tmp/x", "there")
assert sb.files.read("/tmp/x") == "there"
left = (sb.get_info().end_at - info.started_at).total_seconds()
assert left > 590, left  # connecting shortens nothing

others = [Sandbox.create(timeout=60, metadata={"team": "pages"}) for _ in range(3)]
ids = [s.sandbox_id for s in others]
found, count = pages(query=SandboxQuery(metadata={"team": "pages"}), limit=2)
assert sorted(found) == sorted(ids) and count == 2, (found, count)
assert found == ids[::-1], (found, ids)  # newest first
found, count = pages(query=SandboxQuery(metadata={"team": "pages"}))
assert sorted(found) == sorted(ids) and count == 1
assert pages(query=SandboxQuery(metadata={"team": "a b&c=d"}))[0] == [sb.sandbox_id]
assert pages(query=SandboxQuery(state=[SandboxState.PAUSED]))[0] == []
assert sb.sandbox_id in pages()[0]
for s in others:
    assert s.kill()

short = Sandbox.create(timeout=60)
short.set_timeout(0)  # is its end
end = time.monotonic() + 20
while short.is_running():
    assert time.monotonic() < end
    time.sleep(0.05)
assert "timeout" in fails(SandboxException, Sandbox.create, timeout=-1)

assert sb.kill() and not sb.kill()
assert not sb.is_running()
fails(NotFoundException, Sandbox.connect, sb.sandbox_id)
fails(NotFoundException, sb.get_info)
assert "was not found" in fails(Exception, sb.commands.run, "true")
assert "not found" in fails(SandboxException, Sandbox.create, "no-such-template")
assert "template" in fails(SandboxException, Sandbox.create, "no-such-template")

with Sandbox.create(os.environ["IMAGE"], timeout=60) as sb:  # an image, which has no bash
    assert sb.commands.run("echo hi").stdout == "hi\n"
    assert sb.get_info().template_id == os.environ["IMAGE"]
with Sandbox.create(os.environ["TEMPLATE"], timeout=60) as sb:  # a template of the user's
    assert sb.commands.run("echo $OF_TEMPLATE").stdout == "yes\n"
fails(AuthenticationException, Sandbox.create, api_key="e2b_" + "0" * 32)
print("ok")
