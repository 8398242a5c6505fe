package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestGuardNew: with guard_new refuse no name of the guard's comes to be, whatever makes it, and nothing of it is in
// the host's folder; each refusal is reported, with what allows it. All else is made as without.
func TestGuardNew(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	w := world.New(t)
	dir, other := w.Sub(t, "work"), w.Sub(t, "other")
	if err := os.MkdirAll(filepath.Join(dir, "repo", ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	refuse := []string{"--workspace", dir, "--guard", "repo/.git/hooks", "--guard", "deep/in/it"}
	sb := w.Create(t, append(refuse, "host")...)
	w.OK(t, "exec", sb, "--", "sh", "-c",
		"mkdir own own/hooks; echo x >own/f; ln -s /workspace/.envrc way; ln -s /workspace own/up; echo y >/tmp/f")
	for _, script := range []string{
		"mkdir .vscode", "echo x >.mcp.json", "mkdir .git", ": >.git", "ln -s own .git", "mv own .git",
		"ln -s own .config", "mv -T own .config",
		"ln -s f .bashrc", "ln own/f .bashrc", "mv own/f .bashrc", "cp /tmp/f .bashrc", "mv /tmp/f .bashrc",
		"mkfifo .bashrc", "touch way", "touch own/up/.profile", "touch /proc/self/cwd/.profile",
		"mkdir repo/.git/hooks", "mv own/hooks repo/.git/hooks", "cd repo/.git && mkdir hooks", "mkdir .VSCode",
		"mkdir -p .config && mkdir .config/fish", "mkdir -p deep/in && touch deep/in/it",
		"mv -T own deep", "mv -T own/hooks deep/in", "cd /; touch workspace/.zshrc", "cd own; touch ../.zshrc",
	} {
		if r := w.Run(t, "exec", sb, "--", "sh", "-c", "LC_ALL=C; export LC_ALL; "+script); r.Code == 0 ||
			!strings.Contains(r.Stderr, "Read-only") {
			t.Errorf("%s: exit %d: %s", script, r.Code, r.Stderr)
		}
	}
	if r := w.Feed(t, "x", "cp", "-", sb+":/workspace/.mcp.json"); r.Code == 0 {
		t.Errorf("cp: exit 0")
	}
	var names []string
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	if want := []string{".config", "deep", "own", "repo", "way"}; !slices.Equal(names, want) {
		t.Errorf("the host's folder has %q, want %q", names, want)
	}
	c := w.Connect(t)
	res, err := c.ExecRun(t.Context(), api.ExecParams{Sandbox: sb, Argv: []string{"git", "init", "-q"}}, nil, nil)
	if err != nil || res.ExitCode == 0 || len(res.Unguarded) > 0 {
		t.Errorf("git init: %v %+v", err, res)
	}
	i := slices.IndexFunc(res.Denials, func(d api.Denial) bool { return d.Target == "create /workspace/.git" })
	if i < 0 || res.Denials[i].By != "guard" || res.Denials[i].Errno != "EROFS" ||
		!strings.HasPrefix(res.Denials[i].HowToAllow, "--unguard git-new") || res.Denials[i].Exec != res.Exec {
		t.Errorf("%+v", res.Denials)
	}
	w.OK(t, "rm", "-f", sb)

	// The twin; two sandboxes of the same kind at once, one with a name less to guard.
	sb = w.Create(t, "--workspace", other, "--guard-new", "refuse", "--unguard", ".git", "--unguard", ".vscode", "host")
	w.OK(t, "exec", sb, "--", "sh", "-c",
		"git init -q && git config user.name x && mkdir .vscode && echo {} >.vscode/tasks.json && touch mcp.json .gitignore && mkdir /new && touch /new/x && mv /new /newer")
	if r := w.Run(t, "exec", sb, "--", "touch", ".mcp.json"); r.Code == 0 {
		t.Error("the rest of the guard is gone")
	}
	// What auto is where it cannot be refused, or is not to be, says so.
	for i, args := range [][]string{{"--guard-new", "tell"}, {"--landlock", "off"},
		{"--guard-new", "auto", "--landlock", "off"}} {
		tells := world.Decode[api.Sandbox](t,
			w.OK(t, append(append([]string{"create", "--json", "--workspace", w.Sub(t, fmt.Sprint("tell", i))},
				args...), "host")...))
		if i := slices.IndexFunc(tells.Isolation.Walls,
			func(l api.Wall) bool { return l.Name == "workspace guard" }); i < 0 ||
			tells.Isolation.Walls[i].Status != "no" {
			t.Errorf("%q: walls %+v", args, tells.Isolation.Walls)
		}
		if r := w.Run(t, "exec", tells.ID, "--", "touch", ".envrc"); r.Code != 0 ||
			!strings.Contains(r.Stderr, "--unguard .envrc") {
			t.Errorf("%q: exit %d: %s", args, r.Code, r.Stderr)
		}
		w.OK(t, "rm", "-f", tells.ID)
	}
	for _, args := range [][]string{{"--guard-new", "x"}, {"--guard-new", "refuse", "--landlock", "off"}} {
		if r := w.Run(t, append(append([]string{"run", "--workspace", other}, args...), "host", "--",
			"true")...); r.Code != 125 {
			t.Errorf("%q: exit %d", args, r.Code)
		}
	}
}

// makesScript makes names in all ways there are, and prints what came of it.
const makesScript = `
import errno, fcntl, json, os, socket, stat, subprocess, sys, threading
uid = int(sys.argv[1])
os.makedirs(sys.argv[2], exist_ok=True); os.chdir(sys.argv[2])
if uid and not os.getuid():
    os.chmod(".", 0o777); os.setgroups([]); os.setgid(uid); os.setuid(uid)
    os.execv(sys.executable, [sys.executable, "-ISBc", sys.argv[3], *sys.argv[1:]]) # else nobody may look at it
out = []
def tried(f, *args, **kw):
    try: r = f(*args, **kw)
    except OSError as e: out.append([f.__name__, repr(args), errno.errorcode[e.errno]]); return
    if f is os.open:
        out.append([repr(args), oct(fcntl.fcntl(r, fcntl.F_GETFL) & ~0o100000), fcntl.fcntl(r, fcntl.F_GETFD), os.get_inheritable(r), stat.S_IFMT(os.fstat(r).st_mode)])
        if args[1] & 3: out.append(os.write(r, b"abc") if stat.S_ISREG(os.fstat(r).st_mode) else 0)
        os.close(r)
W, C, X = os.O_WRONLY, os.O_WRONLY|os.O_CREAT, os.O_WRONLY|os.O_CREAT|os.O_EXCL
os.mkdir("t"); os.chdir("t"); here = os.getcwd()
for mask in (0o022, 0o077, 0o002):
    os.umask(mask); m = "%o" % mask
    for mode in (0o666, 0o777, 0o4755, 0o400, 0): tried(os.open, m+"f%o" % mode, C, mode); tried(os.mkdir, m+"d%o" % mode, mode); tried(os.mkfifo, m+"p%o" % mode, mode)
os.umask(0o022)
for fl in (C|os.O_APPEND, C|os.O_TRUNC, C|os.O_NONBLOCK, os.O_RDWR|os.O_CREAT, os.O_CREAT, C|os.O_CLOEXEC, C|os.O_SYNC, C|os.O_NOFOLLOW, C|os.O_DIRECTORY, C|os.O_PATH, X):
    for p in ("n%o" % fl, "n%o" % fl, here+"/n%o" % fl, "./n%o" % fl, "../t/n%o" % fl, "n%o/" % fl, "n%o/x" % fl): tried(os.open, p, fl, 0o640)
os.symlink("to", "l"); os.symlink("/none/x", "dead"); os.symlink("loop", "loop"); os.symlink("abs", "l2"); os.symlink(here+"/abs", "abs0"); os.mkdir("d"); os.symlink("d", "ld"); os.symlink("l", "ll")
for p in ("l", "ll", "dead", "loop", "l2", "abs0", "ld", "ld/x", "d", "", ".", "..", "/", "d/.", "none/x", "d/../y", "/dev/null", "/dev/stdout", "/proc/self/none", "/proc/self/comm", "/proc/self/cwd/viacwd", "/proc/thread-self/cwd/viat", "/dev/fd/none", "x"*255, "x"*256, "d/"*2100+"x"):
    tried(os.open, p, C, 0o600); tried(os.open, p+"-", X, 0o600); tried(os.open, p, C|os.O_NOFOLLOW); tried(os.mkdir, p+"+"); tried(os.mkdir, p+"+/"); tried(os.symlink, "x", p); tried(os.symlink, "x", p+"s/"); tried(os.link, "l", p+"h"); tried(os.link, "ld/x", p); tried(os.rename, p, "r1"); tried(os.rename, "r1", p)
tried(os.symlink, "", "e"); tried(os.symlink, "a"*4000, "long"); tried(os.rename, "d", "d/x"); tried(os.rename, "d", "l"); tried(os.rename, "l", "d"); tried(os.rename, "d/", "d2/"); tried(os.rename, "d2/", "d"); tried(os.rename, "n%o" % X, "q/"); tried(os.rename, "none", "q")
tried(os.link, "ll", "hl", follow_symlinks=False); tried(os.link, "n%o" % X, "hf"); tried(os.link, "d", "hd"); tried(os.link, "/usr/bin/env", "he"); tried(os.rename, "/tmp/none", "q"); tried(os.mknod, "mk", 0o640|stat.S_IFREG); tried(os.mknod, "mkb", 0o640|stat.S_IFBLK, os.makedev(7, 0))
d = os.open("d", os.O_RDONLY); tried(os.open, "indir", C, dir_fd=d); tried(os.mkdir, "indir2", dir_fd=d); tried(os.rename, "indir", "indir3", src_dir_fd=d, dst_dir_fd=d); f = os.open("n%o" % X, os.O_RDONLY); tried(os.open, "x", C, dir_fd=f); tried(os.open, "x", C, dir_fd=999)
u = os.open(".", os.O_TMPFILE|os.O_RDWR, 0o600); tried(os.link, "/proc/self/fd/%d" % u, "unnamed", follow_symlinks=True); os.close(u)
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone"); tried(os.open, "x", C); tried(os.mkdir, "x"); os.chdir("..")
if not uid: os.mkdir("sgid"); os.chown("sgid", 0, 0); os.chmod("sgid", 0o2775); tried(os.open, "sgid/f", C, 0o664); tried(os.mkdir, "sgid/d")
os.mkdir("ro", 0o555); tried(os.open, "ro/x", C); tried(os.mkdir, "ro/d"); tried(os.rename, "q", "ro/q"); tried(os.rename, "ro", "ro2")
s = socket.socket(socket.AF_UNIX); tried(s.bind, "sock"); tried(os.open, "sock", C)
os.mkfifo("fifo"); tried(os.open, "fifo", C|os.O_NONBLOCK); r = os.open("fifo", os.O_RDONLY|os.O_NONBLOCK); tried(os.open, "fifo", C)
import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)); held = []
try:
    while True: held.append(os.open("held%d" % len(held), C))
except OSError as e: out.append([errno.errorcode[e.errno], len(held)])
for h in held: os.close(h)
for h in range(len(held)+1): # PID 1 has made the last before it is known that there is no room for it
    try: os.unlink("held%d" % h)
    except OSError: pass
threads = [threading.Thread(target=lambda n=n: [os.mkdir("th%d.%d" % (n, i)) for i in range(50)]) for n in range(8)]
[x.start() for x in threads]; [x.join() for x in threads]
subprocess.run("tar cf /tmp/t.tar --exclude=./p* . 2>/dev/null; mkdir x && tar xf /tmp/t.tar -C x --exclude='./x/*'; (chroot / true) ; rm -f /tmp/t.tar; rm $(mktemp -p . XXXXX); install -m 751 /dev/null inst; cp -a d d9; mv d9 d8; sed -i s/a/b/ inst", shell=True, stderr=subprocess.DEVNULL)
tree = []
for base, dirs, files in os.walk("."):
    dirs.sort()
    for n in sorted(dirs+files):
        st = os.lstat(os.path.join(base, n))
        tree.append([os.path.join(base, n), oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink if not stat.S_ISDIR(st.st_mode) else 0, st.st_size if stat.S_ISREG(st.st_mode) else 0])
print(json.dumps([out, tree]))`

// TestGuardNewSame: what PID 1 makes in a command's place is as what the command makes: errnos, modes, owners, flags.
// Root and another user.
func TestGuardNewSame(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	world.NeedsPython(t)
	w := world.New(t)
	places := []struct{ uid, dir string }{{"0", "/workspace"}, {"0", "/new"}}
	if fields := strings.Fields(w.Inside(t, "cat", "/proc/self/uid_map")); len(fields) > 3 || fields[2] != "1" {
		places = append(places, struct{ uid, dir string }{"1000", "/new"}) // in the workspace only its owner writes
	}
	for n, p := range places {
		var got [2][2][]json.RawMessage
		for i, mode := range []string{"tell", "refuse"} {
			work := w.Sub(t, fmt.Sprint("work", n, mode))
			args := []string{"run", "--workspace", work, "--guard-new", mode, "host", "--", "python3", "-ISBc",
				makesScript, p.uid, p.dir, makesScript}
			r := w.Run(t, args...)
			if err := json.Unmarshal([]byte(r.Stdout), &got[i]); err != nil {
				t.Fatalf("%v: %v: %s", p, err, r.Stderr)
			}
		}
		for part, told := range got[0] {
			if len(told) != len(got[1][part]) || len(told) < 50 {
				t.Errorf("%v: %d without, %d with", p, len(told), len(got[1][part]))
				continue
			}
			for i, want := range told {
				if have := got[1][part][i]; string(have) != string(want) {
					t.Errorf("%v: %s, without %s", p, have, want)
				}
			}
		}
	}
}

// racesScript makes names while another process or thread changes what the calls are about under way: the path in
// memory, the working folder, a descriptor, a symlink. What it prints are the tries that made the guarded name.
const racesScript = `
import ctypes, mmap, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
guarded, seconds = "/workspace/.mcp.json", float(sys.argv[1])
buf = mmap.mmap(-1, 4096); at = ctypes.addressof(ctypes.c_char.from_buffer(buf)); path, rel = ctypes.c_void_p(at), ctypes.c_void_p(at+2048)
def put(p): buf[:len(p)+1] = p.encode() + b"\0"
buf[2048:2048+10] = b".mcp.json\0"
os.mkdir("/tmp/out"); os.mkdir("/workspace/in"); wd, od, ind = (os.open(p, os.O_RDONLY) for p in ("/workspace", "/tmp/out", "/workspace/in"))
AT, O = -100, os.O_CREAT|os.O_WRONLY
open("/workspace/src", "w").close(); open("/tmp/src", "w").close()
calls = {
  "open": lambda: libc.openat(AT, path, O, 0o600), "mkdir": lambda: libc.mkdirat(AT, path, 0o700), "symlink": lambda: libc.symlinkat(b"x", AT, path),
  "link": lambda: libc.linkat(AT, b"/workspace/src", AT, path, 0), "rename": lambda: libc.renameat(AT, b"/workspace/mv", AT, path), "mknod": lambda: libc.mknod(path, 0o100600, 0),
}
made, tries = [], 0
def attempt(name, call, before=lambda: None, inner=("/workspace/mcp.jsonx", "/tmp/out/.mcp.json", "/workspace/in/.mcp.json")):
    global tries
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for i in range(50):
            before(); fd = call(); tries += 1
            if name.startswith("open") and fd >= 0: os.close(fd)
            if os.path.lexists(guarded): made.append(name); return
            for p in inner:
                try: os.unlink(p)
                except IsADirectoryError: os.rmdir(p)
                except OSError: pass
def flipping(f):
    pid = os.fork()
    if pid == 0:
        while True: f()
    return pid
def stop(pid): os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
for free in ("/workspace/mcp.jsonx", "/tmp/out/.mcp.json\0"[:-1]):
    def flip():
        put(free); put(guarded)
    pid = flipping(flip)
    for name, call in calls.items(): attempt(name+" "+free, call, (lambda: open("/workspace/mv", "w").close()) if name == "rename" else (lambda: None))
    stop(pid)
run = [True]
def thread(f):
    def loop():
        while run[0]: f()
    t = threading.Thread(target=loop); t.start(); return t
for name, a, b in (("cwd", od, wd), ("cwd in", ind, wd)):
    run[0] = True; t = thread(lambda: (libc.fchdir(a), libc.fchdir(b)))
    attempt("open "+name, lambda: libc.openat(AT, rel, O, 0o600)); attempt("mkdir "+name, lambda: libc.mkdirat(AT, rel, 0o700))
    run[0] = False; t.join()
    run[0] = True; t = thread(lambda: (libc.dup2(a, 100), libc.dup2(b, 100)))
    attempt("open fd "+name, lambda: libc.openat(100, rel, O, 0o600)); attempt("rename fd "+name, lambda: libc.renameat(AT, b"/workspace/mv", 100, rel), lambda: open("/workspace/mv", "w").close())
    run[0] = False; t.join()
os.chdir("/")
def links():
    for to in ("/tmp/out", "/workspace", "/workspace/in"):
        try: os.symlink(to, "/tmp/l.new"); os.rename("/tmp/l.new", "/tmp/l")
        except OSError: pass
links(); pid = flipping(links)
attempt("open link", lambda: libc.openat(AT, b"/tmp/l/.mcp.json", O, 0o600)); attempt("mkdir link", lambda: libc.mkdir(b"/tmp/l/.mcp.json", 0o700))
stop(pid)
# A folder with the name in it that is moved to where it counts; and one to which .git is changed.
os.mkdir("/workspace/g"); open("/workspace/g/config", "w").close(); os.mkdir("/workspace/h")
def swap():
    libc.renameat2(AT, b"/workspace/g", AT, b"/workspace/h", 2); libc.renameat2(AT, b"/workspace/g", AT, b"/workspace/.git", 2); libc.rename(b"/workspace/g", b"/workspace/.git")
pid = flipping(swap); guarded = "/workspace/.git/config"
attempt("rename folder", lambda: libc.rename(b"/workspace/h", b"/workspace/.git"), inner=()); attempt("mkdir", lambda: libc.mkdir(b"/workspace/.git", 0o700), inner=())
stop(pid)
print(tries, *made)`

// TestGuardNewRace: no thread or process wins against what PID 1 looks at. Without the guard the same script makes the
// name.
func TestGuardNewRace(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	testenv.Require(t, probe.Landlock())
	world.NeedsPython(t)
	w := world.New(t)
	for _, mode := range []string{"tell", "refuse"} {
		out := strings.Fields(w.OK(t, "run", "--workspace", w.Sub(t, mode), "--guard-new", mode, "host", "--",
			"python3", "-ISBc", racesScript, "0.2"))
		if made := len(out) > 1; made != (mode == "tell") {
			t.Errorf("%s: %q", mode, out)
		}
		t.Logf("%s: %s tries", mode, out[0])
	}
}
