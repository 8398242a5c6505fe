# What a program sees from inside of a sandbox: one "key<TAB>value" a line.
# Arguments: the caller's home, a file to write, names that are in that home.
import errno, os, socket, subprocess, sys

home, mine, names = sys.argv[1], sys.argv[2], sys.argv[3:]


def say(key, value):
    print(key, str(value).strip().replace("\n", ", "), sep="\t")


def attempt(fn):
    try:
        fn()
        return "allowed"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def unshare():
    # A new user namespace is where most kernel exploits start.
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(0x10000000) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
    except ImportError:
        if subprocess.run(["unshare", "-U", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            raise OSError(errno.EPERM, "unshare")


say("program", "python " + sys.version.split()[0])
say("uid", os.getuid())
say("ppid", os.getppid())
say("hostname", socket.gethostname())
say("uid_map", " ".join(open("/proc/self/uid_map").readline().split()))
for ns in "user", "pid", "net", "mnt", "ipc", "uts", "cgroup":
    say("ns_" + ns, os.readlink("/proc/self/ns/" + ns))
for line in open("/proc/self/status"):
    key, value = line.split(":", 1)
    if key in ("Seccomp", "NoNewPrivs", "CapEff", "CapBnd"):
        say(key, value)
say("pid1", open("/proc/1/comm").read())

say("home_seen", sum(os.path.lexists(os.path.join(home, n)) for n in names))
say("shadow", attempt(lambda: open("/etc/shadow").close()))

with open(mine, "w") as f:
    f.write("written in the sandbox")
say("wrote", open(mine).read())

say("interfaces", " ".join(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line))
say("connect", attempt(lambda: socket.create_connection(("192.0.2.1", 80), timeout=5).close()))
say("unshare", attempt(unshare))

say("primes", sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, 1000)))
