# hutch: tells of changes in a folder, a JSON object a line, until it is killed. Arguments: the folder, and 1 for all below.
import ctypes, json, os, struct, sys

root, below = sys.argv[1], sys.argv[2] == "1"
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_CLOEXEC)
CREATE, WRITE, REMOVE, ATTRIB, FROM, TO = 0x100, 0x2, 0x200, 0x4, 0x40, 0x80
ISDIR, GONE, OVERFLOW = 0x40000000, 0x8000, 0x4000
names = ((CREATE, "CREATE"), (WRITE, "WRITE"), (REMOVE, "REMOVE"), (ATTRIB, "CHMOD"), (FROM, "RENAME"), (TO, "CREATE"))
folders = {}


def tell(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def watch(name, new=False):
    wd = libc.inotify_add_watch(fd, os.fsencode(os.path.join(root, name)), CREATE | WRITE | REMOVE | ATTRIB | FROM | TO | 0x01000000)
    if wd < 0:
        code = ctypes.get_errno()
        if name == "" or code == 28:
            tell(error=os.strerror(code), code=code)
            sys.exit(1)
        return
    folders[wd] = name
    if below:
        try:
            inside = list(os.scandir(os.path.join(root, name)))
        except OSError:
            return
        for entry in inside:
            at = os.path.join(name, entry.name)
            if new:
                tell(name=at, type="CREATE")
            if entry.is_dir(follow_symlinks=False):
                watch(at, new)


watch("")
tell(ready=True)
while True:
    data = os.read(fd, 1 << 16)
    while data:
        wd, mask, _, size = struct.unpack_from("iIII", data)
        name, data = data[16 : 16 + size].rstrip(b"\0"), data[16 + size :]
        if mask & OVERFLOW:
            tell(error="too many changes at once", code=75)
            sys.exit(1)
        if mask & GONE:
            if folders.pop(wd, None) == "":
                sys.exit(0)
            continue
        if wd not in folders or not name:
            continue
        at = os.path.join(folders[wd], os.fsdecode(name))
        for bit, kind in names:
            if mask & bit:
                tell(name=at, type=kind)
        if below and mask & ISDIR and mask & (CREATE | TO):
            watch(at, True)
