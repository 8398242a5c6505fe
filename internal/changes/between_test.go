package changes

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// layered mounts an overlay of these lower folders, top-most first, and returns its upper folder, which begins as a
// copy of another, and what is seen.
func layered(t *testing.T, from string, lower ...string) (upper, merged string) {
	t.Helper()
	testenv.Root(t) // mounts one
	dir := t.TempDir()
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	upper, merged = dir+"/upper", dir+"/merged"
	if from != "" {
		if out, err := exec.Command("cp", "-a", from+"/.", upper).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s/work,userxattr", strings.Join(lower, ":"), upper, dir)
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return upper, merged
}

// seenIn is what a tree shows: of each name all that a difference is about.
func seenIn(t *testing.T, dir string) map[string][2]string {
	t.Helper()
	seen := map[string][2]string{}
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		st := &unix.Statx_t{}
		if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, st); err != nil {
			return err
		}
		is := [2]string{letter(st), fmt.Sprintf("%o %d %d", st.Mode, st.Uid, st.Gid)}
		switch is[0] {
		case "-":
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			is[0] += string(data)
		case "l":
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			is[0] += target
		}
		seen[rel] = is
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// expected compares two trees name by name.
func expected(old, now map[string][2]string) (list []string) {
	names := maps.Clone(old)
	maps.Copy(names, now)
	for p := range names {
		was, had := old[p]
		is, has := now[p]
		switch {
		case !had:
			list = append(list, "added "+p)
		case !has:
			list = append(list, "deleted "+p)
		case was[0][0] != is[0][0]:
			list = append(list, "type "+p)
		case was[0] != is[0]:
			list = append(list, "modified "+p)
		case was[1] != is[1]:
			list = append(list, "mode "+p)
		}
	}
	slices.Sort(list)
	return list
}

// mess does to a tree what sandboxes do, at random.
func mess(t *testing.T, dir string, seed *rand.Rand) {
	t.Helper()
	name := func() string {
		p := []string{"a", "b", "c", "new\nline"}[seed.IntN(4)]
		for seed.IntN(2) == 0 {
			p += "/" + []string{"x", "y", "z"}[seed.IntN(3)]
		}
		return p
	}
	text := func(p, content string) {
		// a fifo would wait for a reader
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, 0o644)
		if err == nil {
			_, _ = f.WriteString(content)
			_ = f.Close()
		}
	}
	remove := func(p string) {
		// os.RemoveAll opens what is above, which may be a fifo
		if st, err := os.Stat(filepath.Dir(p)); err == nil && st.IsDir() {
			_ = os.RemoveAll(p)
		}
	}
	for range 25 {
		p, q := filepath.Join(dir, name()), filepath.Join(dir, name())
		switch seed.IntN(9) { // what cannot be done is not
		case 0:
			_ = os.MkdirAll(p, 0o755)
		case 1:
			_ = os.MkdirAll(filepath.Dir(p), 0o755)
			text(p, string('0'+rune(seed.IntN(3))))
		case 2:
			remove(p)
		case 3:
			_ = os.Rename(p, q)
		case 4:
			_ = os.Symlink(fmt.Sprint(seed.IntN(2)), p)
		case 5:
			_ = os.Chmod(p, []os.FileMode{0o700, 0o755}[seed.IntN(2)])
		case 6:
			remove(p)
			_ = os.MkdirAll(p, 0o755)
			text(p+"/x", "in")
		case 7:
			remove(p)
			_ = unix.Mkfifo(p, 0o644)
		default:
			_ = os.Lchown(p, 1, 1)
		}
	}
}

// TestBetween: what two overlays show differently is what a comparison of all their files finds, over whatever layers.
func TestBetween(t *testing.T) {
	for round := range 40 {
		seed := rand.New(rand.NewPCG(7, uint64(round)))
		base := t.TempDir()
		mess(t, base, seed)
		middle, through := layered(t, "", base)
		mess(t, through, seed)
		upper, mergedOld := layered(t, "", middle, base)
		mess(t, mergedOld, seed)
		from := ""
		if round%3 > 0 { // as of a snapshot, from which the other goes on
			from = upper
		}
		other, mergedNew := layered(t, from, middle, base)
		mess(t, mergedNew, seed)
		want := expected(seenIn(t, mergedOld), seenIn(t, mergedNew))

		o := &Overlays{}
		for into, dir := range map[**os.File]string{&o.Old: upper, &o.New: other} {
			f, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			*into = f
		}
		for _, dir := range []string{middle, base} {
			f, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o.Lower = append(o.Lower, f)
		}
		var got, paths []string
		var text strings.Builder
		differ := NewDiffer(&text, 3, 1<<20)
		err := o.Between(t.Context(), func(d *Difference) error {
			got, paths = append(got, string(d.Kind)+" "+d.Path), append(paths, order(d.Path))
			return differ.Write(o, "at", d)
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if !slices.IsSorted(paths) {
			t.Errorf("round %d: not in order: %q", round, paths)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("round %d:\n%q\nwant\n%q", round, got, want)
		}
		if len(got) > 0 && strings.Contains(text.String(), "diff --git") &&
			!strings.Contains(text.String(), "diff --git a/at/") && !strings.Contains(text.String(), `"a/at/`) {
			t.Errorf("round %d: %s", round, text.String())
		}
	}
}

// TestBetweenHostile: what a sandbox has put in the place of folders and marks is looked at as what it is, and never
// followed.
func TestBetweenHostile(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"old", "new", "lower", "secret"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sh := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-euc", script)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sh(`echo top >secret/f; mkdir lower/d; echo low >lower/d/f; echo low >lower/f
ln -s ../secret new/d; ln -s ../secret/f new/f; ln -s ../secret old/link; mkdir new/link; mkfifo old/fifo; echo x >new/fifo; mkfifo new/only; printf 'a\0b' >new/binary
mkdir new/loop; ln -s . new/loop/loop`)
	o := &Overlays{}
	for name, into := range map[string]**os.File{"old": &o.Old, "new": &o.New} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		*into = f
	}
	lower, err := os.Open(filepath.Join(dir, "lower"))
	if err != nil {
		t.Fatal(err)
	}
	defer lower.Close()
	o.Lower = []*os.File{lower}
	var got []string
	var text strings.Builder
	differ := NewDiffer(&text, 3, 1<<20)
	err = o.Between(t.Context(), func(d *Difference) error {
		got = append(got, fmt.Sprintf("%s%s %s %s", d.Was, d.Type, d.Kind, d.Path))
		return differ.Write(o, "/", d)
	})
	want := []string{"- added binary", "dl type d", "- deleted d/f", "-l type f", "p- type fifo", "ld type link",
		"d added loop", "l added loop/loop", "p added only"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q\nwant\n%q", err, got, want)
	}
	if strings.Contains(text.String(), "top") {
		t.Errorf("followed:\n%s", text.String())
	}
}

// order makes a path one that sorts as Order has it.
func order(p string) string { return strings.ReplaceAll(p, "/", "\x00") }

// TestOrder: a folder comes before what is in it, and that before what follows the folder.
func TestOrder(t *testing.T) {
	paths := []string{"a", "a/b", "a/b/c", "a-", "a.b", "a0", "ab", "b", ""}
	for _, x := range paths {
		for _, y := range paths {
			if got, want := Order(x, y), strings.Compare(order(x), order(y)); got != want {
				t.Errorf("%q, %q: %d, want %d", x, y, got, want)
			}
		}
	}
}
