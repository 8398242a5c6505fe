# What hostile code inside tries. Each attempt either gets through, or fails with an errno; the
# test runs the same program outside, in plain namespaces of the caller's, where it gets through,
# or where its precondition is shown.
#
#   escape.py WORLD SECRET PORT NAME WORKSPACE
#
# WORLD is inside or outside; SECRET a file of the host's, which is beside WORKSPACE, the folder that
# is shared; PORT and NAME are sockets that the host listens on. It prints kind, name and outcome
# of each: "done", an errno, or, of one that fails outside, too, "there" when what it is about
# exists, and "absent" when this host has nothing of the kind.
import ctypes, errno, fcntl, json, os, resource, signal, socket, struct, subprocess, sys, tempfile

world, secret, port, name, workspace = sys.argv[1:6]
inside = world == "inside"
libc = ctypes.CDLL(None, use_errno=True)
work = tempfile.mkdtemp()
about = "/run/hutch" if inside else tempfile.mkdtemp()
victim = 1 if inside else os.fork()
if victim == 0:
    signal.pause()
    os._exit(0)
if not inside:
    for f in ("policy.json", "policy.txt"): open(about + "/" + f, "w").close()

attempts = []
def attempt(kind, what, there=None):
    def add(fn):
        attempts.append((kind, what, fn, there))
        return fn
    return add
def exists(path): return lambda e: os.path.exists(path)
def has(fs): return lambda e: "\t" + fs + "\n" in open("/proc/filesystems").read()
def everywhere(e): return True # the host has every id
def refuse(no=errno.EPERM): raise OSError(no, "refused")
def check(r):
    if r < 0: raise OSError(ctypes.get_errno(), "")
    return r
def call(nr, *args): return check(libc.syscall(nr, *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)))
def each(kind, what, there=None, **calls):
    for n, args in calls.items(): attempt(kind, what + n, there)(lambda args=args: call(*args))

# Mounts and /proc.
MS_REMOUNT, MS_BIND, MS_REC, MNT_DETACH = 32, 4096, 16384, 2
def mount(src, dst, fs, flags=0): check(libc.mount(src, dst.encode(), fs, flags, None))
@attempt("mounts", "mount a tmpfs")
def _(): mount(b"none", work, b"tmpfs")
@attempt("mounts", "mount another proc")
def _(): mount(b"proc", work, b"proc")
@attempt("mounts", "bind the root")
def _(): mount(b"/", work, None, MS_BIND | MS_REC)
@attempt("mounts", "make what is read-only writable")
def _():
    if not inside: mount(b"none", work, b"tmpfs", 1)
    mount(None, "/proc/sys" if inside else work, None, MS_REMOUNT | MS_BIND * inside)
@attempt("mounts", "take a mask away")
def _():
    if not inside: mount(b"none", work, b"tmpfs")
    check(libc.umount2(b"/proc/cmdline" if inside else work.encode(), MNT_DETACH))
each("mounts", "", fsopen=(430, b"tmpfs", 0), fspick=(433, -100, b"/", 0) if inside else (430, b"tmpfs", 0))
@attempt("mounts", "the host's root through /proc/PID/root")
def _(): open("/proc/%d/root%s" % (victim, secret)).read()
@attempt("mounts", "leave a chroot")
def _():
    os.mkdir(work + "/jail"); fd = os.open("/", os.O_RDONLY)
    os.chroot(work + "/jail"); os.fchdir(fd)
    for _ in range(64): os.chdir("..")
    os.chroot("."); open(secret).read()
for f in ("kernel/core_pattern", "kernel/randomize_va_space", "vm/drop_caches", "fs/suid_dumpable"):
    attempt("mounts", "open /proc/sys/" + f, exists("/proc/sys/" + f))(lambda f=f: os.close(os.open("/proc/sys/" + f, os.O_RDWR)))

# Fds.
def getfd(pid, fd): return call(438, call(434, pid, 0), fd, 0)
@attempt("fds", "a folder of the host's among the open ones")
def _():
    if not inside: os.dup2(os.open(os.path.dirname(secret), os.O_RDONLY), 0)
    for fd in range(256):
        try: os.close(os.open(os.path.basename(secret), os.O_RDONLY, dir_fd=fd)); return
        except OSError: pass
    refuse(errno.ENOENT)
@attempt("fds", "out of the working folder by ..")
def _():
    if not inside: os.chdir(workspace)
    open("../" * inside * 20 + "../" + os.path.basename(secret) if not inside else "../" * 20 + secret).read()
@attempt("fds", "take one of another process")
def _(): getfd(victim, 0)
@attempt("fds", "what another's are")
def _(): [os.readlink("/proc/%d/fd/%s" % (victim, fd)) for fd in os.listdir("/proc/%d/fd" % victim)]
@attempt("fds", "open another's")
def _(): os.stat("/proc/%d/fd/0" % victim)
@attempt("fds", "its memory")
def _(): os.close(os.open("/proc/%d/mem" % victim, os.O_RDWR))
@attempt("fds", "handle of a file")
def _():
    buf = ctypes.create_string_buffer(struct.pack("ii", 128, 0) + bytes(128), 136); i = ctypes.c_int()
    check(libc.name_to_handle_at(-100, b"/etc", buf, ctypes.byref(i), 0))

# Namespaces.
NS = dict(user=0x10000000, mount=0x20000, net=0x40000000, pid=0x20000000, cgroup=0x2000000, uts=0x4000000, ipc=0x8000000)
for n, flag in NS.items():
    attempt("namespaces", "unshare " + n)(lambda flag=flag: check(libc.unshare(flag)))
@attempt("namespaces", "clone with a user namespace")
def _():
    if call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) == 0: os._exit(0)
for n in ("mnt", "net", "pid", "user"):
    def join(n=n):
        if not inside and n == "user": check(libc.unshare(NS["user"])); return
        check(libc.setns(os.open("/proc/%d/ns/%s" % (victim, n), os.O_RDONLY), 0))
    attempt("namespaces", "join the %s namespace of another" % n)(join)

# Sockets.
@attempt("sockets", "the host's TCP listener")
def _(): socket.create_connection(("127.0.0.1", int(port)), 5).close()
@attempt("sockets", "the host's abstract socket")
def _(): socket.socket(socket.AF_UNIX).connect("\0" + name)
families = dict(packet=(17, 3, 0), raw=(2, 3, 1), raw6=(10, 3, 58), netfilter=(16, 3, 12), xfrm=(16, 3, 6), uevent=(16, 3, 15), generic=(16, 3, 16))
for n, s in families.items(): attempt("sockets", "socket " + n)(lambda s=s: socket.socket(*s).close())
for n, s in dict(audit=(16, 3, 9), vsock=(40, 1, 0), alg=(38, 5, 0), key=(15, 3, 2), bluetooth=(31, 3, 1), can=(29, 3, 1)).items():
    attempt("sockets", "socket " + n, lambda e: e not in (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT))(lambda s=s: socket.socket(*s).close())

# Terminals.
def onTTY(fn):
    def run():
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            no = 0
            try:
                os.setsid(); m, s = os.openpty(); fcntl.ioctl(s, 0x540E, 0); fn(s)
            except OSError as e: no = e.errno
            os.write(w, struct.pack("i", no)); os._exit(0)
        os.waitpid(pid, 0)
        no, = struct.unpack("i", os.read(r, 4))
        # Newer kernels and other kinds of terminals say that they do not do that.
        if no not in (0, errno.EIO, errno.ENOTTY): refuse(no)
    return run
attempt("tty", "put in what was not typed")(onTTY(lambda s: fcntl.ioctl(s, 0x5412, b"x")))
attempt("tty", "the console's TIOCLINUX")(onTTY(lambda s: fcntl.ioctl(s, 0x541C, b"\x02")))
@attempt("tty", "terminals of others")
def _():
    if [n for n in os.listdir("/dev/pts") if n != "ptmx"] == [] and inside: refuse(errno.ENOENT)
for f in ("console", "tty0", "tty1", "ttyS0", "vcs", "kmsg"):
    attempt("tty", "open /dev/" + f, exists("/dev/" + f))(lambda f=f: os.close(os.open("/dev/" + f, os.O_RDWR)))

# Symbolic links and names in a workspace, which the sandbox and its caller share.
def through(link, target):
    path = workspace + "/" + link
    if not os.path.lexists(path): os.symlink(target, path)
    open(path).read()
beside = os.path.basename(secret)
attempt("workspace", "an absolute link")(lambda: through("abs", secret))
attempt("workspace", "a relative link")(lambda: through("rel", "../" + beside))
attempt("workspace", "a link through /proc")(lambda: through("proc", "/proc/self/root" + secret))
attempt("workspace", "a link to a folder above")(lambda: through("up/" + beside if os.path.islink(workspace + "/up") or not os.symlink("..", workspace + "/up") else "", ""))
attempt("workspace", "..")(lambda: open(workspace + "/../" + beside).read())
attempt("workspace", "an fd's ..")(lambda: os.close(os.open("../" + beside, os.O_RDONLY, dir_fd=os.open(workspace, os.O_RDONLY))))
@attempt("workspace", "move it away while inside")
def _():
    os.makedirs(workspace + "/a/b", exist_ok=True); os.chdir(workspace + "/a/b"); os.rename(workspace + "/a/b", workspace + "/c%d" % os.getpid())
    open("../../" + beside).read()
@attempt("workspace", "a device in it", exists("/dev/null"))
def _(): os.mknod(workspace + "/null", 0o20666, os.makedev(1, 3))

# What the sandbox is told.
attempt("told", "write it")(lambda: open(about + "/policy.txt", "w").close())
attempt("told", "add to it")(lambda: open(about + "/more", "w").close())
attempt("told", "open it for everybody")(lambda: os.chmod(about, 0o777))
attempt("told", "rename it")(lambda: os.rename(about + "/policy.json", about + "/old.json"))
attempt("told", "remove it")(lambda: os.unlink(about + "/policy.txt"))
attempt("told", "put something in front")(lambda: mount(b"none", about, b"tmpfs"))

# PID 1 and its channel: outside, a process of one's own.
@attempt("init", "trace it")
def _(): check(libc.ptrace(0x4206, victim, 0, 0))
def vm(nr):
    buf = ctypes.create_string_buffer(8)
    iov = (ctypes.c_ulong * 2)(ctypes.addressof(buf), 8)
    there = (ctypes.c_ulong * 2)(ctypes.addressof(buf) if not inside else 0x400000, 8)
    call(nr, victim, iov, 1, there, 1, 0)
attempt("init", "read its memory")(lambda: vm(310))
attempt("init", "write its memory")(lambda: vm(311))
attempt("init", "its channel")(lambda: getfd(victim, 3 if inside else 1))
attempt("init", "its channel through /proc")(lambda: os.close(os.open("/proc/%d/fd/%d" % (victim, 3 if inside else 2), os.O_RDWR)))
attempt("init", "lower its limits")(lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (4, 4) if inside else (64, 64)))
attempt("init", "its scheduling")(lambda: os.sched_setscheduler(victim, os.SCHED_IDLE, os.sched_param(0)))
attempt("init", "its environment")(lambda: open("/proc/%d/environ" % victim).read())
attempt("init", "compare its files")(lambda: call(312, victim, victim, 0, 0, 1))
for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV):
    def end(s=s):
        if inside: os.kill(1, s); open("/proc/1/stat").read().rsplit(")", 1)[1].split()[0] in "SRI" and refuse()
        pid = os.fork()
        if pid == 0: signal.pause()
        os.kill(pid, s); os.waitpid(pid, os.WUNTRACED)
        if s == signal.SIGSTOP: os.kill(pid, 9)
    attempt("init", "end it with %s" % s.name)(end)

# Files with rights, as an image may bring them.
def made(mode, dev): os.mknod(work + "/node%d" % dev, mode, dev); os.close(os.open(work + "/node%d" % dev, os.O_RDONLY))
attempt("image", "a node of memory", exists("/dev/mem"))(lambda: made(0o20666, os.makedev(1, 1)))
attempt("image", "a node of a disk", lambda e: bool(os.listdir("/sys/block")))(lambda: made(0o60666, os.makedev(254, 0)))
attempt("image", "a node of the console", exists("/dev/console"))(lambda: made(0o20666, os.makedev(5, 1)))
attempt("image", "overlayfs's own attributes", has("overlay"))(lambda: os.setxattr(work, "trusted.overlay.opaque", b"y"))
attempt("image", "attributes of security modules", lambda e: e != errno.EOPNOTSUPP)(lambda: os.setxattr(work, "security.ima", b"\x01" * 20))
attempt("image", "a loop device", exists("/dev/loop-control"))(lambda: os.close(os.open("/dev/loop-control", os.O_RDWR)))
@attempt("image", "a file's capabilities", exists("/proc/self/setgroups"))
def _():
    path = work + "/cat"
    subprocess.run(["cp", "/usr/bin/cat", path], check=True)
    os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x2000001, 1 << 21, 0, 0, 0))
    out = subprocess.run([path, "/proc/self/status"], capture_output=True, text=True).stdout
    if not [l for l in out.splitlines() if l.startswith("CapEff") and int(l.split()[1], 16) >> 21 & 1]: refuse()

# Cgroups.
@attempt("cgroup", "mount the hierarchy")
def _(): mount(b"none", work, b"cgroup2")
@attempt("cgroup", "mount an old one", has("cgroup"))
def _(): mount(b"none", work, b"cgroup")
@attempt("cgroup", "a path of the host's")
def _():
    if "/.." not in (text := open("/proc/self/cgroup").read()) and all(l.split(":", 2)[2] in ("/", "") or l.split(":", 2)[2].startswith("/ex_") for l in text.splitlines()) and inside: refuse(errno.ENOENT)
def below(f): return [os.path.join(d, f) for d, _, fs in os.walk("/sys/fs/cgroup") if f in fs]
for f in ("cgroup.procs", "cgroup.kill", "cgroup.subtree_control", "release_agent", "memory.max"):
    def change(f=f):
        for path in below(f):
            try: os.close(os.open(path, os.O_WRONLY)); return
            except OSError: pass
        refuse(errno.ENOENT)
    attempt("cgroup", "open " + f, lambda e, f=f: bool(below(f)))(change)

# User ids and capabilities.
@attempt("ids", "write a map")
def _():
    if not inside: check(libc.unshare(NS["user"]))
    os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 0 1\n")
def caps(pid, bits):
    header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("IIIIII", bits, bits, 0, 0, 0, 0)
    check(libc.capset(header, data))
for n, bit in dict(SYS_ADMIN=21, NET_ADMIN=12, SYS_PTRACE=19, DAC_READ_SEARCH=2, SYS_MODULE=16).items():
    attempt("ids", "take CAP_" + n)(lambda bit=bit: caps(0, 1 << bit))
attempt("ids", "an id that is nobody's", everywhere)(lambda: os.setuid(3000000000))
attempt("ids", "give a file away", everywhere)(lambda: os.chown(work, 3000000000, -1))
attempt("ids", "read the host's shadow", exists("/etc/shadow"))(lambda: open("/etc/shadow").read())

# Doors of the kernel. Those that only root of the host may use are there for others.
def reached(nr, *args):
    def go():
        try: call(nr, *args)
        except OSError as e:
            if e.errno in (errno.EPERM, errno.ENOSYS, errno.EACCES): raise
    return go
for n, args in dict(io_uring_setup=(425, 8, 0), keyctl=(250, 0, -3, 0), add_key=(248, b"user", b"hutch-escape", b"y", 1, -1), request_key=(249, b"user", b"x", 0, 0),
                    fanotify_init=(300, 0x200, 0), kcmp=(312, os.getpid(), os.getpid(), 0, 0, 1), quotactl=(179, 0x80000700, b"/", 0, 0), setdomainname=(171, b"x", 1)).items():
    attempt("kernel", n)(reached(*args))
for n, args in dict(userfaultfd=(323, 1), bpf=(321, 0, 0, 0), perf_event_open=(298, 0, 0, -1, -1, 0), kexec_load=(246, 0, 0, 0, 0), init_module=(175, 0, 0, b""), finit_module=(313, -1, b"", 0),
                    swapon=(167, b"/x", 0), syslog=(103, 3, 0, 0), acct=(163, b"/x"), iopl=(172, 3), settimeofday=(164, 0, 0), open_by_handle_at=(304, -100, 0, 0), reboot=(169, 1, 2, 3, 0)).items():
    attempt("kernel", n, lambda e: e != errno.ENOSYS)(reached(*args))

for kind, what, fn, there in attempts:
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0: # whatever it does to its process, the next is not affected
        try:
            fn(); out = "done"
        except OSError as e:
            out = errno.errorcode.get(e.errno, str(e.errno))
            if not inside and there: out = "there" if there(e.errno) else "absent"
        except Exception as e: out = "broken: %r" % e
        os.write(w, out.encode()); os._exit(0)
    os.close(w)
    os.waitpid(pid, 0)
    print(json.dumps([kind, what, os.read(r, 999).decode()])); os.close(r)
if not inside: os.kill(victim, 9)
