# hutch: tells of changes in a folder, a JSON object a line, until it is killed. Arguments: the folder, and 1 for all below.
# At SIGUSR1 it says that it has told of all that was before.
import ctypes, json, os, select, signal, struct, sys

root, below = sys.argv[1], sys.argv[2] == "1"
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_CLOEXEC)
CREATE, WRITE, REMOVE, ATTRIB, FROM, TO = 0x100, 0x2, 0x200, 0x4, 0x40, 0x80
ISDIR, GONE, OVERFLOW, ONLYDIR = 0x40000000, 0x8000, 0x4000, 0x01000000
kinds = ((CREATE, "CREATE"), (WRITE, "WRITE"), (REMOVE, "REMOVE"), (ATTRIB, "CHMOD"), (FROM, "RENAME"), (TO, "CREATE"))
folders, inside = {}, {}  # by watch: its name, and the names in it


def tell(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def watch(name, new=False):
    at = os.path.join(root, name)
    wd = libc.inotify_add_watch(fd, os.fsencode(at), CREATE | WRITE | REMOVE | ATTRIB | FROM | TO | ONLYDIR)
    if wd < 0:
        code = ctypes.get_errno()
        if name == "" or code == 28:  # ENOSPC: there are too many watches
            tell(error=os.strerror(code))
            sys.exit(1)
        return
    folders[wd] = name
    try:
        entries = list(os.scandir(at))
    except OSError:
        entries = []
    inside[wd] = {e.name for e in entries}
    for e in entries if below else ():
        if new:
            tell(name=os.path.join(name, e.name), type="CREATE")
            if e.is_file(follow_symlinks=False):  # and has what it has been given by now
                tell(name=os.path.join(name, e.name), type="WRITE")
        if e.is_dir(follow_symlinks=False):
            watch(os.path.join(name, e.name), new)


def changed(wd, mask, name):
    # The file that a written one is made of, which takes its name when it is whole: to whoever watches that is a write.
    if name.startswith(".hutch-") and name.endswith(".tmp"):
        made.add(wd)
        return
    at = os.path.join(folders[wd], name)
    whole = mask & TO and wd in made
    made.clear()
    if not whole or name not in inside[wd]:
        for bit, kind in kinds:
            if mask & bit:
                tell(name=at, type=kind)
    if whole:
        tell(name=at, type="WRITE")
        if name not in inside[wd]:  # what has happened to it under its other name
            tell(name=at, type="CHMOD")
    if mask & (CREATE | TO):
        inside[wd].add(name)
    elif mask & (REMOVE | FROM):
        inside[wd].discard(name)
    if below and mask & ISDIR and mask & (CREATE | TO):
        watch(at, True)


def read():
    data = os.read(fd, 1 << 16)
    while data:
        wd, mask, _, size = struct.unpack_from("iIII", data)
        name, data = os.fsdecode(data[16 : 16 + size].rstrip(b"\0")), data[16 + size :]
        if mask & OVERFLOW:
            tell(error="too many changes at once")
            sys.exit(1)
        if mask & GONE:
            inside.pop(wd, None)
            if folders.pop(wd, None) == "":
                sys.exit(0)
        elif wd in folders and name:
            changed(wd, mask, name)


asked, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.set_wakeup_fd(wake)
made = set()
watch("")
tell(ready=True)
while True:
    ready, _, _ = select.select([fd, asked], [], [])
    if asked in ready:  # before the changes are read: all that are there by now are told below
        os.read(asked, 1 << 10)
    while select.select([fd], [], [], 0)[0]:
        read()
    if asked in ready:
        tell(told=True)
