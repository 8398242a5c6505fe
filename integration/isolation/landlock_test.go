package isolation_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// useLent takes an fd of a folder of the host's from whoever is at a socket in the workspace, and
// says what it could do beneath it, beneath /tmp, and to PID 1.
const useLent = `
import errno, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("/workspace/lend")
_, fds, _, _ = socket.recv_fds(s, 1, 1)
os.makedirs("/tmp/own", exist_ok=True)
open("/tmp/own/file", "w").close()
def attempt(what, do):
    try:
        do()
        print(what, "ok", end="; ")
    except OSError as e:
        print(what, errno.errorcode[e.errno], end="; ")
for name, dir in ("lent", fds[0]), ("own", os.open("/tmp/own", os.O_RDONLY)):
    attempt(name + " stat", lambda: os.stat("file", dir_fd=dir))
    attempt("read", lambda: os.close(os.open("file", os.O_RDONLY, dir_fd=dir)))
    attempt("write", lambda: os.close(os.open("file", os.O_WRONLY, dir_fd=dir)))
    attempt("make", lambda: (os.mkdir("folder", dir_fd=dir), os.rmdir("folder", dir_fd=dir)))
attempt("init", lambda: os.kill(1, 0))
`

const (
	lentOpen    = "lent stat ok; read ok; write ok; make ok; own stat ok; read ok; write ok; make ok; init ok; "
	lentRefused = "lent stat ok; read EACCES; write EACCES; make EACCES; own stat ok; read ok; write ok; make ok; init EPERM; "
)

// lend gives an fd of folder to everybody who connects to the socket.
func lend(t *testing.T, socket, folder string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	go func() { // until l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if f, err := os.Open(folder); err == nil {
				_, _, _ = c.(*net.UnixConn).WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil)
				_ = f.Close()
			}
			_ = c.Close()
		}
	}()
}

// TestLandlock: what somebody outside hands to a sandbox by mistake opens nothing that is not the
// sandbox's own, also in one that was launched ahead; without the wall it does. The record says
// which it is, and `on` is refused where there is none.
func TestLandlock(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	abi, err := sys.LandlockABI()
	direct, ahead := world.New(t), world.New(t)
	if err != nil || abi < sys.MinLandlock {
		if res := direct.Run(t, "run", "--landlock", "on", "host", "--", "true"); res.Code != 125 ||
			!strings.Contains(res.Stderr, "Landlock") {
			t.Errorf("on, with ABI %d (%v): %+v", abi, err, res)
		}
		checkLandlock(t, direct, direct.Create(t, "host"), 0)
		return
	}
	direct.Configure(t, "ready: none\n")
	want := lentRefused
	if abi < 6 { // no scope for signals
		want = strings.Replace(want, "init EPERM", "init ok", 1)
	}
	for _, w := range []*world.World{direct, ahead} {
		if w == ahead && testenv.InMachine() {
			break // claimed or launched: the kernel is asked the same
		}
		ws, host := w.Sub(t, "ws"), w.Sub(t, "host")
		world.Write(t, filepath.Join(host, "file"), "of the host\n")
		for _, name := range []string{host, filepath.Join(host, "file")} {
			if err := os.Chmod(name, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		lend(t, filepath.Join(ws, "lend"), host)
		for _, c := range []struct {
			flags []string
			abi   int
			want  string
		}{
			{nil, abi, want},
			{[]string{"--landlock", "on"}, abi, want},
			{[]string{"--landlock", "on", "--seccomp", "build"}, abi, want},
			{[]string{"--landlock", "auto", "--seccomp", "browser"}, abi, want},
			{[]string{"--landlock", "off"}, 0, lentOpen},
		} {
			if testenv.InMachine() && slices.Contains(c.flags, "--seccomp") {
				continue
			}
			args := append(append([]string{"--workspace", ws}, c.flags...), "host")
			var id string
			if w == ahead && !slices.Contains(args, "--seccomp") && c.abi > 0 {
				id = makeClaimed(t, w, args...).ID
			} else {
				id = w.Create(t, args...)
			}
			checkLandlock(t, w, id, c.abi)
			for range 2 { // the first command makes the domain
				if got := w.OK(t, "exec", id, "--", "/usr/bin/python3", "-c", useLent); got != c.want {
					t.Errorf("%v: %s", c.flags, got)
				}
			}
			world.OpenShell(t, w.Connect(t), api.ShellParams{Sandbox: id}).
				Says("/usr/bin/python3 -c '"+useLent+"'", c.want)
			w.OK(t, "rm", "-f", id)
		}
	}
	if res := direct.Run(t, "run", "--landlock", "maybe", "host", "--", "true"); res.Code != 125 ||
		!strings.Contains(res.Stderr, "auto") {
		t.Errorf("%+v", res)
	}
}

// checkLandlock compares what a sandbox's record says.
func checkLandlock(t *testing.T, w *world.World, id string, abi int) {
	t.Helper()
	rec := world.Decode[api.Sandbox](t, w.OK(t, "inspect", id))
	i := slices.IndexFunc(rec.Isolation.Walls, func(w api.Wall) bool { return w.Name == "landlock" })
	if i < 0 || rec.Isolation.LandlockABI != abi || (rec.Isolation.Walls[i].Status == "yes") != (abi > 0) ||
		rec.Isolation.Walls[i].Detail == "" {
		t.Errorf("landlock_abi %d, want %d: %+v", rec.Isolation.LandlockABI, abi, rec.Isolation.Walls)
	}
}
