# State: pause and resume with and without memory, snapshots, forks, metrics, network rules, things that are left out.
import datetime, sys
from e2b import Sandbox, SandboxQuery, SandboxState, SandboxException

new = sys.argv[1] == "new"


def fails(kind, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError("%r is not raised" % kind)


def names(**kwargs):
    p = Sandbox.list(query=SandboxQuery(**kwargs))
    return [s.sandbox_id for s in p.next_items()]


def pause(sb, **kwargs):
    return (sb.pause if hasattr(sb, "pause") else sb.beta_pause)(**kwargs)


sb = Sandbox.create(timeout=120, metadata={"of": "state"})
h = sb.commands.run("echo $$ >/tmp/pid; exec sleep 1000", background=True)
sb.files.write("/tmp/kept", "kept")
pause(sb)
assert not sb.is_running()
assert names(state=[SandboxState.PAUSED]) == [sb.sandbox_id]
assert sb.get_info().state == SandboxState.PAUSED
fails(Exception, sb.commands.run, "true")
sb = Sandbox.connect(sb.sandbox_id, timeout=200)
assert sb.is_running()
assert h.pid in [p.pid for p in sb.commands.list()]  # its memory is there
assert 150 < (sb.get_info().end_at - __import__("datetime").datetime.now(__import__("datetime").timezone.utc)).total_seconds() < 210
if new:
    pause(sb, mode="filesystem")
    sb = Sandbox.connect(sb.sandbox_id)
    assert h.pid not in [p.pid for p in sb.commands.list()] and sb.files.read("/tmp/kept") == "kept"

if hasattr(sb, "create_snapshot"):
    snap = sb.create_snapshot()
    sb.files.write("/tmp/kept", "changed")
    of = Sandbox.create(snap.snapshot_id, timeout=60)
    assert of.files.read("/tmp/kept") == "kept"
    assert snap.snapshot_id in [s.snapshot_id for s in Sandbox.list_snapshots().next_items()]
    of.kill()
    assert Sandbox.delete_snapshot(snap.snapshot_id) and not Sandbox.delete_snapshot(snap.snapshot_id)
    fails(SandboxException, Sandbox.create, snap.snapshot_id)
if hasattr(sb, "fork"):
    forks = sb.fork(count=2, timeout=60)
    assert len(forks) == 2, forks
    for f in forks:
        f = getattr(f, "sandbox", f)
        assert f.files.read("/tmp/kept") == "changed"
        f.kill()
m = sb.get_metrics()
assert len(m) == 1 and m[0].cpu_count > 0 and m[0].mem_used > 0, m
now = datetime.datetime.now(datetime.timezone.utc)
hour = datetime.timedelta(hours=1)
assert len(sb.get_metrics(start=now, end=now + hour)) == 1 and sb.get_metrics(start=now - 2 * hour, end=now - hour) == []
sb.kill()

if new:  # a request wakes what was made for that
    sb = Sandbox.create(timeout=60, lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert sb.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}
    pause(sb)
    assert sb.commands.run("echo awake").stdout == "awake\n"
    assert sb.get_info().state == SandboxState.RUNNING
    sb.kill()

sb = Sandbox.create(timeout=60, allow_internet_access=False)
assert sb.commands.run("ls /sys/class/net 2>/dev/null || true").exit_code == 0
if new:
    assert sb.get_info().allow_internet_access is False
    sb.update_network({"allow_out": ["example.com", "8.8.8.0/24"], "deny_out": ["0.0.0.0/0"]})
    got = sb.get_info().network
    assert got["allow_out"] == ["example.com", "8.8.8.0/24"] and got["deny_out"] == ["0.0.0.0/0"], got
sb.kill()
assert "this machine" in fails(SandboxException, Sandbox.create, network={"allow_out": ["host:5432"]})
for reserved in "127.0.0.1", "192.0.2.0/24":
    assert "this machine" in fails(SandboxException, Sandbox.create, network={"allow_out": [reserved]})
if new:
    fails(SandboxException, Sandbox.create, network={"rules": {"example.com": [{"transform": {"headers": {"A": "b"}}}]}})
print("ok")
