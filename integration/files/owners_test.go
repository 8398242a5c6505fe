package files_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// touchAll changes a workspace in all ways that depend on whose it is.
const touchAll = `set -e
echo new >new; echo more >>given; chmod 640 given; mv given moved; ln moved linked; mkdir made; mv sub made/sub; echo x >made/sub/x
rm made/sub/file; stat -c '%u %a' . moved`

// TestWorkspaceOwners: whoever can change a folder outside can change it inside, as the user that the commands run as:
// root's sandboxes in anybody's folder, and what they make is the folder's owner's.
func TestWorkspaceOwners(t *testing.T) {
	testenv.Suite(t, "slow")
	testenv.Root(t) // nobody else has somebody else's folders
	t.Parallel()
	w := world.New(t)
	for _, own := range []int{0, 1000, 70000} {
		for _, user := range []int{0, 1000, 65534} {
			for _, mode := range []string{"rw", "overlay"} {
				t.Run(fmt.Sprintf("of %d as %d %s", own, user, mode), func(t *testing.T) {
					dir := w.Sub(t, fmt.Sprintf("%d-%d-%s", own, user, mode))
					world.Write(t, filepath.Join(dir, "given"), "given\n")
					if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
						t.Fatal(err)
					}
					world.Write(t, filepath.Join(dir, "sub/file"), "x\n")
					for _, name := range []string{"sub/file", "sub", "given", "."} {
						if err := os.Chown(filepath.Join(dir, name), own, own); err != nil {
							t.Fatal(err)
						}
					}
					if err := unix.Chmod(dir, 0o2750); err != nil {
						t.Fatal(err)
					}
					r := w.Run(t, "run", "-u", fmt.Sprintf("%d:%d", user, user), "--workspace", dir+":"+mode, "host",
						"sh", "-c", touchAll).Want(t, 0)
					if want := fmt.Sprintf("%d 2750\n%d 640\n", user, user); r.Stdout != want {
						t.Errorf("got %q, want %q", r.Stdout, want)
					}
					if mode == "overlay" {
						if got := world.Read(t, filepath.Join(dir, "given")); got != "given\n" {
							t.Errorf("the host sees %q", got)
						}
						return
					}
					for _, name := range []string{"new", "moved", "made", "made/sub", "made/sub/x"} {
						st, err := os.Lstat(filepath.Join(dir, name))
						if err != nil {
							t.Error(err)
						} else if world.OwnerOfFile(st) != own {
							t.Errorf("%s belongs to uid %d, not to %d", name, world.OwnerOfFile(st), own)
						}
					}
				})
			}
		}
	}
}

// TestWorkspaceOthers: what else than its owner's is in a folder is nobody's in mode rw, where a sandbox makes files of
// the owner alone, and can be read and changed in an overlay.
func TestWorkspaceOthers(t *testing.T) {
	testenv.Root(t) // nobody else has somebody else's files
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	secret := world.Write(t, filepath.Join(dir, "roots"), "root's\n")
	if err := os.Chown(dir, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(secret, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Run(t, "run", "--workspace", dir, "host", "sh", "-c", "stat -c %u roots; echo x >>roots").Want(t, 2).
		Says(t, "Permission denied")
	w.Run(t, "run", "--workspace", dir, "host", "sh", "-c", "echo x >new; chown 0:0 new; chown 1000 new; chown 7 new").
		Want(t, 0)
	if st, err := os.Lstat(filepath.Join(dir, "new")); err != nil || world.OwnerOfFile(st) < 1<<16 {
		t.Errorf("a sandbox made a file of a user of the host: %v", err)
	}
	for _, mode := range []string{"overlay", "ro"} {
		if got := w.OK(t, "run", "--workspace", dir+":"+mode, "host", "cat", "roots"); got != "root's\n" {
			t.Errorf("%s: %q", mode, got)
		}
	}
	w.OK(t, "run", "--workspace", dir+":overlay", "host", "sh", "-c",
		"echo x >>roots; chmod 644 roots; mv roots theirs")
	if got := world.Read(t, secret); got != "root's\n" {
		t.Errorf("the host sees %q", got)
	}
}

// TestWorkspaceForeign: an ordinary user's overlay over a folder whose group has no id inside cannot change what is in
// it, which is said when it is made; what is asked for instead works.
func TestWorkspaceForeign(t *testing.T) {
	testenv.NotRoot(t) // who maps the folder's group
	t.Parallel()
	w := world.New(t)
	w.Run(t, "run", "--workspace", "/usr/share/doc:overlay", "host", "true").Want(t, 125).
		Says(t, "has no id in sandboxes", "use mode rw or ro, or a copy")
	w.OK(t, "run", "--workspace", "/usr/share/doc:ro", "host", "ls")
}

// TestWorkspaceChown: what users of sandboxes have left in a folder, which its owner cannot even remove, is the owner's
// again.
func TestWorkspaceChown(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(dir, "mine"), "")
	w.OK(t, "run", "-u", "0", "--workspace", dir+":rw", "host", "sh", "-c",
		"mkdir -p a/b; echo x >a/b/c; ln -s c a/b/l; chown -hR 1000:1000 a; chmod 700 a; mkdir .git 2>/dev/null || true")
	want := "4 files given back to you\n"
	if testenv.CurrentKind() == mustrun.NoSubUID { // whose users have no ids outside
		want = "0 files given back to you\n"
	}
	if got := w.OK(t, "workspace", "chown", dir); got != want {
		t.Errorf("%q", got)
	}
	for _, name := range []string{"a", "a/b", "a/b/c", "a/b/l", "mine"} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		} else if world.OwnerOfFile(st) != os.Geteuid() {
			t.Errorf("%s belongs to uid %d", name, world.OwnerOfFile(st))
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Error(err)
	}
	sb := w.Create(t, "--workspace", dir+":rw", "host")
	w.Run(t, "workspace", "chown", dir).Want(t, 125).Says(t, "hutch stop "+sb)
	w.OK(t, "rm", "-f", sb)
	w.Run(t, "workspace", "chown", w.Path("no-such")).Want(t, 125).Says(t, "no-such")
}
