package hostexec

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

func TestMain(m *testing.M) {
	if IsRunner() {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// run runs a text by bash and returns its result and stdout.
func run(t *testing.T, c Command, timeout float64, command string) (api.ExecResult, string) {
	t.Helper()
	if c.Argv = Shell(command); c.Argv == nil {
		t.Fatal("no bash")
	}
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	if c.Env == nil {
		c.Env = Environ(false, nil)
	}
	out, err := NewCapture(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = out.W, out.W
	var reported []api.HostEndParams
	res, err := c.Run(t.Context(), &api.Decision{ID: "hx_1", TimeoutS: timeout}, func(*Process) { _ = out.W.Close() },
		func(_ context.Context, p api.HostEndParams) error {
			reported = append(reported, p)
			return nil
		})
	text, _, _ := out.Text()
	if err != nil || len(reported) != 1 || reported[0].ID != "hx_1" || reported[0].ExitCode != res.ExitCode {
		t.Errorf("%v, reported %+v, result %+v", err, reported, res)
	}
	return res, text
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		command string
		code    int
		verdict api.Verdict
		out     string
	}{
		{"echo hi; exit 3", 3, api.VerdictNonzero, "hi\n"},
		{"true", 0, api.VerdictOK, ""},
		{"kill -SEGV $$", 139, api.VerdictSignal, ""},
		{"read x; echo \"[$x]\"", 0, api.VerdictOK, "[]\n"}, // stdin is /dev/null
		{"none-such-command", 127, api.VerdictNonzero, "none-such-command: command not found\n"},
		{"test ! -p /proc/self/fd/3 -a ! -p /proc/self/fd/4", 0, api.VerdictOK, ""}, // not the runner's own
	} {
		res, out := run(t, Command{}, 0, tt.command)
		if res.ExitCode != tt.code || res.Verdict != tt.verdict || !strings.HasSuffix(out, tt.out) {
			t.Errorf("%s: %+v, %q", tt.command, res, out)
		}
	}
}

func TestNotRun(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		argv0 string
		env   []string
		code  int
	}{
		{"none-such", []string{"PATH=/usr/bin:/bin"}, 127},
		{"plain", []string{"PATH=" + dir}, 126},
		{plain, nil, 126},
		{"./none", nil, 127},
		{"ls", nil, 127},                   // no PATH
		{"plain", []string{"PATH=."}, 127}, // none that is absolute
	} {
		p, err := Start(&Command{Argv: []string{tt.argv0}, Dir: dir, Env: tt.env})
		if err != nil {
			t.Fatal(err)
		}
		end := p.Wait(t.Context())
		if !end.NotRun || end.ExitCode != tt.code || !strings.Contains(end.Error, tt.argv0) {
			t.Errorf("%s with %q: %+v", tt.argv0, tt.env, end)
		}
	}
}

// awaitText is await of a pid that a command has printed.
func awaitText(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	await(t, n)
}

// await waits for the end of a process that is no child: by its pidfd.
func await(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(testenv.Patience(20*time.Second).
			Milliseconds()))
	}
	if n != 1 || err != nil {
		t.Errorf("%d lives on: %v", pid, err)
	}
}

// TestLeaves: what a command leaves in the background ends with it, in whatever session it is, and with its timeout.
func TestLeaves(t *testing.T) {
	for _, tt := range []struct {
		command string
		timeout float64
		code    int
	}{
		{"sleep 1000 & echo $!", 0, 0},
		{"x=$(setsid bash -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $!'); echo $x", 0, 0},
		{"echo $$; exec sleep 1000", 0.3, 137},
		{"trap '' TERM INT; (trap '' TERM; exec sleep 1000) & echo $!; wait", 0.3, 137},
	} {
		res, out := run(t, Command{}, tt.timeout, tt.command)
		pid, err := strconv.Atoi(strings.TrimSpace(out))
		if err != nil || res.ExitCode != tt.code || res.TimedOut != (tt.timeout > 0) {
			t.Fatalf("%s: %+v, %q", tt.command, res, out)
		}
		await(t, pid)
	}
}

// TestSignal: signals go to the command's group; the end of the context kills all of it.
func TestSignal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := Start(&Command{Argv: Shell("trap 'echo term; exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done"), Dir: "/", Env: Environ(false, nil), Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewScanner(r)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("%q", lines.Text())
	}
	p.Signal("SIGTERM")
	if end := p.Wait(t.Context()); end.ExitCode != 7 {
		t.Errorf("%+v", end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if p, err = Start(&Command{Argv: []string{"sleep", "1000"}, Dir: "/", Env: Environ(true, nil)}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if end := p.Wait(ctx); end.Signal != "SIGKILL" || end.ExitCode != 137 {
		t.Errorf("%+v", end)
	}
	await(t, p.PID)
}

// TestRunnerKilled: the command dies with the process that holds it, and nobody is told a made-up end.
func TestRunnerKilled(t *testing.T) {
	p, err := Start(&Command{Argv: []string{"sleep", "1000"}, Dir: "/", Env: Environ(true, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.runner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if end := p.Wait(t.Context()); end.Error == "" || end.ExitCode != 137 {
		t.Errorf("%+v", end)
	}
	await(t, p.PID)
}

// TestReadOnly: a confined command reads its folder and the system's programs. It does not follow links out of it,
// writes nothing, runs no program of the folder; the same without is allowed.
func TestReadOnly(t *testing.T) {
	testenv.Require(t, probe.Landlock())
	if !Confines() {
		t.Error("the kernel has Landlock, and does not confine")
	}
	outside, dir := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{filepath.Join(outside, "key"): "secret\n",
		filepath.Join(dir, "own"): "own\n", filepath.Join(dir, "tool"): "#!/bin/bash\necho ran\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "key"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command, out string
		refused      bool
	}{
		{"cat own", "own", false},
		{"ls -l; id; nproc; echo x >/dev/null; sort own; grep -r own .", "own", false},
		{"cat link", "secret", true},
		{"cat " + filepath.Join(outside, "key"), "secret", true},
		{"echo new >made && cat made", "new", true},
		{"echo more >>own && tail -1 own", "more", true},
		{"./tool", "ran", true},
		{"rm own && echo gone", "gone", true},
		{"exec 3<>/dev/tcp/127.0.0.1/1", "Operation not permitted", false},
	} {
		for _, readOnly := range []bool{true, false} {
			res, out := run(t, Command{Dir: dir, ReadOnly: readOnly, Env: Environ(readOnly, nil)}, 0, tt.command)
			switch refused := readOnly && tt.refused; {
			case strings.HasPrefix(tt.command, "exec 3") && !readOnly:
			case refused && (!strings.Contains(out, "Permission denied") || strings.Contains(out, tt.out)):
				t.Errorf("%s, confined: %+v %q", tt.command, res, out)
			case !refused && !strings.Contains(out, tt.out):
				t.Errorf("%s, read-only %v: %+v %q", tt.command, readOnly, res, out)
			}
		}
	}
}

// attempts are what Landlock does not decide about: each line prints ok where the kernel lets it.
const attempts = `
import ctypes, errno, fcntl, os, signal, socket, struct, sys, termios, threading
libc = ctypes.CDLL(None, use_errno=True)
outside, pid = sys.argv[1], int(sys.argv[2])
def call(n, *args):
    if libc.syscall(n, *args) < 0:
        raise OSError(ctypes.get_errno(), "")
def path_socket():
    with socket.socket(socket.AF_UNIX) as s: s.connect(outside + "/socket")
def abstract():
    with socket.socket(socket.AF_UNIX) as s: s.connect("\0" + outside)
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", ("127.0.0.1", 9))
def mptcp():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262): pass
def listen():
    with socket.socket() as s: s.listen()
def typing():
    # Of no terminal: ENOTTY where it is not refused, which is as good.
    try: fcntl.ioctl(os.open(os.devnull, os.O_RDONLY), termios.TIOCSTI, b"x")
    except OSError as e:
        if e.errno != errno.ENOTTY: raise
        raise OSError(errno.EPERM, "")
def datagram():
    a, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b"x", outside + "/socket")
def flags():
    fcntl.ioctl(os.open("shown", os.O_RDONLY), 0x40086602, struct.pack("l", 0))
def owner():
    a, _ = socket.socketpair(); fcntl.fcntl(a, fcntl.F_SETOWN, pid)
def pair():
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
def child():
    child = os.fork()
    if child == 0: signal.pause()
    os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
def thread():
    t = threading.Thread(target=lambda: None); t.start(); t.join()
for name, f in [
    ("chmod", lambda: os.chmod(outside + "/file", 0o644)), ("fchmod", lambda: os.fchmod(os.open("shown", os.O_RDONLY), 0o644)),
    ("utime", lambda: os.utime(outside + "/file")), ("chown", lambda: os.chown(outside + "/file", -1, -1)),
    ("setxattr", lambda: os.setxattr(outside + "/file", "user.x", b"x")), ("memfd", lambda: os.close(os.memfd_create("x"))),
    ("path socket", path_socket), ("abstract socket", abstract), ("udp", udp), ("mptcp", mptcp), ("listen", listen), ("datagram", datagram), ("flags", flags), ("owner", owner), ("shm", lambda: call(31, 1 << 30, 0, 0)),
    ("signal", lambda: os.kill(pid, 0)), ("typing", typing), ("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 0)),
    ("unshare", lambda: call(272, 0x10000000) if os.uname().machine == "x86_64" else call(97, 0x10000000)),
    ("pair", pair), ("child", child), ("thread", thread), ("read", lambda: open("own").read()),
]:
    try:
        f()
        print(name + ": ok")
    except OSError as e:
        print(name + ": " + errno.errorcode.get(e.errno, "?"))
`

// TestConfined: what a command that only reads does not do is refused by a filter where Landlock has nothing to say
// about it. Outside each of these works, but for what this machine does not have.
func TestConfined(t *testing.T) {
	testenv.Require(t, probe.Landlock())
	testenv.Programs(t, "python3")
	outside, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{filepath.Join(outside, "file"): "", filepath.Join(dir, "own"): "own\n",
		filepath.Join(dir, "try.py"): attempts} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "own"), filepath.Join(dir, "shown")); err != nil {
		t.Fatal(err)
	}
	abi, err := sys.LandlockABI()
	if err != nil {
		t.Fatal(err)
	}
	harmless := []string{"pair: ok", "thread: ok", "read: ok"}
	if abi >= scopes {
		harmless = append(harmless, "child: ok")
	}
	for _, readOnly := range []bool{true, false} {
		_, out := run(t, Command{Dir: dir, ReadOnly: readOnly, Env: Environ(readOnly, nil)}, 0,
			fmt.Sprintf("python3 try.py %s %d", outside, os.Getpid()))
		for line := range strings.Lines(out) {
			line = strings.TrimSuffix(line, "\n")
			name, how, _ := strings.Cut(line, ": ")
			switch expected := slices.Contains(harmless, line); {
			case readOnly && !expected && how != "EPERM" && how != "EACCES" && (how != "ENOTTY" || name != "flags"):
				t.Errorf("confined: %s", line)
			case !readOnly && (how == "EPERM" || how == "EACCES") && name != "unshare" && name != "typing":
				t.Errorf("not confined: %s", line)
			}
		}
		if n := strings.Count(out, "\n"); n != 23 {
			t.Errorf("%d of 23 attempts: %s", n, out)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Setenv("LD_PRELOAD_TEST", "x")
	t.Setenv("BASH_FUNC_ls%%", "() { echo bad; }")
	t.Setenv("PATH", ".:"+os.Getenv("PATH"))
	t.Setenv("LC_TEST", "y")
	env := strings.Join(Environ(true, map[string]string{"A": "b"}), "\n")
	if strings.Contains(env, "LD_PRELOAD") || strings.Contains(env, "BASH_FUNC") ||
		!strings.Contains(env, "PATH="+Path) || !strings.Contains(env, "LC_TEST=y") || strings.Contains(env, "A=b") {
		t.Error(env)
	}
	if env := Environ(false, map[string]string{"PATH": "/x"}); env[len(env)-1] != "PATH=/x" {
		t.Error(env)
	}
}

// TestCapture: of what is too long the beginning and the end are kept.
func TestCapture(t *testing.T) {
	c, err := NewCapture(20)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		fmt.Fprintf(c.W, "%d,", i)
	}
	head, tail, omitted := c.Close()
	if string(head) != "0,1,2,3,4," || string(tail) != "7,998,999," || omitted != 3890-20 {
		t.Errorf("%q %q %d", head, tail, omitted)
	}
}

func FuzzParentOf(f *testing.F) {
	for _, s := range []string{"1 (a) S 2 3", "1 (a) b) c) S 77 1", "", ")", "1 (x) S -1",
		"1 (x) S 99999999999999999999"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stat []byte) {
		cost.Input(t, stat, func(stat []byte) {
			if parentOf(stat) < 0 {
				t.Errorf("%q", stat)
			}
		})
	})
	if parentOf([]byte("1 (a) b) S 77 1")) != 77 {
		f.Error("not 77")
	}
}
