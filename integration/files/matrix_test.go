package files_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/runtime/api"
)

// matrixWork is what people and their programs do in a folder; it prints a line for each.
const matrixWork = `
import ctypes, errno, fcntl, os, select, shutil, sqlite3, struct, subprocess, sys
def attempt(what, do):
    try: do(); print(what, "ok")
    except OSError as e: print(what, errno.errorcode.get(e.errno, str(e)))
    except subprocess.CalledProcessError as e: print(what, "failed:", (e.output or b"").decode().strip().replace("\n", "; ")[-200:])
    except Exception as e: print(what, type(e).__name__, e)
def write(p, text, how="w"):
    with open(p, how) as f: f.write(text)
def git(*args, dir="repo"):
    env = dict(os.environ, HOME="/tmp", GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@a.test", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@a.test")
    subprocess.run(["git", "-c", "gc.auto=0"] + list(args), cwd=dir, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
os.umask(0o022)
attempt("read", lambda: open("old").read())
attempt("create", lambda: write("new", "n"))
attempt("append", lambda: write("old", "more", "a"))
attempt("replace", lambda: (write("old.tmp", "x"), os.rename("old.tmp", "old")))
attempt("chmod", lambda: os.chmod("old2", 0o600))
attempt("times", lambda: os.utime("old2", (1, 1)))
attempt("rename a file", lambda: os.rename("old3", "older"))
attempt("rename a folder", lambda: os.rename("folder", "moved"))
attempt("rename it back", lambda: os.rename("moved", "folder"))
attempt("link", lambda: os.link("old2", "link"))
attempt("symlink", lambda: os.symlink("old2", "symlink"))
attempt("fifo", lambda: os.mkfifo("fifo"))
attempt("delete", lambda: os.unlink("old4"))
attempt("delete a folder", lambda: shutil.rmtree("folder2"))
def locks():
    with open("lock", "w") as f: fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX)
attempt("locks", locks)
def wal():
    db = sqlite3.connect("db.sqlite"); db.execute("pragma journal_mode=wal"); db.execute("create table t(x)"); db.execute("insert into t values(1)"); db.commit(); db.close()
attempt("sqlite", wal)
def notify():
    libc = ctypes.CDLL(None); fd = libc.inotify_init1(0); libc.inotify_add_watch(fd, b".", 0x100)
    write("seen", "x")
    if not select.select([fd], [], [], 20)[0]: raise OSError(errno.ETIMEDOUT, "nothing was reported")
    os.close(fd)
attempt("inotify", notify)
attempt("git status", lambda: git("status"))
attempt("git commit", lambda: (write("repo/more", "x"), git("add", "."), git("commit", "-qm", "x")))
attempt("git mv", lambda: git("mv", "src", "source"))
attempt("git stash", lambda: (git("stash"), git("stash", "pop")))
attempt("git branch", lambda: git("checkout", "-qb", "other"))
attempt("git gc", lambda: git("gc", "-q"))
attempt("git init", lambda: git("init", "-q", "fresh", dir="."))
attempt("git clone", lambda: git("clone", "-q", "repo", "clone", dir="."))
attempt("git worktree", lambda: git("worktree", "add", "-q", "../tree"))
attempt("venv", lambda: subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
`

// A cell of the matrix is a sandbox with a folder.
type cell struct {
	folder *matrixFolder
	mode   api.MountMode
	user   string
}

// matrixFolder is a kind of folder.
type matrixFolder struct {
	name   string
	rooted bool // only root can make one
	disk   bool // it takes a disk, which not every machine can make
	make   func(t *testing.T, dir string)
}

var matrixFolders = []matrixFolder{
	{"own", false, false, func(*testing.T, string) {}},
	{"0700", false, false, func(t *testing.T, dir string) { chmod(t, dir, 0o700) }},
	{"0777", false, false, func(t *testing.T, dir string) { chmod(t, dir, 0o777) }},
	{"setgid", false, false, func(t *testing.T, dir string) { chmod(t, dir, 0o2775) }},
	{"another user's", true, false, func(t *testing.T, dir string) { chownAll(t, dir, 12345, 12345) }},
	{"another user's, 0777", true, false,
		func(t *testing.T, dir string) { chownAll(t, dir, 12345, 12345); chmod(t, dir, 0o777) }},
	{"a group's, setgid", true, false,
		func(t *testing.T, dir string) { chownAll(t, dir, os.Getuid(), 12346); chmod(t, dir, 0o2775) }},
	{"tmpfs", true, false, func(t *testing.T, dir string) { mountOn(t, "tmpfs", "", dir) }},
	{"ext4", true, true, func(t *testing.T, dir string) { mountOn(t, "ext4", "mkfs.ext4 -q -F", dir) }},
	{"xfs", true, true, func(t *testing.T, dir string) { mountOn(t, "xfs", "mkfs.xfs -q -f", dir) }},
	{"btrfs", true, true, func(t *testing.T, dir string) { mountOn(t, "btrfs", "mkfs.btrfs -q -f", dir) }},
	{"read-only", true, false, func(t *testing.T, dir string) {
		prepare(t, dir)
		if err := errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""),
			unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unmount(t, dir) })
	}},
}

func chmod(t *testing.T, p string, mode uint32) {
	t.Helper()
	if err := unix.Chmod(p, mode); err != nil {
		t.Fatal(err)
	}
}

func chownAll(t *testing.T, dir string, uid, gid int) {
	t.Helper()
	prepare(t, dir)
	if out, err := exec.Command("chown", "-Rh", fmt.Sprintf("%d:%d", uid, gid), dir).CombinedOutput(); err != nil {
		t.Fatalf("chown: %v %s", err, out)
	}
}

func unmount(t *testing.T, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

// mountOn mounts a new file system on dir.
func mountOn(t *testing.T, fs, mkfs, dir string) {
	t.Helper()
	args := []string{"-t", fs}
	if mkfs == "" {
		args = append(args, "none", dir)
	} else {
		image := dir + ".img"
		words := append(strings.Fields(mkfs), image)
		if _, err := exec.LookPath(words[0]); err != nil {
			testenv.Require(t, probe.Check{Name: words[0], Status: probe.No, Detail: "it is not installed",
				Remedy: "install it"})
		}
		if out, err := exec.Command("truncate", "-s", "320M", image).CombinedOutput(); err != nil {
			t.Fatalf("truncate: %v %s", err, out)
		}
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v %s", words[0], err, out)
		}
		args = append(args, "-o", "loop", image, dir)
	}
	if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
		testenv.Require(t, probe.Check{Name: "mount_" + fs, Status: probe.No, Detail: fmt.Sprintf("%v %s", err, out),
			Remedy: "another kernel"})
	}
	t.Cleanup(func() { unmount(t, dir) })
}

// prepare puts into the folder what was there before the sandbox.
func prepare(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "old")); err == nil {
		return
	}
	cmd := exec.Command("sh", "-ec", `for f in old old2 old3 old4; do echo $f >$f; done; mkdir -p folder/sub folder2; echo x >folder/sub/x; echo y >folder2/y
git init -q repo; cd repo; mkdir src; echo a >src/a; git add .; git commit -qm first`)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@a.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// matrix are the cells: all, or so many that each two values meet.
func matrix(all bool) (cells []cell) {
	for i := range matrixFolders {
		f := &matrixFolders[i]
		if f.rooted && testenv.CurrentKind() != mustrun.Root || f.disk && !all {
			continue
		}
		for j, mode := range []api.MountMode{api.ModeRO, api.ModeRW, api.ModeOverlay} {
			for k, user := range []string{"root", "1000", "daemon"} {
				if all || (i+j)%3 == k { // a Latin square
					cells = append(cells, cell{f, mode, user})
				}
			}
		}
	}
	return cells
}

// matrixFails are the steps that fail, by the mode, and what they say.
var matrixFails = map[api.MountMode]map[string]string{
	api.ModeRO: {"": "ok", "read": "ok", "git status": "ok"},
	// With a guard no repository comes to be.
	api.ModeRW: {"git init": "Read-only file system", "git clone": "Read-only file system",
		"git worktree": "Read-only file system"},
	api.ModeOverlay: {},
}

// TestWorkspaceMatrix: whatever the folder, the mode and the user, the usual work works, or creation says what does
// not. All cells, and disks of other file systems: make test-workspaces.
func TestWorkspaceMatrix(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.Needs(t, "git")
	w := world.New(t)
	for i, c := range matrix(os.Getenv(testenv.MatrixVar) == "all") {
		t.Run(fmt.Sprintf("%s/%s/%s", c.folder.name, c.mode, c.user), func(t *testing.T) {
			dir := w.Sub(t, fmt.Sprintf("matrix-%d", i))
			c.folder.make(t, dir)
			prepare(t, dir)
			r := w.Run(t, "run", "-u", c.user, "--workspace", dir+":"+string(c.mode), "host", "python3", "-c",
				matrixWork)
			if c.folder.name == "read-only" && c.mode == api.ModeRW {
				r.Want(t, 125).Says(t, "is on a read-only file system", "overlay")
				return
			}
			if testenv.CurrentKind() == mustrun.SubUID && c.user != "root" {
				// An ordinary user cannot map its own id to another one than root.
				switch {
				case c.folder.name == "0700":
					r.Want(t, 125).Says(t, "permission denied", "--user 0")
					return
				case c.mode != api.ModeRO:
					r.Want(t, 0).Says(t, "belongs to root inside", "With --user 0 they can")
					return
				}
			}
			fails, steps, bad := matrixFails[c.mode], 0, []string{}
			for line := range strings.Lines(r.Want(t, 0).Stdout) {
				steps++
				line = strings.TrimSuffix(line, "\n")
				ok := strings.HasSuffix(line, " ok")
				if c.mode == api.ModeRO {
					if name := strings.TrimSuffix(line, " ok"); ok != (fails[name] == "ok") {
						bad = append(bad, line)
					}
					continue
				}
				name, want := "", ""
				for n, says := range fails {
					if strings.HasPrefix(line, n+" ") {
						name, want = n, says
					}
				}
				if ok != (name == "") || !strings.Contains(line, want) {
					bad = append(bad, line)
				}
			}
			if len(bad) > 0 || steps < 27 {
				t.Errorf("%d steps, of which differ:\n%s\n%s", steps, strings.Join(bad, "\n"), r.Stderr)
			}
		})
	}
}
