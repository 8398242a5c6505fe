package files_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
	"github.com/hutch-sh/hutch/internal/testenv/testuser"
)

// deepWork changes files and folders in all ways that depend on whose they are; it prints a line for each.
const deepWork = `
import errno, os, sys
failed = []
def attempt(what, do):
    try: do(); print(what, "ok")
    except OSError as e: failed.append(e.strerror); print(what, errno.errorcode[e.errno])
def write(p, how="a"):
    with open(p, how) as f: f.write("x")
def there(p): os.rename(p, p + ".new"); os.rename(p + ".new", p)
for name in sorted(os.listdir(".")):
    if os.path.isfile(name):
        attempt(name + ": append", lambda: write(name)); attempt(name + ": mode", lambda: os.chmod(name, 0o660)); attempt(name + ": rename", lambda: there(name))
        attempt(name + ": delete", lambda: os.unlink(name))
        continue
    f = name + "/f"
    attempt(f + ": append", lambda: write(f)); attempt(f + ": mode", lambda: os.chmod(f, 0o660)); attempt(f + ": rename", lambda: there(f))
    attempt(f + ": delete", lambda: os.unlink(f)); attempt(name + ": create", lambda: write(name + "/new", "x")); attempt(name + ": mkdir", lambda: os.mkdir(name + "/sub"))
    attempt(name + ": rename", lambda: there(name))
print(*failed, file=sys.stderr)
sys.exit(bool(failed))
`

// deepFile is a file, or a folder with a file of the same kind, below a folder of the user's.
type deepFile struct {
	name     string
	uid, gid int // -1 is the user
	mode     uint32
}

const (
	teamID  = 22001 // a group of the user's
	otherID = 22002 // another user, and a group of nobody's
	largeID = 7_022_002
)

var deepFiles = []deepFile{
	{"own", -1, -1, 0o644}, {"team's own", -1, teamID, 0o664}, {"team's", otherID, teamID, 0o664},
	{"everybody's", otherID, otherID, 0o666}, {"another's", otherID, otherID, 0o644}, {"root's", 0, 0, 0o644},
	{"large", largeID, largeID, 0o664},
}

// makeDeep makes a folder of a user's with these files in it.
func makeDeep(t *testing.T, dir string, uid, gid int, files []deepFile) {
	t.Helper()
	give := func(p string, f deepFile, mode uint32) {
		u, g := f.uid, f.gid
		if u < 0 {
			u = uid
		}
		if g < 0 {
			g = gid
		}
		if err := os.Lchown(p, u, g); err != nil {
			t.Fatal(err)
		}
		chmod(t, p, mode)
	}
	for _, f := range files {
		sub := filepath.Join(dir, f.name+" folder")
		if err := os.MkdirAll(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		folder := f.mode | f.mode>>2&0o111
		if f.gid == teamID {
			folder |= 0o2000
		}
		give(world.Write(t, filepath.Join(dir, f.name), ""), f, f.mode)
		give(world.Write(t, filepath.Join(sub, "f"), ""), f, f.mode)
		give(sub, f, folder)
	}
	give(dir, deepFile{uid: -1, gid: -1}, 0o755)
}

// someUser runs programs as a user of some kind, which is in the team, with a daemon of its own.
type someUser struct {
	kind     mustrun.Kind
	uid, gid int
	home     string
	bin      string
}

// newUsers are users of each kind. Root's folder is of another user, as in a container.
func newUsers(t *testing.T) (users []someUser) {
	t.Helper()
	bin, err := os.MkdirTemp("", "hutch-bin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(bin) })
	// The checkout may be where only root comes.
	if out, err := exec.Command("cp", "-rT", filepath.Dir(testenv.Bin(t, "hutch")), bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	chmod(t, bin, 0o755)
	users = append(users, someUser{mustrun.Root, 0, 0, t.TempDir(), bin})
	for _, kind := range []mustrun.Kind{mustrun.SubUID, mustrun.NoSubUID} {
		u, err := testuser.New(context.Background(), kind)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := u.Close(); err != nil {
				testenv.Wrong(t, "%v", err)
			}
		})
		users = append(users, someUser{kind, int(u.UID), int(u.GID), u.Home, bin})
	}
	return users
}

// run runs a program as the user, in a folder.
func (u *someUser) run(t *testing.T, dir, program string, args ...string) (code int, out, errs string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + u.bin + ":" + os.Getenv("PATH"), "HOME=" + u.home, "LANG=C.UTF-8",
		"TMPDIR=" + u.home, "HUTCH_ROOT=" + filepath.Join(u.home, "state"),
		"XDG_RUNTIME_DIR=" + u.home, "HUTCH_CONFIG=" + filepath.Join(u.home, "config.yaml")}
	if u.kind != mustrun.Root {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid),
			Groups: []uint32{teamID}}}
	}
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), o.String(), e.String()
}

// hutch runs hutch with a private daemon.
func (u *someUser) hutch(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	return u.run(t, u.home, filepath.Join(u.bin, "hutch"), args...)
}

// deepDiffers are, by user and mode, the changes that the user can make outside and cannot inside: of each kind of file
// those that fail with EACCES, and with EOVERFLOW. All other changes end inside as outside.
var deepDiffers = map[string]map[string][2]string{
	"root rw": {
		"team's own": allDiffer, "team's": allDiffer, "everybody's": allDiffer, "another's": allDiffer,
		"root's": allDiffer, "large": allDiffer,
	},
	"root overlay": {"large": allDiffer},
	"subuid rw":    {"team's": {"append f/append f/rename f/delete create mkdir", ""}},
	"subuid overlay": {
		"team's own": {"", "append mode rename f/append f/mode f/rename f/delete create mkdir"},
		"team's":     {"append f/append f/rename f/delete create mkdir", "rename"}, "everybody's": foreignDiffers,
		"another's": {"", "rename"}, "root's": {"", "rename"}, "large": {"", "rename"},
	},
	"no-subuid rw": {},
	"no-subuid overlay": {
		"team's own": {"", "append mode rename f/append f/mode f/rename f/delete create mkdir"},
		"team's":     foreignDiffers, "everybody's": foreignDiffers,
		"another's": {"", "rename"}, "root's": {"", "rename"}, "large": {"", "rename"},
	},
}

var (
	allDiffer = [2]string{"append f/append create mkdir",
		"mode rename delete f/mode f/rename f/delete folder/rename"}
	foreignDiffers = [2]string{"", "append rename f/append f/rename f/delete create mkdir"}
)

// deepWant are the lines that differ. A folder that the kernel cannot change is not moved by PID 1 either.
func deepWant(kind, mode string) (lines []string) {
	for of, changes := range deepDiffers[kind+" "+mode] {
		for i, errno := range []string{"EACCES", "EOVERFLOW"} {
			for change := range strings.FieldsSeq(changes[i]) {
				line := of + ": " + change
				switch in, what, _ := strings.Cut(change, "/"); {
				case in == "f":
					line = of + " folder/f: " + what
				case in == "folder":
					line = of + " folder: " + what
				case change == "create" || change == "mkdir":
					line = of + " folder: " + change
				}
				lines = append(lines, line+" "+errno)
			}
		}
		if mode == "overlay" && kind != "root" {
			lines = append(lines, of+" folder: rename EXDEV")
		}
	}
	slices.Sort(lines)
	return lines
}

// TestWorkspaceMatrixDeep: below the top of a folder, too, whoever can change a file outside can change it inside;
// where the kernel cannot, the sandbox's creation names such a file and says what to use instead.
func TestWorkspaceMatrixDeep(t *testing.T) {
	testenv.Suite(t, "slow")
	testenv.Root(t) // who makes files of others, and all kinds of users
	world.NeedsPython(t)
	for _, u := range newUsers(t) {
		owner, group := u.uid, u.gid
		if u.kind == mustrun.Root {
			owner, group = 12345, 12345
		}
		for _, mode := range []string{"rw", "overlay"} {
			t.Run(string(u.kind)+" "+mode, func(t *testing.T) {
				base := filepath.Join(u.home, "deep "+mode)
				outside, inside, own := base+" outside", base+" inside", base+" own"
				makeDeep(t, outside, owner, group, deepFiles)
				makeDeep(t, inside, owner, group, deepFiles)
				makeDeep(t, own, owner, group, deepFiles[:1])
				_, can, errs := u.run(t, outside, "/usr/bin/python3", "-ISBc", deepWork)
				args := []string{"run", "--private", "--workspace", inside + ":" + mode, "host", "--", "python3",
					"-ISBc", deepWork}
				code, got, says := u.hutch(t, args...)
				steps := strings.Split(strings.TrimSpace(can), "\n")
				if code != 1 || len(steps) < 70 || strings.Count(got, "\n") != len(steps) {
					t.Fatalf("exit %d: %s\noutside: %s", code, says, errs)
				}
				var differ []string
				for i, line := range strings.Split(strings.TrimSpace(got), "\n") {
					if steps[i] != line && strings.HasSuffix(steps[i], " ok") {
						differ = append(differ, line)
					}
				}
				slices.Sort(differ)
				if want := deepWant(string(u.kind), mode); !slices.Equal(differ, want) {
					t.Errorf("cannot be done inside:\n\t%q\nwant\n\t%q", differ, want)
				}
				if said := strings.Contains(says, inside+"/") && strings.Contains(says, "cannot be changed"); said !=
					(len(differ) > 0) {
					t.Errorf("%d changes cannot be made, and it says:\n%s", len(differ), says)
				}
				args[3] = own + ":" + mode
				if code, got, says := u.hutch(t, args...); code != 0 || strings.Contains(says, "cannot be changed") {
					t.Errorf("one's own files: exit %d: %s%s", code, got, says)
				}
			})
		}
	}
}

// TestWorkspaceForeignDeep: a file of others that a look before the sandbox does not come to is named when a command
// fails by it.
func TestWorkspaceForeignDeep(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	w := world.New(t)
	dir := w.Sub(t, "work")
	for i := range 600 {
		world.Write(t, filepath.Join(dir, fmt.Sprintf("%03d", i)), "")
	}
	makeDeep(t, filepath.Join(dir, "deep/deeper"), 0, 0, []deepFile{{"large", largeID, 0, 0o644}})
	sb := w.Create(t, "--workspace", dir+":overlay", "host")
	at := "/workspace/deep/deeper/large"
	names := filepath.Join(dir, "deep/deeper/large")
	w.Run(t, "exec", sb, "sh", "-c", "echo x >>/workspace/000").Want(t, 0).SaysNot(t, "cannot be changed")
	w.Run(t, "exec", sb, "sh", "-c", "echo x >>"+at).Want(t, 2).
		Says(t, names, "cannot be changed", "its owner has no id in the sandbox", "use mode rw, or a copy")
	w.Run(t, "exec", sb, "false").Want(t, 1).SaysNot(t, "cannot be changed") // once is enough
}
