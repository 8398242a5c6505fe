package isolation_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// The escape suite: what hostile code inside tries against the daemon and the
// caller. Denials have an allowed twin with the same tool.

// TestEscapeSocket: a sandbox that got hold of the daemon's socket, by a hard link
// in its workspace, is not served, although its uid is the owner's.
func TestEscapeSocket(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.Dial(t)
	ws := w.Sub(t, "ws")
	if err := os.Link(w.Socket(), filepath.Join(ws, "daemon")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(ws, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // until l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("welcome"))
			c.Close()
		}
	}()
	const ask = `
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    s.sendall(b'{"jsonrpc":"2.0","id":1,"method":"system.info"}\n')
    print("answer" if s.recv(10) else "closed")
except OSError as e:
    print(e.strerror)
`
	inside := func(mode, name string) string {
		return strings.TrimSpace(w.OK(t, "run", "--workspace", ws+":"+mode, "host", "--", "/usr/bin/python3", "-c", ask,
			"/workspace/"+name))
	}
	world.NeedsPython(t)
	for _, mode := range []string{"rw", "ro"} {
		switch got := inside(mode, "daemon"); got {
		case "closed", "Connection reset by peer", "Broken pipe":
		default:
			t.Errorf("the daemon's socket in a workspace mounted %s: %q", mode, got)
		}
	}
	// A socket of the caller's is reachable, also read-only (SECURITY.md says so);
	// an overlay has another inode.
	if got := inside("ro", "other"); got != "answer" && got != "Connection reset by peer" && got != "Broken pipe" {
		t.Errorf("the allowed twin, a socket of the caller's: %q", got)
	}
	if got := inside("overlay", "other"); got != "Connection refused" {
		t.Errorf("a socket below an overlay: %q", got)
	}
	out, err := exec.Command("/usr/bin/python3", "-c", ask, filepath.Join(ws, "daemon")).Output()
	if err != nil || strings.TrimSpace(string(out)) != "answer" {
		t.Errorf("the caller through the same link: %q, %v", out, err)
	}
}

// TestEscapeInitLimits: sandbox root cannot lower PID 1's limits, by which PID 1
// would neither start nor end a command any more.
func TestEscapeInitLimits(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Cgroup)
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	res := c.Exec(sb, `/usr/bin/python3 -c '
import resource
print(resource.prlimit(0, resource.RLIMIT_NOFILE, (9, 9)) > (0, 0))
try:
    print(resource.prlimit(1, resource.RLIMIT_NOFILE, (4, 4)))
except OSError as e:
    print(e.strerror)
'`)
	if want := "True\nOperation not permitted\n"; res.Stdout != want {
		t.Errorf("got %q %q, want %q", res.Stdout, res.Stderr, want)
	}
	var late world.ExecResult
	c.Call(&late, "exec.run", world.Params{"sandbox": sb, "command": "sleep infinity", "timeout_s": 0.2})
	if !late.TimedOut || late.Verdict != "timeout_wall" {
		t.Errorf("%+v", late)
	}
}

// TestEscapeDeepFolders: folders nested deeper than the daemon may open files are
// removed with their sandbox; the end of the world looks for them.
func TestEscapeDeepFolders(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	const dig = `
import os
for i in range(1500):
    os.mkdir("d")
    os.chdir("d")
print(i + 1)
`
	got := limited(t, w, 512, "run", "--private", "host", "--", "/usr/bin/python3", "-c", dig).Want(t, 0).Stdout
	if got != "1500\n" {
		t.Errorf("got %q", got)
	}
}

// limited runs hutch, and a daemon that it starts, with so few open files.
func limited(t testing.TB, w *world.World, files int, args ...string) world.Result {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec hutch "$@"`, files), "sh"},
		args...)...)
	cmd.Env, cmd.Dir = w.Vars, w.Dir
	return w.Finish(t, cmd)
}

// TestEscapeConnections: more connections than the daemon has files are refused,
// and disturb no client that was there before.
func TestEscapeConnections(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	limited(t, w, 128, "rpc", "system.info").Want(t, 0)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	open := make([]net.Conn, 0, 200)
	defer func() {
		for _, more := range open {
			more.Close()
		}
	}()
	for range 200 {
		more, err := net.Dial("unix", w.Socket())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, more)
		_, _ = more.Write([]byte(`{"half a request`)) // it may have been refused already
	}
	if res := c.Exec(sb, "echo served"); res.Stdout != "served\n" {
		t.Errorf("%+v", res)
	}
	for _, more := range open {
		more.Close()
	}
	// It refuses more until it has seen the end of those.
	var r world.Result
	testenv.Poll(t, world.Limit, "it refuses what comes when they are gone", func() bool {
		r = w.Run(t, "exec", sb, "echo", "again")
		return r.Code == 0
	})
	if r.Want(t, 0).Stdout != "again\n" {
		t.Errorf("got %q", r.Stdout)
	}
}

// TestEscapeLongLines: requests that are long and never end take no memory of the daemon's in proportion to their
// number, and keep nobody else waiting.
func TestEscapeLongLines(t *testing.T) {
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	hutchd := w.Daemon(t).Hutchd
	long := []byte(`{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"x":"` + strings.Repeat("x", 3<<20))
	var senders sync.WaitGroup
	for range 200 {
		conn, err := net.Dial("unix", w.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetWriteDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		senders.Go(func() { _, _ = conn.Write(long) }) // most of them are not read to the end
	}
	senders.Wait()
	if got := world.Memory(t, hutchd, "VmRSS"); got > 300 {
		t.Errorf("hutchd takes %d MB", got)
	}
	if res := c.Exec(sb, "echo served"); res.Stdout != "served\n" {
		t.Errorf("%+v", res)
	}
	w.OK(t, "exec", sb, "true") // a new connection
}

// TestEscapeBlockedReader: output that nobody reads keeps neither an exec nor the
// daemon alive once its client is gone, whoever's the pipe is.
func TestEscapeBlockedReader(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // never read, and open until the end
	c.Start("exec.run", world.Params{"sandbox": sb, "argv": []string{"yes"}, "fds": 1, "progress": true,
		"stdio": world.Params{"stdout": 0}}, out)
	out.Close()
	c.Note() // it runs
	c.Close()
	w.Shutdown()
	for _, what := range w.Left(world.Patience) {
		t.Errorf("left behind: %s", what)
	}
}

// TestEscapeStrayFDs: a daemon does not hold what the first client's parent happened
// to have open, the lock of flock(1) say.
func TestEscapeStrayFDs(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	world.Needs(t, "flock")
	cmd := exec.Command("sh", "-c",
		`exec 9>lock; flock 9; hutch rpc system.info >info && exec 9>&- && flock -n lock echo free`)
	cmd.Env, cmd.Dir = w.Vars, w.Dir
	if got := w.Finish(t, cmd).Want(t, 0).Stdout; got != "free\n" {
		t.Errorf("got %q", got)
	}
}

// TestEscapeNestedMount: what a sandbox left in a workspace does not lead the next
// one's mounts astray, and hutch makes nothing in a folder of the caller's.
func TestEscapeNestedMount(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	ws, x := w.Sub(t, "ws"), w.Sub(t, "x")
	world.Write(t, filepath.Join(x, "file"), "x\n")
	w.OK(t, "run", "-v", ws+":/workspace", "host", "sh", "-c", "ln -s /etc /workspace/link; mkdir /workspace/real")
	for _, target := range []string{"link/zz", "link", "missing", "real/missing"} {
		w.Run(t, "run", "-v", ws+":/workspace", "-v", x+":/workspace/"+target, "host", "true").Want(t, 125).
			Says(t, target, "try:")
	}
	entries, err := os.ReadDir(ws)
	if err != nil || len(entries) != 2 {
		t.Errorf("the workspace holds %v, %v", entries, err)
	}
	// The allowed twins, in whatever order they are given.
	if got := w.OK(t, "run", "-v", x+":/workspace/real", "-v", ws+":/workspace", "host", "cat",
		"/workspace/real/file"); got != "x\n" {
		t.Errorf("got %q", got)
	}
	if got := w.OK(t, "run", "-v", ws+":/workspace:overlay", "-v", x+":/workspace/missing", "host", "cat",
		"/workspace/missing/file"); got != "x\n" {
		t.Errorf("got %q", got)
	}
}

// TestInotifyShare: instances count as the caller's, so a sandbox may have only some.
func TestInotifyShare(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	world.NeedsPython(t)
	w := world.New(t)
	const count = `
import ctypes
libc, n = ctypes.CDLL(None), 0
while libc.inotify_init1(0) >= 0: n += 1
print(n)`
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		t.Fatal(err)
	}
	all := world.Decode[int](t, string(text))
	got := world.Decode[int](t, w.Inside(t, "python3", "-c", count))
	if got < 1 || got > all*3/4 {
		t.Errorf("a sandbox can have %d of the caller's %d instances, want some", got, all)
	}
}
