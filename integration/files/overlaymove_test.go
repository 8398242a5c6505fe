package files_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// moves is what a program does with folders of the host's in an overlay: each line is what the kernel answers in a
// folder without one.
const moves = `
import errno, os, stat
def attempt(what, do):
    try: print(what, do())
    except OSError as e: print(what, errno.errorcode[e.errno])
def tree(top):
    out = []
    for dir, folders, files in os.walk(top):
        for n in sorted(folders) + sorted(files):
            p = os.path.join(dir, n); s = os.lstat(p)
            what = os.readlink(p) if stat.S_ISLNK(s.st_mode) else open(p).read() if stat.S_ISREG(s.st_mode) else ""
            out.append("%s %o %d %s %s" % (os.path.relpath(p, top), s.st_mode, s.st_mtime, os.getxattr(p, "user.x") if "user.x" in os.listxattr(p, follow_symlinks=False) else "", what))
    return "\n".join(sorted(out))
before = tree("a")
attempt("rename", lambda: os.rename("a", "b"))
print("same", tree("b") == before, os.path.exists("a"), os.stat("b/f").st_ino == os.stat("b/hard").st_ino, oct(os.stat("b").st_mode), os.stat("b").st_mtime == 1000000000)
attempt("deeper", lambda: os.rename("b", "c/d/b"))
attempt("above", lambda: os.rename("c", "c/d/b/c"))
attempt("not empty", lambda: os.rename("c", "full"))
os.mkdir("empty")
attempt("over an empty one", lambda: os.rename("c", "empty"))
attempt("over a file", lambda: os.rename("empty", "file"))
attempt("not there", lambda: os.rename("nothing", "x"))
attempt("out of it", lambda: os.rename("empty", "/tmp/x"))
attempt("slash", lambda: os.rename("empty/", "again/"))
os.mkdir("new"); attempt("a new one", lambda: os.rename("new", "newer"))
attempt("a file", lambda: os.rename("file", "file2"))
print("same", tree("again/d/b") == before, sorted(os.listdir(".")))
`

// TestOverlayMove: folders of the host's are renamed in an overlay as anywhere, git moves and clones, and the host's
// folder stays as it was.
func TestOverlayMove(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "overlay-move")
	sh := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.test")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	sh(`mkdir -p a/sub/deep c/d full; echo 1 >a/f; echo 2 >a/sub/g; echo x >full/x; echo y >file; ln -s f a/link; mkfifo a/fifo
chmod 640 a/f; chmod 755 a/sub/g; chmod 2750 a/sub; ln a/f a/hard
python3 -c 'import os; os.setxattr("a/sub/g", "user.x", b"1")' || true
truncate -s 1M a/sub/deep/hole
touch -d @1000000000 a/f a/sub/g a/sub/deep a/sub a
git init -q repo; cd repo; mkdir -p src/inner; for i in $(seq 40); do echo $i >src/inner/$i; done; git add .; git commit -qm first`)
	before := sh(`find . -printf '%p %M %s %T@ %i\n' | sort; find . -type f -exec cat {} + | cksum`)

	out := w.OK(t, "run", "--workspace", dir+":overlay", "host", "python3", "-c", moves)
	want := `rename None
same True False True 0o40755 True
deeper None
above EINVAL
not empty ENOTEMPTY
over an empty one None
over a file ENOTDIR
not there ENOENT
out of it EXDEV
slash None
a new one None
a file None
same True ['again', 'file2', 'full', 'newer', 'repo']
`
	if out != want {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}
	sb := w.Create(t, "--workspace", dir+":overlay", "host")
	out = w.OK(t, "exec", sb, "sh", "-ec", `export GIT_CONFIG_GLOBAL=/tmp/config; git config --global safe.directory '*'; git config --global user.email a@a.test; git config --global user.name a
cd repo; git mv src/inner src/outer; git commit -qm moved; ls src; git log --oneline | wc -l
cd ..; git clone -q repo clone; ls clone/src/outer | wc -l; git -C clone fsck --no-progress; git -C repo fsck --no-progress; git clone -q /workspace/repo /tmp/elsewhere; ls /tmp/elsewhere`)
	if out != "outer\n2\n40\nsrc\n" {
		t.Errorf("git: %q", out)
	}
	if got := w.OK(t, "workspace", "diff", sb, "--stat"); strings.Contains(got, "hutch-move") {
		t.Errorf("left behind: %s", got)
	}
	if after := sh(`find . -printf '%p %M %s %T@ %i\n' | sort; find . -type f -exec cat {} + | cksum`); after != before {
		testenv.Wrong(t, "the host's folder has changed:\n%s\nit was\n%s", after, before)
	}
}

// TestOverlayMoveTold: in debug mode, where each open is put to PID 1 as well, folders are moved, too, and one that is
// too large is reported.
func TestOverlayMoveTold(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "overlay-told")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "a"), 0o755),
		os.Mkdir(filepath.Join(dir, "large"), 0o755)); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(dir, "a", "f"), "x")
	world.Write(t, filepath.Join(dir, "large", "f"), "")
	if err := os.Truncate(filepath.Join(dir, "large", "f"), 2<<30); err != nil {
		t.Fatal(err)
	}
	const script = `
import os
os.rename("a", "b"); print(os.listdir("b"))
try: os.rename("large", "larger")
except OSError as e: print(e.strerror)
os.mkdir("c"); os.link("b/f", "c/f"); print(sorted(os.listdir(".")))`
	r := w.Run(t, "debug", "run", "--workspace", dir+":overlay", "host", "--", "python3", "-c", script).Want(t, 0)
	if want := "['f']\nInvalid cross-device link\n['b', 'c', 'large']\n"; r.Stdout != want {
		t.Errorf("got %q, want %q", r.Stdout, want)
	}
	r.Says(t, "large", "too large for that")
}

// TestOverlayMoveMounted: a folder with a mount in it stays where it is, or a guarded folder would come to be where its
// names are not guarded.
func TestOverlayMoveMounted(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir, below := w.Sub(t, "overlay-top"), w.Sub(t, "overlay-below")
	if err := os.MkdirAll(filepath.Join(dir, "x", "in"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := w.Run(t, "run", "-v", below+":/src/proj", "--workspace", dir+":overlay", "-v", below+":/workspace/x/in:ro", "host", "python3", "-c", `
import errno, os
def attempt(do):
    try: do(); print("done")
    except OSError as e: print(errno.errorcode[e.errno])
attempt(lambda: os.rename("/src", "/elsewhere"))
attempt(lambda: os.rename("/workspace/x", "/workspace/y"))
attempt(lambda: os.mkdir("/src/proj/.vscode"))
attempt(lambda: os.mkdir("/elsewhere/proj/.vscode"))
attempt(lambda: os.mkdir("/src/proj/fine"))`).Want(t, 0).Stdout
	if want := "EBUSY\nEBUSY\nEROFS\nENOENT\ndone\n"; out != want {
		testenv.Wrong(t, "got %q, want %q", out, want)
	}
}

// TestOverlayMoveKilled: a process that is killed while PID 1 moves a folder for it leaves one folder or the other,
// whole, and nothing else.
func TestOverlayMoveKilled(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "overlay-killed")
	const files = 3000
	if err := os.Mkdir(filepath.Join(dir, "big"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		world.Write(t, filepath.Join(dir, "big", strconv.Itoa(i)), "x")
	}
	sb := w.Create(t, "--workspace", dir+":overlay", "host")
	for range world.Rounds(10) {
		// strace(1) is not needed: the copy takes a tenth of a second.
		w.Run(t, "exec", sb, "python3", "-c", `
import os, signal, random, time
pid = os.fork()
if pid == 0:
    os.rename("big", "moved"); os._exit(0)
time.sleep(random.random() * 0.2)
os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)`).Want(t, 0)
		// PID 1 finishes, or takes its copy away, before anybody looks at the files from outside.
		testenv.Poll(t, 20*time.Second, "a move is under way", func() bool {
			return w.Run(t, "workspace", "diff", sb, "--stat").Code == 0
		})
		if got := w.OK(t, "exec", sb, "sh", "-c", "ls -a"); strings.Contains(got, ".hutch-move-") {
			testenv.Wrong(t, "the copy is left: %s", got)
		}
		out := w.OK(t, "exec", sb, "sh", "-c",
			"ls big moved 2>/dev/null | grep -c '^[0-9]'; [ ! -e moved ] || mv moved big")
		if out != fmt.Sprintf("%d\n", files) {
			t.Errorf("there are %q files, want %d", out, files)
		}
	}
}

// TestOverlayMoveHostile: whoever changes a folder while it is moved changes nothing outside of the overlay.
func TestOverlayMoveHostile(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "overlay-hostile")
	for i := range 7 {
		if err := os.MkdirAll(filepath.Join(dir, "a", strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "keep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		world.Write(t, filepath.Join(dir, "a", strconv.Itoa(i%7), strconv.Itoa(i)), "x")
	}
	world.Write(t, filepath.Join(dir, "keep", "file"), "kept")
	for i := range 20 {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("m%d", i), "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		world.Write(t, filepath.Join(dir, fmt.Sprintf("m%d", i), "sub", "f"), "x")
	}
	sb := w.Create(t, "--workspace", dir+":overlay", "host")
	out := w.OK(t, "exec", sb, "python3", "-c", `
import os, time
os.makedirs("/tmp/victim/sub"); open("/tmp/victim/sub/file", "w").write("kept"); os.mkdir("pure"); open("pure/file", "w").write("x")
end = time.time() + 1.5
kids = []
def child(do):
    pid = os.fork()
    if pid == 0:
        while time.time() < end:
            try: do()
            except OSError: pass
        os._exit(0)
    kids.append(pid)
def swap(p, to):
    os.rename(p, p + ".old"); os.symlink(to, p); os.unlink(p); os.rename(p + ".old", p)
def there(): os.rename("a", "b")
def back(): os.rename("b", "a")
child(there); child(back)
for top in "a", "b":
    child(lambda: swap(top + "/3", "/tmp/victim")); child(lambda: os.symlink("/tmp/victim/sub", top + "/link")); child(lambda: os.rename("pure", top + "/pure"))
    child(lambda: swap(top, "/tmp/victim"))
for pid in kids: os.waitpid(pid, 0)
kids.clear()
# Root moves folders to where somebody else may write, who changes names under its hands.
os.mkdir("/workspace/shared"); os.chmod("/workspace/shared", 0o777); os.chmod("/tmp/victim/sub/file", 0o600); os.chmod("/tmp/victim", 0o700)
os.mkdir("/workspace/shared/theirs"); open("/workspace/shared/theirs/file", "w").write("kept"); os.chmod("/workspace/shared/theirs", 0o700)
end = time.time() + 1.5
def other(do):
    def loop():
        if os.getuid() == 0: os.setgid(1000); os.setuid(1000)
        do()
    child(loop)
def moved():
    for i in range(20):
        os.rename("m%d" % i, "shared/m%d" % i); os.rename("shared/m%d" % i, "m%d" % i)
def meddle():
    for n in os.listdir("shared"):
        if n.startswith(".hutch-move"):
            p = "shared/" + n
            os.rename(p, "shared/gone"); os.symlink("/tmp/victim", p)
            os.unlink(p); os.rename("shared/theirs", p); os.rename(p, "shared/theirs")
        elif n.startswith("m"): os.rename("shared/" + n, "shared/gone2"); os.rename("shared/theirs", "shared/" + n); os.rename("shared/" + n, "shared/theirs")
child(moved); other(meddle); other(meddle)
for pid in kids: os.waitpid(pid, 0)
# Root may have taken it along, by the name that it was given.
theirs = [os.path.join(top, n, "file") for top in ("shared", ".") for n in os.listdir(top) if n != "keep" and n != "pure" and os.path.isfile(os.path.join(top, n, "file"))]
print(open("/tmp/victim/sub/file").read(), open("keep/file").read(), oct(os.stat("/tmp/victim").st_mode), [open(p).read() for p in theirs])`)
	if out != "kept kept 0o40700 ['kept']\n" {
		testenv.Wrong(t, "outside of what was moved: %q", out)
	}
	if out := w.OK(t, "exec", sb, "sh", "-c", "mkdir alive && mv alive lives && ls -d lives"); out != "lives\n" {
		t.Errorf("afterwards: %q", out)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a", "3", "3")); err != nil || string(data) != "x" {
		testenv.Wrong(t, "the host's folder: %q, %v", data, err)
	}
}
