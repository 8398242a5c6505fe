package changes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// apply brings all that is found into the folder.
func (o *overlaid) apply(force bool, only ...string) (done []string, failed []Failure) {
	o.t.Helper()
	upper, lower := o.open()
	found, err := Find(o.t.Context(), upper, lower, &o.applied)
	if err != nil {
		o.t.Fatal(err)
	}
	var chosen []Change
	for _, c := range found {
		if len(only) == 0 || strings.Contains(" "+strings.Join(only, " ")+" ", " "+c.Path+" ") {
			chosen = append(chosen, c)
		}
	}
	if done, failed, err = Apply(o.t.Context(), upper, lower, chosen, &o.applied, force); err != nil {
		o.t.Fatal(err)
	}
	return done, failed
}

// tree describes a folder: names, types, permissions and contents.
func tree(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc",
		`find . -mindepth 1 -printf '%P %y %m %l\n' | sort; find . -type f | sort | xargs -r -d '\n' md5sum`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestApplyAll: after random work in an overlay, and apply, the folder is what the overlay showed, and nothing is
// found.
func TestApplyAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	name := func() string {
		p := string(rune('a' + rnd.IntN(5)))
		for rnd.IntN(3) == 0 {
			p += "/" + string(rune('a'+rnd.IntN(5)))
		}
		return p
	}
	step := func() string {
		a, b := name(), name()
		switch rnd.IntN(8) {
		case 0, 1, 2:
			return fmt.Sprintf("mkdir -p $(dirname %s) && echo %d >%s", a, rnd.IntN(1000), a)
		case 3:
			return fmt.Sprintf("rm -rf %s", a)
		case 4:
			return fmt.Sprintf("mv %s %s", a, b)
		case 5:
			return fmt.Sprintf("mkdir -p %s", a)
		case 6:
			return fmt.Sprintf("ln -s %s %s", b, a)
		}
		return fmt.Sprintf("test ! -L %s && chmod %d00 %s", a, 6+rnd.IntN(2), a)
	}
	for round := range 25 {
		var before, inside strings.Builder
		for range 20 {
			fmt.Fprintf(&before, "{ %s; } 2>/dev/null || true\n", step())
		}
		for range 20 {
			fmt.Fprintf(&inside, "{ %s; } 2>/dev/null || true\n", step())
		}
		o := mounted(t, before.String())
		o.sh(o.merged, inside.String())
		want := tree(t, o.merged)
		found := o.find()
		_, failed := o.apply(false)
		if len(failed) > 0 {
			t.Fatalf("round %d: %+v of\n%s", round, failed, found)
		}
		if got := tree(t, o.lower); got != want {
			t.Fatalf("round %d:\n%s\nwant\n%s\nby\n%s", round, got, want, found)
		}
		if left := o.find(); left != "" {
			t.Fatalf("round %d: still found\n%s", round, left)
		}
	}
}

// files are a folder's as git knows them.
func files(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc",
		`find . -mindepth 1 ! -type d -printf '%P %y %l\n' | sort; find . -type f -perm -100 | sort; find . -type f -print0 | sort -z | xargs -r -0 md5sum`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestUnified: what git apply makes of the diff is what the overlay shows.
func TestUnified(t *testing.T) {
	const before = `for i in $(seq 50); do echo line $i; done >a; cp a b; mkdir -p d/e; cp a d/c; printf 'no newline' >d/e/f; ln -s a l; printf '\0\1' >bin; chmod +x b; : >empty; cp b keep`
	for name, inside := range map[string]string{
		"content": "sed -i 's/line 7$/seven/; 30,33d; 45i new' a",
		"new":     "cp a n; mkdir -p x/y; echo z >x/y/z; chmod +x n", "removed": "rm a; rm -r d",
		"mode":             "chmod -x b; chmod +x a",
		"mode and content": "echo x >>b; chmod -x b", "link": "ln -sf b l; ln -s l m", "renamed": "mv d/e/f g",
		"renamed and mode": "mv b g; chmod -x g; mv d/c h; chmod +x h", "newline": "echo >>d/e/f; printf x >>a",
		"link to file": "rm l; echo x >l", "all": "rm b; echo x >empty; : >a; : >new",
		"odd names": `echo x >'a "b\'; echo y >'tab	é'; mv keep 'new
line'`,
	} {
		t.Run(name, func(t *testing.T) {
			o := mounted(t, before)
			copied := filepath.Join(filepath.Dir(o.lower), "copied")
			o.sh(o.lower, "cp -a . "+copied)
			o.sh(o.merged, inside)
			upper, lower := o.open()
			found, err := Find(t.Context(), upper, lower, nil)
			if err != nil {
				t.Fatal(err)
			}
			var diff strings.Builder
			if err := Unified(&diff, upper, lower, found, 3, 1<<20); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("git", "apply", "-p1", "--whitespace=nowarn", "-")
			cmd.Dir, cmd.Stdin = copied, strings.NewReader(diff.String())
			cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES=/")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, diff.String())
			}
			if got, want := files(t, copied), files(t, o.merged); got != want {
				t.Errorf("%s\nwant\n%s\nby\n%s", got, want, diff.String())
			}
			if err := Unified(&strings.Builder{}, upper, lower, found, 3, 10); !errors.Is(err, ErrLong) {
				t.Errorf("bounded: %v", err)
			}
		})
	}
}

// TestApplyConflict: what somebody else has changed is left alone, unless force is set; the rest is applied.
func TestApplyConflict(t *testing.T) {
	const before = "echo a >a; echo b >b; mkdir d; echo c >d/c"
	for _, force := range []bool{false, true} {
		o := mounted(t, before)
		o.sh(o.merged, "echo mine >>a; echo mine >>b; rm -r d; echo mine >n; chmod 644 n")
		o.tick()
		o.sh(o.lower, "echo yours >>a; echo yours >>d/c; echo yours >n")
		done, failed := o.apply(force)
		got := tree(t, o.lower)
		if force {
			if len(failed) > 0 || len(done) != 4 || strings.Contains(got, "d/c") {
				t.Errorf("by force: %v, %+v\n%s", done, failed, got)
			}
			continue
		}
		if len(failed) != 3 || len(done) != 1 || done[0] != "b" || !failed[0].Conflict ||
			!strings.Contains(got, "d/c") {
			t.Errorf("%v, %+v\n%s", done, failed, got)
		}
		if text, err := os.ReadFile(filepath.Join(o.lower, "a")); err != nil || string(text) != "a\nyours\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// TestApplySome: only what was chosen is applied, and what cannot be is told.
func TestApplySome(t *testing.T) {
	o := mounted(t, "echo a >a; echo b >b; mkdir d; chmod 4755 a")
	o.sh(o.merged, "echo mine >>a; echo mine >>b; mkfifo p; echo x >d/x; chmod 4755 d/x")
	if done, failed := o.apply(false, "a", "p"); len(done) != 1 || len(failed) != 1 ||
		!strings.Contains(failed[0].Why, "stay in the sandbox") {
		t.Errorf("%v, %+v", done, failed)
	}
	if text, _ := os.ReadFile(filepath.Join(o.lower, "b")); string(text) != "b\n" {
		t.Errorf("b is %q", text)
	}
	// A folder that has become a link leads nowhere.
	outside := t.TempDir()
	o.sh(o.lower, "rmdir d; ln -s "+outside+" d")
	upper, err := os.Open(o.upper)
	if err != nil {
		t.Fatal(err)
	}
	defer upper.Close()
	lower, err := os.Open(o.lower)
	if err != nil {
		t.Fatal(err)
	}
	defer lower.Close()
	done, failed, err := Apply(t.Context(), upper, lower, []Change{{Path: "d/x", Kind: Added, Type: "-", Mode: "0755"}},
		nil, true)
	if err != nil || len(done) > 0 || len(failed) != 1 {
		t.Errorf("%v, %+v, %v", done, failed, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}
