package changes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// overlaid is a folder seen through an overlay.
type overlaid struct {
	t                    *testing.T
	lower, upper, merged string
	applied              Applied
}

func mounted(t *testing.T, before string) *overlaid {
	t.Helper()
	testenv.Root(t) // mounts one
	dir := t.TempDir()
	o := &overlaid{t: t, lower: filepath.Join(dir, "lower"), upper: filepath.Join(dir, "upper"),
		merged: filepath.Join(dir, "merged")}
	for _, d := range []string{o.lower, o.upper, o.merged, filepath.Join(dir, "work")} {
		if d == o.upper { // as of a sandbox that is made when the folder is there
			o.sh(o.lower, before)
			o.tick()
		}
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", o.merged, "overlay", unix.MS_NODEV,
		fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s/work,userxattr", o.lower, o.upper, dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(o.merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return o
}

// tick makes what is changed from now on younger than what was changed before, which is what tells who came first.
func (o *overlaid) tick() {
	o.t.Helper()
	testenv.NextTick(o.t, filepath.Dir(o.lower))
}

func (o *overlaid) sh(dir, script string) {
	o.t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		o.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// open opens both folders for as long as the test takes.
func (o *overlaid) open() (upper, lower *os.File) {
	o.t.Helper()
	var both [2]*os.File
	for i, dir := range []string{o.upper, o.lower} {
		f, err := os.Open(dir)
		if err != nil {
			o.t.Fatal(err)
		}
		o.t.Cleanup(func() { f.Close() })
		both[i] = f
	}
	return both[0], both[1]
}

// find returns a line for each change.
func (o *overlaid) find() string {
	o.t.Helper()
	upper, lower := o.open()
	found, err := Find(o.t.Context(), upper, lower, &o.applied)
	if err != nil {
		o.t.Fatal(err)
	}
	var lines []string
	for _, c := range found {
		l := string(c.Kind) + " " + c.Type + " " + c.Path
		if c.From != "" {
			l += " from " + c.From
		}
		if c.Mode != "" {
			l += " " + c.Mode
		}
		if c.Conflict != "" {
			l += " CONFLICT " + c.Conflict
		}
		lines = append(lines, l)
	}
	return strings.Join(lines, "\n")
}

func TestFind(t *testing.T) {
	const before = "mkdir -p d/e; echo a >a; echo b >b; echo c >d/c; echo f >d/e/f; ln -s a l; chmod 644 a b d/c d/e/f; chmod 755 d d/e"
	tests := map[string]struct{ inside, outside, want string }{
		"nothing":          {"cat a; ls -R", "", ""},
		"touched only":     {"touch a; touch -d 2001-01-01 b", "", ""},
		"content":          {"echo x >>a", "", "modified - a"},
		"the same size":    {"echo x >a", "", "modified - a"},
		"mode":             {"chmod 755 a", "", "modified - a 0755"},
		"mode of a folder": {"chmod 700 d", "", "modified d d 0700"},
		"new": {"umask 022; echo n >n; mkdir -p m/o; echo p >m/o/p", "",
			"added d m 0755\nadded d m/o 0755\nadded - m/o/p 0644\nadded - n 0644"},
		"new and gone":        {"echo n >n; rm n; mkdir m; rmdir m", "", ""},
		"removed":             {"rm a; rm -r d", "", "deleted - a\ndeleted d d"},
		"removed in a folder": {"rm d/e/f", "", "deleted - d/e/f"},
		"replaced":            {"rm a; echo other >a; chmod 644 a", "", "modified - a"},
		"back as it was":      {"rm a; echo a >a; chmod 644 a", "", ""},
		"renamed":             {"echo long content >x; mv b z", "", "added - x 0644\nrenamed - z from b 0644"},
		"a folder made anew": {"rm -r d; mkdir d; chmod 755 d; echo new >d/g", "",
			"deleted - d/c\ndeleted d d/e\nadded - d/g 0644"},
		"a folder for a file":   {"rm a; mkdir a; echo x >a/x", "", "deleted - a\nadded d a 0755\nadded - a/x 0644"},
		"a file for a folder":   {"rm -r d; echo x >d", "", "deleted d d\nadded - d 0644"},
		"links":                 {"ln -sf b l; ln -s /etc/passwd p", "", "modified l l\nadded l p"},
		"a pipe":                {"mkfifo p; chmod 644 p", "", "added p p 0644"},
		"meanwhile":             {"echo x >>a", "echo y >>a", "modified - a CONFLICT it was changed meanwhile"},
		"before it was touched": {"", "echo y >>a", ""},
		"both new": {"echo x >n; chmod 644 n", "echo y >n",
			"modified - n CONFLICT it was changed since the sandbox was made, which has put another in its place"},
		"removed and changed": {"rm a", "echo y >>a", "deleted - a CONFLICT it was changed meanwhile"},
		"a folder with something": {"rm -r d", "echo y >>d/e/f",
			"deleted d d CONFLICT d/e/f: it was changed meanwhile"},
		"gone in both": {"rm a", "rm a", ""},
		"gone there":   {"echo x >>a", "rm a", "added - a 0644"},
		"odd names": {"umask 022; echo x >'new\nline'; : >'-x'", "",
			"added - -x 0644\nadded - new\nline 0644"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := mounted(t, before)
			o.sh(o.merged, tt.inside)
			o.tick()
			o.sh(o.lower, tt.outside)
			if got := o.find(); got != tt.want {
				t.Errorf("found\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestFindHostile: an upper folder is a sandbox's: nothing in it leads out or keeps the walk waiting.
func TestFindHostile(t *testing.T) {
	upper, lower := t.TempDir(), t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(filepath.Dir(secret), filepath.Join(upper, "d")))
	must(os.Mkdir(filepath.Join(lower, "d"), 0o755))
	must(os.WriteFile(filepath.Join(lower, "d", "secret"), []byte("12345"), 0o600))
	must(os.Symlink(secret, filepath.Join(upper, "f")))
	must(os.WriteFile(filepath.Join(lower, "f"), []byte("12345"), 0o600))
	must(unix.Mkfifo(filepath.Join(upper, "p"), 0o644))
	must(os.WriteFile(filepath.Join(lower, "p"), nil, 0o644))
	deep := upper
	for range 300 {
		deep = filepath.Join(deep, "x")
		must(os.Mkdir(deep, 0o755))
	}
	u, err := os.Open(upper)
	must(err)
	defer u.Close()
	l, err := os.Open(lower)
	must(err)
	defer l.Close()
	found, err := Find(t.Context(), u, l, nil)
	must(err)
	var got []string
	for _, c := range found[:6] {
		got = append(got, string(c.Kind)+" "+c.Type+" "+c.Path)
	}
	if want := []string{"deleted d d", "added l d", "deleted - f", "added l f", "deleted - p",
		"added p p"}; !slices.Equal(got, want) || len(found) != 306 {
		t.Errorf("%q and %d in all, want %q", got, len(found), want)
	}
	for _, p := range []string{"f", "p", "d/secret", "../x"} {
		if f, err := Open(int(u.Fd()), p); err == nil {
			f.Close()
			t.Errorf("%s was opened", p)
		} else if errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", p, err)
		}
	}
}
