package files_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// seize is what sandbox root can do to a files worker, which is a process like its own:
// stop it, and take its socket, to answer in its place.
const seize = `
import ctypes, glob, json, os, signal, socket, struct, sys, time
def worker():
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(name, "rb") as f: args = f.read().split(b"\0")
        except OSError: continue
        if args[1:2] == [b"files"] and args[0].startswith(b"/proc/self/fd/"):
            return int(name.split("/")[2])
pid = worker()
libc = ctypes.CDLL(None, use_errno=True)
os.kill(pid, signal.SIGSTOP)
for task in glob.glob("/proc/%d/task/*/stat" % pid): # each thread stops by itself
    while True:
        with open(task) as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "T": break
fd = libc.syscall(438, os.pidfd_open(pid), 0, 0) # pidfd_getfd(2)
if fd < 0: sys.exit("pidfd_getfd: " + os.strerror(ctypes.get_errno()))
s = socket.socket(fileno=fd)
s.setblocking(True)
print("taken", flush=True)
`

// takeOver gives one wrong answer.
const takeOver = seize + `
packet = s.recv(1 << 20)
req = json.loads(packet[4:4 + struct.unpack("<I", packet[:4])[0]])
def reply(payload=b"", **fields):
    head = json.dumps({"id": req["id"], **fields}).encode()
    return struct.pack("<I", len(head)) + head + payload
mode = sys.argv[1]
if mode == "lie": s.send(reply(b"\x1b[31mlies", bytes=9, eof=True))
if mode == "error": s.send(reply(errno=2, path="/a\x1b]0;title\x07", detail="\x1b[2J" + "x" * 9000))
if mode == "garbage": s.send(b"\xff" * 1000)
if mode == "other": s.send(reply().replace(b'"id": ', b'"id": 77'))
if mode == "fds": s.sendmsg([reply(b"with fds")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("3i", 0, 1, 2))])
if mode == "flood":
    try:
        while True: s.send(reply(b"x" * 60000, more=True))
    except OSError: pass
if mode == "silent": time.sleep(60)
`

// TestFilesHostile: a worker that the sandbox has taken over can say what the
// sandbox could, and nothing else happens; the next call gets another one.
func TestFilesHostile(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	b := newFileBox(t)
	b.sh(t, "echo truth >/tmp/file")
	fds := func() int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", world.Decode[api.Info](t, b.w.OK(t, "rpc", "system.info")).
			PID))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	b.get(t, "/tmp/file")
	before := fds()
	for mode, want := range map[string]string{
		"lie": "\x1b[31mlies", "fds": "with fds", "error": string(api.NotFound),
		"garbage": string(api.Unavailable), "other": string(api.Unavailable), "flood": string(api.Unavailable),
		"silent": string(api.Unavailable),
	} {
		run := b.start(t, "/usr/bin/python3", "-c", takeOver, mode)
		b.await(t, run, "taken")
		begin := time.Now()
		r, err := b.ReadFile(t.Context(), api.FileReadParams{FileParams: b.at("/tmp/file")}, nil)
		got := r.Data
		if err != nil {
			got = string(api.ErrorCode(err))
		}
		if got != want || time.Since(begin) > world.Patience {
			t.Errorf("%s: %q after %v: %v", mode, got, time.Since(begin), err)
		}
		if err != nil && (strings.ContainsRune(err.Error(), '\x1b') || len(err.Error()) > 20<<10) {
			t.Errorf("%s: the error can do something to a terminal: %.200q", mode, err)
		}
		if _, err := b.ExecKill(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		b.sh(t, "for p in /proc/[0-9]*; do grep -qzx files $p/cmdline 2>/dev/null && kill -9 ${p#/proc/}; done; true")
		b.eventually(t, "/tmp/file", "truth\n")
	}
	if after := fds(); after > before+4 {
		t.Errorf("hutchd has %d fds, had %d", after, before)
	}
}

// start starts a command in the background.
func (b *fileBox) start(t testing.TB, argv ...string) string {
	t.Helper()
	r, err := b.ExecStart(t.Context(), api.ExecParams{Sandbox: b.id, Argv: argv, Background: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.Exec
}

// await waits until a command has written text.
func (b *fileBox) await(t testing.TB, exec, text string) {
	t.Helper()
	if got := world.Written(t, b.Client, exec); !strings.Contains(got, text) {
		stderr, _ := b.ExecRead(t.Context(), api.ReadParams{Exec: exec, Stream: api.Stderr})
		t.Fatalf("%q: %s", got, stderr.Data)
	}
}

// eventually reads a file, again where the worker was being ended.
func (b *fileBox) eventually(t testing.TB, path, want string) {
	t.Helper()
	var r api.FileChunk
	var err error
	for range 3 {
		if r, err = b.ReadFile(t.Context(), api.FileReadParams{FileParams: b.at(path)},
			nil); api.ErrorCode(err) != api.Unavailable || err == nil {
			break
		}
	}
	if err != nil || r.Data != want {
		t.Errorf("%s: %q, %v", path, r.Data, err)
	}
}

// TestFilesEscape: links that the sandbox makes, in its own files and in a
// workspace that it shares with the host, lead nowhere outside, neither for fs.*
// nor for hutch cp.
func TestFilesEscape(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	private, ws := w.Sub(t, "private"), w.Sub(t, "ws")
	secret := world.Write(t, filepath.Join(private, "secret"), "secret of the host\n")
	b := &fileBox{w: w}
	b.id = w.Create(t, "--workspace", ws, "host")
	b.Client = dialClient(t, w)
	b.sh(t, fmt.Sprintf("cd /workspace; mkdir d; echo mine >d/f; ln -s %s link; ln -s %s folder; ln -s ../private up; ln -s /proc/1/root%s root; echo x >plain", secret, private, secret))
	for _, path := range []string{"link", "folder/secret", "up/secret", "root", "../../../.." + secret, "/proc/1/root" +
		secret, "/proc/1/cwd" + secret} {
		r, err := b.ReadFile(t.Context(), api.FileReadParams{FileParams: b.at("/workspace/" + path)}, nil)
		if err == nil || strings.Contains(r.Data, "secret") {
			t.Errorf("read %s: %q, %v", path, r.Data, err)
		}
		if _, err := b.WriteFile(t.Context(), api.FileWriteParams{FileParams: b.at("/workspace/" + path), Data: "x",
			Create: new(bool)}, nil); err == nil {
			t.Errorf("wrote %s", path)
		}
	}
	if got := b.get(t, "/workspace/d/f"); got != "mine\n" { // the allowed twin
		t.Errorf("got %q", got)
	}
	if _, err := b.RemoveFile(t.Context(), api.FileRemoveParams{FileParams: b.at("/workspace/folder"),
		Recursive: true}); err != nil {
		t.Error(err)
	}
	b.sh(t, "cd /workspace; ln -s "+private+" folder")
	// The host's hutch cp on a folder that the sandbox writes: links stay links.
	w.OK(t, "cp", ws, b.id+":/tmp/copy")
	if got := b.sh(t, "grep -r 'secret of' /tmp/copy; cat /tmp/copy/d/f"); got != "mine" {
		t.Errorf("the copy holds %q", got)
	}
	w.OK(t, "cp", b.id+":/workspace", w.Path("out"))
	for _, name := range []string{"link", "folder", "up", "root"} {
		if _, err := os.Lstat(w.Path("out/" + name)); err == nil {
			t.Errorf("%s came out", name)
		}
	}
	if got := world.Read(t, w.Path("out/d/f")); got != "mine\n" {
		t.Errorf("got %q", got)
	}
	if got := world.Read(t, secret); got != "secret of the host\n" {
		t.Errorf("the secret is %q now", got)
	}
}

// swapper swaps a folder and a link that leads out of the workspace, for ever.
const swapper = `
import os, sys
os.chdir("/workspace/race")
print("started", flush=True)
while True:
    os.rename("d", "t"); os.rename("l", "d"); os.rename("d", "l"); os.rename("t", "d")
`

// TestFilesRace: while a sandbox swaps folders and links in a workspace, hutch cp
// on the host reads and writes there, and fs.write inside. Nothing outside of the
// workspace is read or made.
func TestFilesRace(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	private, ws := w.Sub(t, "private"), w.Sub(t, "ws")
	world.Write(t, filepath.Join(private, "f"), "secret of the host\n")
	b := &fileBox{w: w}
	b.id = w.Create(t, "--workspace", ws, "host")
	b.Client = dialClient(t, w)
	b.sh(t, fmt.Sprintf("mkdir -p /workspace/race/d /tmp/tree/d; cd /workspace/race; echo mine >d/f; ln -s %s l; echo hostile >/tmp/tree/d/f; echo new >/tmp/tree/d/new", private))
	run := b.start(t, "/usr/bin/python3", "-c", swapper)
	b.await(t, run, "started")
	for range 15 {
		_ = w.Run(t, "cp", ws+"/race/.", b.id+":/tmp/copy")
		_ = w.Run(t, "cp", b.id+":/tmp/tree/.", ws+"/race")
		for _, name := range []string{"f", "other"} {
			_, err := b.WriteFile(t.Context(), api.FileWriteParams{FileParams: b.at("/workspace/race/d/" + name),
				Data: "inside"}, nil)
			if err != nil && api.ErrorCode(err) == api.Internal {
				t.Error(err)
			}
		}
		_, err := b.ListFiles(t.Context(), api.FileListParams{FileParams: b.at("/workspace"), Recursive: true})
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := b.ExecKill(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, private); got != "f" {
		t.Errorf("the private folder holds %s", got)
	}
	if got := world.Read(t, filepath.Join(private, "f")); got != "secret of the host\n" {
		t.Errorf("the secret is %q now", got)
	}
	if got := b.sh(t, "grep -rl 'secret of' /tmp /workspace/race/d 2>/dev/null; true"); got != "" {
		t.Errorf("the sandbox has the secret in %s", got)
	}
}

// tree lists what is in a folder.
func tree(t testing.TB, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
