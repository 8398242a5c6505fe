package isolation_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// socketScript tells what sockets can be made and what else the profiles tell apart.
const socketScript = `
import ctypes, errno, os, socket
def attempt(name, f):
    try:
        f()
        print(name, "ok")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*[ctypes.c_long(a) for a in args]) < 0: raise OSError(ctypes.get_errno(), "")
attempt("unix", lambda: socket.socket(socket.AF_UNIX).close())
attempt("tcp", lambda: socket.socket().close())
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close())
attempt("chroot", lambda: os.chroot("/"))
def child(*args):
    pid = os.fork()
    if pid == 0:
        try:
            call(*args)
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code: raise OSError(code, "")
attempt("user namespace", lambda: child(272, 0x10000000))
attempt("mount namespace", lambda: child(272, 0x10020000))
attempt("traceme", lambda: child(101, 0, 0, 0, 0))
`

// TestSeccompProfiles: each profile refuses what it says, with the errno of a kernel that
// lacks it, and the same program is allowed the rest.
func TestSeccompProfiles(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	testenv.Arch(t, "amd64") // whose numbers these are
	w := world.New(t)
	for profile, want := range map[string]string{
		"default": "unix ok\ntcp ok\nnetlink ok\nchroot ok\nuser namespace EPERM\nmount namespace EPERM\ntraceme ok",
		"build":   "unix ok\ntcp ok\nnetlink ok\nchroot ok\nuser namespace EPERM\nmount namespace EPERM\ntraceme EPERM",
		"strict":  "unix ok\ntcp EAFNOSUPPORT\nnetlink EAFNOSUPPORT\nchroot EPERM\nuser namespace EPERM\nmount namespace EPERM\ntraceme EPERM",
		"browser": "unix ok\ntcp ok\nnetlink EAFNOSUPPORT\nchroot ok\nuser namespace ok\nmount namespace EPERM\ntraceme ok",
	} {
		if got := w.Python(t, socketScript, "--seccomp", profile); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", profile, got, want)
		}
		sb := w.Create(t, "--seccomp", profile, "host")
		if out := w.OK(t, "inspect", sb); !strings.Contains(out, "profile "+profile) ||
			!strings.Contains(out, `"seccomp": "`+profile+`"`) {
			t.Errorf("inspect does not tell of profile %s: %s", profile, out)
		}
		everyday(t, w, sb)
		w.OK(t, "rm", "-f", sb)
	}
}

// everyday does what people do with any sandbox: a shell with a pipe and a file, files
// in and out, a background job that is killed.
func everyday(t *testing.T, w *world.World, sb string) {
	t.Helper()
	if got := w.OK(t, "exec", sb, "--", "sh", "-c",
		"seq 3 | sort -r >/tmp/f; cat /tmp/f; (sleep 600 >/dev/null 2>&1 & ); id -u"); got != "3\n2\n1\n0\n" {
		t.Errorf("a shell: %q", got)
	}
	from, to := world.Write(t, w.Path("from-"+sb), "content\n"), w.Path("to-"+sb)
	w.OK(t, "cp", from, sb+":/tmp/copy")
	w.OK(t, "cp", sb+":/tmp/copy", to)
	if got, err := os.ReadFile(to); err != nil || string(got) != "content\n" {
		t.Errorf("copied %q, %v", got, err)
	}
}

// refusal is how tools tell of EPERM, EACCES and EAFNOSUPPORT.
var refusal = regexp.MustCompile(`(?i)not permitted|permission denied|not supported|must be root`)

// TestSeccompBrowser: who makes namespaces gets capabilities there, and nothing that lies
// beyond: no mounts, no firewall, no devices.
func TestSeccompBrowser(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Fatal(err)
	}
	sb := w.Create(t, "--seccomp", "browser", "host")
	if got := w.OK(t, "exec", sb, "--", "unshare", "-Urpfn", "sh", "-c",
		"id -u; grep CapEff /proc/self/status"); got != "0\nCapEff:\t000001ffffffffff\n" {
		t.Errorf("nested: %q", got)
	}
	for name, command := range map[string]string{
		"mount":     "unshare -Urm true",
		"mount(2)":  "unshare -Ur mount -t tmpfs none /tmp",
		"hostname":  "unshare -Ur hostname evil",
		"uts":       "unshare -Uru true",
		"join":      "unshare -Ur nsenter -t 1 -m true",
		"link":      "unshare -Urn ip link set lo up",
		"interface": "unshare -Urn python3 -c 'import fcntl,socket,struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sH14x\", b\"lo\", 1))'",
		"tables":    "unshare -Urn python3 -c 'import socket; socket.socket().setsockopt(0, 64, bytes(64))'",
	} {
		r := w.Run(t, "exec", sb, "--", "sh", "-c", command)
		if r.Code == 0 || !refusal.MatchString(r.Stderr) {
			t.Errorf("%s: exit %d: %s", name, r.Code, r.Stderr)
		}
	}
	// The twins.
	w.OK(t, "exec", sb, "--", "unshare", "-Urn", "python3", "-c",
		"import fcntl,socket; fcntl.ioctl(socket.socket(), 0x8913, b'lo'.ljust(40, bytes(1))); socket.socket().setsockopt(1, 9, 1)")
	if r := w.Run(t, "run", "host", "--", "unshare", "-U", "true"); r.Code == 0 {
		t.Error("the default profile allows user namespaces")
	}
	if got := w.OK(t, "exec", sb, "--", "sh", "-c",
		"df -B1M --output=size /dev/shm | tail -1"); len(strings.TrimSpace(got)) < len("512") {
		t.Errorf("/dev/shm has %q MiB, too few for a browser", got)
	}
}

// TestSeccompCustom: a file of the caller's takes away, for commands, and nothing else; a wrong
// one is refused before anything is made.
func TestSeccompCustom(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	good := world.Write(t, w.Path("good.json"), `{
  "defaultAction": "SCMP_ACT_ALLOW",
  "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
  "syscalls": [
    {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 71},
    {"names": ["mount", "unshare"], "action": "SCMP_ACT_ALLOW", "comment": "gives nothing"}
  ]
}`)
	sb := w.Create(t, "--seccomp", good, "host")
	if r := w.Run(t, "exec", sb, "--", "mkdir", "/tmp/x"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "Protocol error") {
		t.Errorf("mkdir: exit %d: %s", r.Code, r.Stderr)
	}
	w.OK(t, "exec", sb, "--", "touch", "/tmp/x")
	if r := w.Run(t, "exec", sb, "--", "unshare", "-U", "true"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "Operation not permitted") {
		t.Errorf("unshare: exit %d: %s", r.Code, r.Stderr)
	}
	if out := w.OK(t, "inspect", sb); !strings.Contains(out, "profile custom") {
		t.Errorf("inspect: %s", out)
	}
	for name, bad := range map[string][2]string{
		"call":   {"{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"syscalls\": [\n{\"names\": [\"mkdirr\"], \"action\": \"SCMP_ACT_KILL\"}]}", "line 3: mkdirr: no such system call"},
		"action": {"{\n\"defaultAction\": \"SCMP_ACT_ALOW\"}", "line 2"},
		"execve": {`{"defaultAction": "SCMP_ACT_ERRNO"}`, "does not allow execve"},
		"json":   {"{\n\n", "line 3: it ends in the middle"},
		"two actions": {"{\"defaultAction\": \"SCMP_ACT_ALLOW\",\n\"syscalls\": [\n{\"names\": [\"socket\"], \"action\": \"SCMP_ACT_KILL\", \"args\": [" +
			"{\"index\": 0, \"value\": 2, \"op\": \"SCMP_CMP_EQ\"}]},\n{\"names\": [\"socket\"], \"action\": \"SCMP_ACT_ERRNO\"}]}",
			"line 4: socket: SCMP_ACT_ERRNO 1 here and SCMP_ACT_KILL_THREAD in line 3 are both for the call with arguments such as 0: 0x2"},
	} {
		path := world.Write(t, w.Path(name+".json"), bad[0])
		if r := w.Run(t, "run", "--seccomp", path, "host", "--", "true"); r.Code != 125 ||
			!strings.Contains(r.Stderr, bad[1]) {
			t.Errorf("%s: exit %d: %s", name, r.Code, r.Stderr)
		}
	}
	for _, missing := range []string{"./none.json", "lax", "custom"} {
		if r := w.Run(t, "run", "--seccomp", missing, "host", "--", "true"); r.Code != 125 ||
			!strings.Contains(r.Stderr, missing) {
			t.Errorf("%s: exit %d: %s", missing, r.Code, r.Stderr)
		}
	}
	if got := w.OK(t, "ps", "-q"); strings.Count(got, "\n") != 1 {
		t.Errorf("sandboxes: %q", got)
	}
}

// TestSeccompCustomKills: a call that the profile kills for is told as that, of a command and of a shell's child; a
// profile of all calls up to some number lets programs use threads, whose newest call glibc only tries.
func TestSeccompCustomKills(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	kills := world.Write(t, w.Path("kills.json"), `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
  {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_KILL_PROCESS"}]}`)
	sb := w.Create(t, "--seccomp", kills, "host")
	for _, command := range [][]string{{"mkdir", "/tmp/x"}, {"sh", "-c", "mkdir /tmp/x; exit $?"}} {
		r := w.Run(t, append([]string{"exec", sb, "--"}, command...)...)
		if r.Code != 159 || !strings.Contains(r.Stderr, "profile kills what calls that have SCMP_ACT_KILL") {
			t.Errorf("%q: exit %d: %s", command, r.Code, r.Stderr)
		}
	}
	w.OK(t, "exec", sb, "--", "touch", "/tmp/x")

	table, err := os.ReadFile("../../seccomp/calls_" + runtime.GOARCH + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(table)) {
		var nr int
		var name string
		if _, err := fmt.Sscan(line, &nr, &name); err == nil && nr <= 434 {
			names = append(names, strconv.Quote(name))
		}
	}
	old := world.Write(t, w.Path("old.json"),
		`{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"action": "SCMP_ACT_ALLOW", "names": [`+
			strings.Join(names, ", ")+`]}]}`)
	const script = `
import ctypes, threading
t = threading.Thread(target=print, args=("a thread",)); t.start(); t.join()
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(435, 0, 0), ctypes.get_errno())`
	if r := w.Run(t, "run", "--seccomp", old, "host", "--", "python3", "-c", script); r.Stdout != "a thread\n-1 38\n" {
		t.Errorf("exit %d: %q: %s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestTraceMe: a command that asks its parent to trace it, and gets PID 1 for that, stops at
// its first signal, as under any parent that is no debugger; the sandbox goes on.
func TestTraceMe(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	testenv.Arch(t, "amd64") // whose number it is
	w := world.New(t)
	sb := w.Create(t, "host")
	const script = `
import ctypes, os, signal
print(ctypes.CDLL(None).syscall(101, 0, 0, 0, 0), flush=True)
os.kill(os.getpid(), signal.SIGUSR1)`
	soon := fmt.Sprintf("%.0fs", testenv.Patience(time.Second).Seconds())
	r := w.Run(t, "exec", "--timeout", soon, sb, "--", "python3", "-c", script)
	if r.Code != 124 || r.Stdout != "0\n" {
		t.Errorf("exit %d, %q: %s", r.Code, r.Stdout, r.Stderr)
	}
	if got := w.OK(t, "exec", sb, "--", "echo", "alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}
