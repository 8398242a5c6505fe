# Files: read, write in each way, list, describe, move, remove, watch, signed URLs.
import gzip, inspect, io, json, time, urllib.request, urllib.error
from e2b import Sandbox, NotFoundException, FileType, InvalidArgumentException
from e2b.sandbox.filesystem.filesystem import WriteEntry
from e2b.sandbox.filesystem.watch_handle import FilesystemEventType


def fails(kind, f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except kind as e:
        return str(e)
    raise AssertionError("%r is not raised" % kind)


with Sandbox.create(timeout=300) as sb:
    f = sb.files
    w = f.write("notes/a \"b\".txt", "text \u00e4")
    assert w.path == "/home/user/notes/a \"b\".txt" and w.name == "a \"b\".txt", w
    assert f.read("notes/a \"b\".txt") == "text \u00e4"
    assert sb.commands.run("cat 'notes/a \"b\".txt'").stdout == "text \u00e4"
    blob = bytes(range(256)) * 9000
    f.write("/tmp/blob", blob)
    assert bytes(f.read("/tmp/blob", format="bytes")) == blob
    assert b"".join(f.read("/tmp/blob", format="stream")) == blob
    f.write("/tmp/blob", io.BytesIO(blob[:100]))
    assert bytes(f.read("/tmp/blob", format="bytes")) == blob[:100]
    try:
        f.write("/tmp/packed", "x" * 100000, gzip=True)
        assert f.read("/tmp/packed", gzip=True) == "x" * 100000
    except TypeError:  # an older one
        f.write("/tmp/packed", "x" * 100000)
    many = f.write_files([WriteEntry(path="/tmp/m/%d" % i, data=str(i)) for i in range(5)])
    assert [m.path for m in many] == ["/tmp/m/%d" % i for i in range(5)]
    assert [e.name for e in f.list("/tmp/m")] == list("01234")

    assert f.make_dir("/tmp/d/e") and not f.make_dir("/tmp/d/e")
    assert f.exists("/tmp/d") and not f.exists("/tmp/nothing")
    f.write("/tmp/d/e/deep", "1234")
    deep = f.list("/tmp/d", depth=2)
    assert [(e.path, e.type) for e in deep] == [("/tmp/d/e", FileType.DIR), ("/tmp/d/e/deep", FileType.FILE)], deep
    info = f.get_info("/tmp/d/e/deep")
    assert (info.size, info.mode, info.permissions) == (4, 0o644, "-rw-r--r--"), info
    assert abs(info.modified_time.timestamp() - time.time()) < 3600
    sb.commands.run("ln -s e/deep /tmp/d/link")
    info = f.get_info("/tmp/d/link")
    assert info.symlink_target == "/tmp/d/e/deep" and info.type == FileType.FILE, info
    moved = f.rename("/tmp/d/e/deep", "/tmp/new/place")
    assert moved.path == "/tmp/new/place" and f.read("/tmp/new/place") == "1234"
    f.remove("/tmp/d")
    assert not f.exists("/tmp/d")

    fails(NotFoundException, f.read, "/tmp/nothing")
    fails(NotFoundException, f.get_info, "/tmp/nothing")
    fails(NotFoundException, f.list, "/tmp/nothing")
    fails(NotFoundException, f.rename, "/tmp/nothing", "/tmp/x")
    fails(InvalidArgumentException, f.list, "/tmp/packed")
    fails(InvalidArgumentException, f.read, "/tmp/new")

    # Metadata are attributes of the file, which a new content does not keep.
    if "metadata" in inspect.signature(f.write).parameters:
        at = "/tmp/meta/data"
        w = f.write(at, "1", metadata={"author": "me", "Of-What": "a file"})
        kept = {"author": "me", "of-what": "a file"}
        assert w.metadata == kept and f.get_info(at).metadata == kept, (w, f.get_info(at))
        assert [e.metadata for e in f.list("/tmp/meta")] == [kept]
        got = sb.commands.run("python3 -c \"import os; print(os.getxattr('%s', 'user.e2b.author'))\"" % at)
        assert got.stdout == "b'me'\n", got
        assert f.rename(at, at + "2").metadata == kept
        f.write(at + "2", "2")
        assert f.get_info(at + "2").metadata is None
        fails(InvalidArgumentException, f.write, at, "1", metadata={"k": "x" * 5000})
        assert not f.exists(at)
    # The sandbox's own user is called user, in requests and in answers.
    assert (f.get_info("/tmp/new").owner, f.get_info("/tmp/new").group) == ("user", "user"), f.get_info("/tmp/new")

    # Watched: what was before the question is in the answer.
    f.make_dir("/tmp/asked")
    extra = {}
    if "include_entry" in inspect.signature(f.watch_dir).parameters:
        extra = {"include_entry": True, "allow_network_mounts": True}
    h = f.watch_dir("/tmp/asked", **extra)
    for i in range(20):
        f.write("/tmp/asked/%d" % i, "x")
        events = h.get_new_events()
        assert [(e.name, e.type.name) for e in events] == [("%d" % i, k) for k in ("CREATE", "WRITE", "CHMOD")], events
        assert not extra or all(e.entry.path == "/tmp/asked/%d" % i and e.entry.size == 1 for e in events), events
    f.remove("/tmp/asked/0")
    events = h.get_new_events()
    assert [(e.name, e.type.name) for e in events] == [("0", "REMOVE")], events
    assert not extra or events[0].entry is None
    h.stop()
    h = f.watch_dir("/tmp/asked", recursive=True)
    f.write("/tmp/asked/new/er/file", "x")
    events = [(e.name, e.type.name) for e in h.get_new_events()]
    assert {("new", "CREATE"), ("new/er", "CREATE"), ("new/er/file", "CREATE"), ("new/er/file", "WRITE")} <= set(events), events
    h.stop()

    # Watched: what happens is told, in order, to who asks.
    def watched(h, *wanted):
        seen, end = [], time.monotonic() + 20
        while not set(wanted) <= set(seen):
            seen += [(e.name, e.type) for e in h.get_new_events()]
            assert time.monotonic() < end, (wanted, seen)
            time.sleep(0.02)
    T = FilesystemEventType
    f.make_dir("/tmp/w/below")
    h = f.watch_dir("/tmp/w", recursive=True)
    f.write("/tmp/w/a", "1")
    watched(h, ("a", T.CREATE), ("a", T.WRITE))
    f.write("/tmp/w/a", "2")
    watched(h, ("a", T.WRITE))
    f.write("/tmp/w/below/b", "1")
    watched(h, ("below/b", T.CREATE))
    f.rename("/tmp/w/a", "/tmp/w/c")
    watched(h, ("a", T.RENAME), ("c", T.CREATE))
    f.remove("/tmp/w/c")
    watched(h, ("c", T.REMOVE))
    assert all("import ctypes" not in " ".join(p.args) for p in sb.commands.list())
    h.stop()
    fails(NotFoundException, f.watch_dir, "/tmp/nothing")

    # Signed URLs are opened by programs that have no token.
    def fetch(url, data=None, kind=None):
        return urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": kind} if kind else {})).read()
    f.write("/tmp/signed me", "secret")
    url = sb.download_url("/tmp/signed me")
    assert fetch(url) == b"secret"
    assert fetch(sb.download_url("/tmp/signed me", use_signature_expiration=60)) == b"secret"
    try:
        fetch(sb.download_url("/tmp/signed me", use_signature_expiration=-60))
        raise AssertionError("a URL whose time is over is served")
    except urllib.error.HTTPError as e:
        assert (e.code, json.load(e)) == (401, {"code": 401, "message": "signature is already expired"})
    fails(urllib.error.HTTPError, fetch, url.replace("signed", "other"))
    fails(urllib.error.HTTPError, fetch, url.split("signature")[0])
    form = b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"y\"\r\n\r\nup\r\n--x--\r\n"
    fetch(sb.upload_url("/tmp/up"), form, "multipart/form-data; boundary=x")
    assert f.read("/tmp/up") == "up"
    fails(urllib.error.HTTPError, fetch, url, form, "multipart/form-data; boundary=x")  # it is for reading
print("ok")
