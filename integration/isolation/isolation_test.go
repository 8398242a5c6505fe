package isolation_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestIdentity: uid 0 of a user namespace of its own, below a PID 1 that is not
// the caller's, in namespaces that are all new.
func TestIdentity(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "host")
	inside := func(argv ...string) string {
		return strings.TrimSpace(w.OK(t, append([]string{"exec", sb, "--"}, argv...)...))
	}
	for _, ns := range []string{"user", "pid", "mnt", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			t.Fatal(err)
		}
		if got := inside("readlink", "/proc/self/ns/"+ns); got == own || !strings.HasPrefix(got, ns+":") {
			t.Errorf("%s namespace %q, the caller's is %q", ns, got, own)
		}
	}
	if got := inside("sh", "-c", "id -u; echo $PPID; cat /proc/1/comm"); !regexp.MustCompile(`^0\n1\n\S+$`).
		MatchString(got) {
		t.Errorf("uid, parent and PID 1: %q", got)
	}
	if got := inside("cat", "/proc/self/timerslack_ns"); got != "50000" { // PID 1 has more
		t.Errorf("timer slack of %s ns", got)
	}
	// Its uid 0 is the caller's uid, or, for root, one that nobody has.
	if ids := strings.Fields(inside("cat", "/proc/self/uid_map")); len(ids) < 3 || ids[0] != "0" {
		t.Errorf("uid_map %v", ids)
	}
	d := w.Daemon(t)
	for _, pid := range append(d.Sandboxes, d.Hutchd, d.Launch) {
		st, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			t.Fatal(err)
		}
		if uid := world.OwnerOfFile(st); os.Geteuid() == 0 && uid == 0 {
			t.Errorf("process %d runs as the host's root", pid)
		} else if os.Geteuid() != 0 && uid != os.Geteuid() && uid != 0 { // 0: not dumpable
			t.Errorf("process %d runs as uid %d, not %d", pid, uid, os.Geteuid())
		}
	}
}

// TestHostFiles: what belongs to the host is not there; the allowed twin is a
// file of the sandbox's own, read with the same tool.
func TestHostFiles(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	secret := world.Write(t, w.Path("secret"), "of the host\n")
	script := fmt.Sprintf(`
import os
open("/root/own", "w").write("mine")
for path in ["/root/own", "/etc/passwd"]: print(path, os.path.exists(path))
for path in [%q, %q, "/etc/shadow", "/etc/ssh", "/run/docker.sock", "/proc/1/root/etc/shadow", "/sys/kernel/mm", "/boot", "/var/run/dbus"]:
    print(path, os.path.exists(path))
print("homes", sorted(os.listdir("/home")), sorted(os.listdir("/root")))
`, secret, w.Root())
	got := w.Python(t, script)
	want := fmt.Sprintf(`/root/own True
/etc/passwd True
%s False
%s False
/etc/shadow False
/etc/ssh False
/run/docker.sock False
/proc/1/root/etc/shadow False
/sys/kernel/mm False
/boot False
/var/run/dbus False
homes [] ['own']`, secret, w.Root())
	if got != want {
		t.Errorf("inside:\n%s\nwant:\n%s", got, want)
	}
}

// TestHostUntouched: writes stay inside, and what is read-only says so.
func TestHostUntouched(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	marker := filepath.Base(w.Dir)
	got := w.Python(t, fmt.Sprintf(`
import errno, os
def attempt(path, how="w"):
    try:
        with open(path, how) as f: f.write("x")
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
for path in ["/tmp/%[1]s", "/etc/%[1]s", "/root/%[1]s", "/var/tmp/%[1]s", "/%[1]s", "/dev/shm/%[1]s"]: print(attempt(path))
for path in ["/usr/%[1]s", "/usr/bin/env", "/usr/local/%[1]s"]: print(attempt(path, "a"))
for path in ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches"]: print(attempt(path))
print(attempt("/proc/sysrq-trigger") in ("EROFS", "ENOENT"))
`, marker))
	want := strings.Repeat("ok\n", 6) + strings.Repeat("EROFS\n", 3) + "EROFS\nEROFS\nEROFS\nTrue"
	if got != want {
		t.Errorf("inside:\n%s\nwant:\n%s", got, want)
	}
	for _, dir := range []string{"/tmp", "/etc", "/root", "/var/tmp", "/", "/dev/shm", "/usr"} {
		if _, err := os.Lstat(filepath.Join(dir, marker)); err == nil && dir != os.TempDir() {
			t.Errorf("%s/%s is on the host", dir, marker)
		}
	}
}

// TestNetworkOff: a listener of the host is out of reach, one inside is not.
func TestNetworkOff(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Error("somebody connected to the host's listener")
			c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	got := w.Python(t, fmt.Sprintf(`
import errno, os, socket
own = socket.create_server(("127.0.0.1", 0))
def attempt(addr, kind=socket.SOCK_STREAM, family=socket.AF_INET):
    try:
        s = socket.socket(family, kind); s.settimeout(10)
        s.connect(addr)
        if kind == socket.SOCK_DGRAM: s.send(b"x")
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
print("own", attempt(own.getsockname()))
print("host", attempt(("127.0.0.1", %d)))
print("internet", attempt(("192.0.2.1", 80)), attempt(("192.0.2.1", 53), socket.SOCK_DGRAM))
print("ipv6", attempt(("2001:db8::1", 80), family=socket.AF_INET6))
print("metadata", attempt(("169.254.169.254", 80)))
print("links", sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else [l.split(":")[0].strip() for l in open("/proc/net/dev").readlines()[2:]])
print("routes", len(open("/proc/net/route").readlines()) - 1)
for family, kind in ((socket.AF_INET, socket.SOCK_RAW), (17, socket.SOCK_RAW), (40, socket.SOCK_STREAM), (38, socket.SOCK_SEQPACKET)):
    try:
        socket.socket(family, kind); print(family, "ok")
    except OSError as e: print(family, errno.errorcode[e.errno])
a, b = socket.socketpair(); a.send(b"x"); print("unix", b.recv(1))
try: socket.getaddrinfo("example.com", 80); print("resolved")
except socket.gaierror: print("not resolved")
`, port))
	want := `own ok
host ECONNREFUSED
internet ENETUNREACH ENETUNREACH
ipv6 (ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT)
metadata ENETUNREACH
links \['lo'\]
routes 0
2 EPERM
17 (EPERM|EACCES|EAFNOSUPPORT)
40 (EPERM|EACCES|EAFNOSUPPORT)
38 (EPERM|EACCES|EAFNOSUPPORT)
unix b'x'
not resolved`
	if !regexp.MustCompile("^" + want + "$").MatchString(got) {
		t.Errorf("inside:\n%s\nwant:\n%s", got, want)
	}
}

// TestPrivileges: capabilities, no_new_privs, filters; setuid files give nothing.
func TestPrivileges(t *testing.T) {
	testenv.Axes(t, testenv.User, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	status := w.Inside(t, "cat", "/proc/self/status")
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
		"SigIgn:\t0000000000000000", "SigBlk:\t0000000000000000",
	} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	// CAP_CHOWN 0 to SETUID 7 are there; NET_RAW 13, SYS_ADMIN 21, SYS_PTRACE 19,
	// MKNOD 27, SYS_MODULE 16 and BPF 39 never are.
	got := w.Python(t, `
for line in open("/proc/self/status"):
    if line.startswith(("CapBnd", "CapEff", "CapPrm")):
        v = int(line.split()[1], 16)
        print([n for n in (0, 7) if not v >> n & 1], [n for n in (12, 13, 16, 17, 19, 21, 22, 23, 24, 25, 27, 39) if v >> n & 1])`)
	if got != "[] []\n[] []\n[] []" {
		t.Errorf("missing and forbidden capabilities: %s", got)
	}
	if testenv.CurrentKind() == mustrun.NoSubUID {
		return // there is nobody but uid 0
	}
	got = w.OK(t, "run", "host", "sh", "-c", `
cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && ls -l /tmp/id | cut -c1-10
cp /usr/bin/id /tmp/plain
id -u
`)
	if got != "-rwsr-xr-x\n0\n" {
		t.Errorf("got %q", got)
	}
	sb := w.Create(t, "host")
	w.OK(t, "exec", sb, "sh", "-c", "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id")
	if got := w.OK(t, "exec", "-u", "1000", sb, "/tmp/id"); !strings.HasPrefix(got, "uid=1000") ||
		strings.Contains(got, "euid=0") {
		t.Errorf("a setuid file gave %q", got)
	}
}

// TestDev: the device nodes that programs need, and no others.
func TestDev(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	got := strings.Fields(w.Inside(t, "ls", "/dev"))
	want := []string{"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
		"urandom", "zero"}
	got = slices.DeleteFunc(got, func(s string) bool { return s == "core" || s == "console" })
	if !slices.Equal(got, want) {
		t.Errorf("/dev holds %v, want %v", got, want)
	}
	out := w.Python(t, `
import errno, os, stat
print(len(open("/dev/urandom", "rb").read(16)), open("/dev/zero", "rb").read(2), open("/dev/null").read() == "")
try: open("/dev/full", "w").write("x" * 100000)
except OSError as e: print(errno.errorcode[e.errno])
for mode, name in ((stat.S_IFREG, "file"), (stat.S_IFIFO, "fifo"), (stat.S_IFCHR, "char"), (stat.S_IFBLK, "block")):
    try:
        os.mknod("/tmp/" + name, mode | 0o600, os.makedev(1, 3)); print(name, "ok")
    except OSError as e: print(name, errno.errorcode[e.errno])
for path in ("/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/net/tun", "/dev/kvm"): print(os.path.exists(path), end=" ")`)
	if out != "16 b'\\x00\\x00' True\nENOSPC\nfile ok\nfifo ok\nchar EPERM\nblock EPERM\nFalse False False False False " {
		t.Errorf("got %q", out)
	}
}

// TestFDs: a command has the fds 0, 1 and 2, and those are what was given.
func TestFDs(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	const list = `import os; print(sorted(int(f) for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)))`
	const held = `
import os
fds = []
for fd in range(4096):
    try: os.fstat(fd); fds.append(fd)
    except OSError: pass
print(fds)`
	if got := w.Python(t, held); got != "[0, 1, 2]" {
		t.Errorf("fds %s: %s", got, w.Python(t, list))
	}
	// An fd that the caller forgot to close does not get in either.
	cmd := w.Command("run", "host", "--", "/usr/bin/python3", "-c", held)
	cmd.ExtraFiles = []*os.File{world.Open(t, "/etc/hostname", os.O_RDONLY), world.Open(t, w.Dir, os.O_RDONLY)}
	if r := w.Finish(t, cmd).Want(t, 0); r.Stdout != "[0, 1, 2]\n" {
		t.Errorf("fds %s", r.Stdout)
	}
	// Through RPC, with a terminal, and for a child of a shell.
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	for i := range 3 {
		if res := c.Exec(sb, "/usr/bin/python3 -c '"+held+"'"); res.Stdout != "[0, 1, 2]\n" {
			t.Errorf("exec %d: %+v", i, res)
		}
	}
}

// TestInitSafe: nothing inside can end or look into PID 1.
func TestInitSafe(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	res := c.Exec(sb, "for s in 9 15 2 1 3 10 12 19 11; do kill -$s 1; done; sleep infinity & kill -9 $! && wait $!; echo $?")
	if res.Stdout != "137\n" {
		t.Errorf("the allowed twin: %+v", res)
	}
	// The channel to PID 1 and its memory are out of reach.
	res = c.Exec(sb, `sleep infinity & for pid in $! 1; do
		for file in fd/0 exe root cwd ns/pid; do readlink /proc/$pid/$file >/dev/null; echo $?; done
		for file in maps environ; do cat /proc/$pid/$file >/dev/null; echo $?; done
	done; kill $!`)
	if got, want := strings.Join(strings.Fields(res.Stdout), " "), "0 0 0 0 0 0 0 1 1 1 1 1 1 1"; got != want {
		t.Errorf("looking into a process of its own, then into PID 1: %s, want %s\n%s", got, want, res.Stderr)
	}
	if res := c.Exec(sb, "echo alive"); res.Stdout != "alive\n" {
		t.Errorf("%+v", res)
	}
	// kill -1 is what a careless script does.
	if res := c.Exec(sb, "kill -9 -1; echo not reached"); res.ExitCode != 137 && res.Stdout != "not reached\n" {
		t.Errorf("%+v", res)
	}
	if res := c.Exec(sb, "echo alive"); res.Stdout != "alive\n" {
		t.Errorf("%+v", res)
	}
}

// TestSeccomp: refused system calls with their errno, each beside an allowed one,
// made by the same ctypes.
func TestSeccomp(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	testenv.Smoke(t)
	t.Parallel()
	w := world.New(t)
	testenv.Arch(t, "amd64") // whose numbers these are
	got := w.Python(t, `
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(nr, *args)
    print(name, "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()])
call("getpid", 39)
call("memfd_create", 319, b"x", 0)
call("unshare files", 272, 0x400)
call("unshare user", 272, 0x10000000)
call("unshare mount", 272, 0x20000)
call("unshare net", 272, 0x40000000)
call("setns", 308, 0, 0)
call("mount", 165, b"none", b"/mnt", b"tmpfs", 0, 0)
call("umount2", 166, b"/proc", 2)
call("pivot_root", 155, b"/", b"/")
call("fsopen", 430, b"tmpfs", 0)
call("open_tree", 428, -100, b"/", 1)
call("move_mount", 429, -1, b"", -1, b"", 0)
call("mount_setattr", 442, -100, b"/", 0, 0, 0)
call("bpf", 321, 0, 0, 0)
call("perf_event_open", 298, 0, 0, -1, -1, 0)
call("io_uring_setup", 425, 8, 0)
call("userfaultfd", 323, 0)
call("keyctl", 250, 0, -3, 0)
call("add_key", 248, b"user", b"x", b"y", 1, -3)
call("request_key", 249, b"user", b"x", 0, 0)
call("kexec_load", 246, 0, 0, 0, 0)
call("init_module", 175, 0, 0, b"")
call("reboot", 169, 0xfee1dead, 672274793, 0, 0)
call("swapon", 167, b"/x", 0)
call("settimeofday", 164, 0, 0)
call("sethostname", 170, b"x", 1)
call("open_by_handle_at", 304, -100, 0, 0)
call("process_vm_readv", 310, 1, 0, 0, 0, 0, 0)
call("ptrace attach 1", 101, 16, 1, 0, 0)
call("clone3", 435, 0, 0)
call("unknown", 999)
call("chroot", 161, b"/tmp")
`)
	want := map[string]string{
		"getpid": "ok", "memfd_create": "ok", "unshare files": "ok", "clone3": "ENOSYS", "io_uring_setup": "ENOSYS",
		"unknown":          "ENOSYS",
		"process_vm_readv": ".*", "settimeofday": "EPERM|ENOSYS", "chroot": "ok|EPERM",
	}
	for line := range strings.Lines(got) {
		i := strings.LastIndexByte(line, ' ')
		name, result := line[:i], strings.TrimSpace(line[i+1:])
		pattern, ok := want[name]
		if !ok {
			pattern = "EPERM|ENOSYS"
		}
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(result) {
			t.Errorf("%s: %s, want %s", name, result, pattern)
		}
	}
	if n := strings.Count(got, "\n"); n < 30 {
		t.Errorf("only %d calls were made: %s", n, got)
	}
}

// TestNoNesting: user namespaces cannot be made, by any of the tools.
func TestNoNesting(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	// Without the flag the same tool runs the same command.
	if got := w.Inside(t, "unshare", "echo", "allowed"); got != "allowed\n" {
		t.Errorf("got %q", got)
	}
	for _, flag := range []string{"-U", "-Ur", "-m", "-n", "-p", "-i", "-u"} {
		w.Run(t, "run", "host", "unshare", flag, "true").Want(t, 1).Says(t, "unshare failed")
	}
}
