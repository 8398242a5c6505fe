package patch

import (
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

func applyAll(t *testing.T, text string, files map[string]string) (map[string]string, Fit, error) {
	t.Helper()
	list, err := Parse(text, -1, 100)
	if err != nil {
		return nil, Fit{}, err
	}
	var all Fit
	for i := range list {
		f := &list[i]
		from := f.Path
		if f.From != "" {
			from = f.From
		}
		made, fit, err := f.Apply(files[from])
		if err != nil {
			return nil, fit, err
		}
		all.Fuzz += fit.Fuzz
		all.Offset = max(all.Offset, fit.Offset)
		delete(files, from)
		if f.Kind != Deleted {
			files[f.Path] = made
		}
	}
	return files, all, nil
}

// TestAgainstGit: what git diff writes of random changes makes the one file of the other.
func TestAgainstGit(t *testing.T) {
	git := needsGit(t)
	random, dir := rand.New(rand.NewPCG(5, 6)), t.TempDir()
	text := func() string {
		var b strings.Builder
		for range random.IntN(30) {
			b.WriteString([]string{"a", "b", "", "-- x", "++ y", "@@ -1 +1 @@", "\ta"}[random.IntN(7)])
			b.WriteString([]string{"\n", "\n", "\r\n"}[random.IntN(3)])
		}
		if random.IntN(3) == 0 {
			b.WriteString("no end")
		}
		return b.String()
	}
	for range 100 {
		old, want := text(), text()
		for name, content := range map[string]string{"old": old, "new": want} {
			if err := os.WriteFile(dir+"/"+name, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(git, "diff", "--no-index", "--no-renames", "old", "new")
		cmd.Dir = dir
		out, _ := cmd.Output() // says that they differ
		if len(out) == 0 {
			continue
		}
		d := strings.ReplaceAll(string(out), "b/new", "b/old")
		got, fit, err := applyAll(t, d, map[string]string{"old": old})
		if err != nil || got["old"] != want || fit != (Fit{}) {
			t.Fatalf("%q to %q: %q, %+v, %v\n%s", old, want, got["old"], fit, err, d)
		}
	}
}

func needsGit(t *testing.T) string {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		testenv.Require(t, probe.Check{Name: "git", Status: probe.No, Detail: err.Error(), Remedy: "make deps"})
	}
	return git
}

// TestTreesAgainstGit: what git diff writes of random trees, with files that are added, removed, moved and both moved
// and changed, with odd names, at any width of context, makes the one tree of the other; and back.
func TestTreesAgainstGit(t *testing.T) {
	git, random := needsGit(t), rand.New(rand.NewPCG(7, 8))
	names := []string{"a", "b c", "d/e", "d/f.txt", "\"q\"", "tab\there", "ümlaut", "g/h/i", "-x", "line\nbreak",
		"back\\slash", "a -> b"}
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString([]string{"one\n", "two\n", "\n", "--- a/a\n", "+++ b/a\n", "@@ -1 +1 @@\n",
				"diff --git a/x b/x\n", "\\ No newline at end of file\n", "*** End Patch\n"}[random.IntN(9)])
		}
		if random.IntN(4) == 0 {
			b.WriteString("end")
		}
		return b.String()
	}
	for round := range 60 {
		old := map[string]string{}
		for _, i := range random.Perm(len(names))[:1+random.IntN(6)] {
			old[names[i]] = text(1 + random.IntN(40))
		}
		made := maps.Clone(old)
		for range 1 + random.IntN(5) {
			at, to := names[random.IntN(len(names))], names[random.IntN(len(names))]
			content, there := made[at]
			switch random.IntN(4) {
			case 0:
				made[at] = text(random.IntN(10))
			case 1:
				delete(made, at)
			case 2:
				if lines := strings.SplitAfter(content, "\n"); there { // some lines more, some less
					k := random.IntN(len(lines))
					made[at] = strings.Join(lines[:k], "") + text(random.IntN(3)) +
						strings.Join(lines[min(len(lines), k+random.IntN(3)):], "")
				}
			default:
				if there {
					delete(made, at)
					made[to] = content
				}
			}
		}
		dir := t.TempDir()
		for side, files := range map[string]map[string]string{"old": old, "new": made} {
			if err := os.MkdirAll(filepath.Join(dir, side), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, content := range files {
				path := filepath.Join(dir, side, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, way := range []struct {
			from, to string
			a, b     map[string]string
		}{{"old", "new", old, made}, {"new", "old", made, old}} {
			d := treeDiff(t, git, dir, way.from, way.to, random.IntN(5))
			if d == "" {
				continue
			}
			got, fit, err := applyAll(t, d, maps.Clone(way.a))
			if err != nil || !maps.Equal(got, way.b) || fit != (Fit{}) {
				t.Fatalf("round %d, %s to %s: %+v, %v\n%s\nhas  %q\ngot  %q\nwant %q", round, way.from, way.to, fit,
					err, d, way.a, got, way.b)
			}
		}
	}
}

// treeDiff is git's, between two trees that it keeps itself, as between two commits.
func treeDiff(t *testing.T, git, dir, from, to string, context int) string {
	t.Helper()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(git, append([]string{"-c", "core.autocrlf=false"}, args...)...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_DIR=" + dir + "/git",
			"GIT_CONFIG_NOSYSTEM=1"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return strings.TrimSuffix(string(out), "\n")
	}
	run("init", "-q")
	var trees []string
	for _, side := range []string{from, to} {
		run("--work-tree="+side, "read-tree", "--empty")
		run("--work-tree="+side, "add", "-A", "-f", ".")
		trees = append(trees, run("write-tree"))
	}
	out := run("diff", "--find-renames=30%", "-U"+strconv.Itoa(context), trees[0], trees[1])
	if out != "" {
		out += "\n"
	}
	return out
}

func TestForms(t *testing.T) {
	const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"
	for _, test := range []struct {
		about, patch string
		file         string
		want         string // of f, or a part of the error
		fit          Fit
		bad          bool
	}{
		{"moved", "--- a/f\n+++ b/f\n@@ -2,3 +2,3 @@\n 5\n-6\n+x\n 7\n", ten, strings.Replace(ten, "6", "x", 1),
			Fit{Offset: 3}, false},
		{"wrong counts", "--- f\n+++ f\n@@ -5,9 +5,1 @@\n 5\n-6\n+x\n+y\n 7\n", ten,
			strings.Replace(ten, "6", "x\ny", 1), Fit{}, false},
		{"edge", "--- f\n+++ f\n@@ -4,5 +4,5 @@\n four\n 5\n-6\n+x\n 7\n 8\n", ten, strings.Replace(ten, "6", "x", 1),
			Fit{Fuzz: 2}, false},
		{"crlf", "--- f\n+++ f\n@@ -1,2 +1,2 @@\n 1\n-2\n+x\n", "1\r\n2\r\n", "1\r\nx\r\n", Fit{}, false},
		{"does not fit", "--- f\n+++ f\n@@ -5,3 +5,3 @@\n 5\n-six\n+x\n 7\n", ten,
			`f: hunk 1 of 1 does not fit: line 6 is "6", and the patch has "six"`, Fit{}, true},
		{"out", "--- a/../f\n+++ b/../f\n@@ -1 +1 @@\n-1\n+2\n", ten, `"../f" leads out of the folder`, Fit{}, true},
		{"absolute", "--- /f\n+++ /f\n@@ -1 +1 @@\n-1\n+2\n", ten, `"/f" leads out`, Fit{}, true},
		{"no name", "--- \n+++ \n@@ -1 +1 @@\n-1\n+2\n", ten, "has no name", Fit{}, true},
		{"only a prefix", "--- a/\n+++ b/\n@@ -1 +1 @@\n-1\n+2\n", ten, "has no name", Fit{}, true},
		{"moves nowhere", "*** Begin Patch\n*** Update File: f\n*** Move to: \n-1\n+2\n*** End Patch", ten, "",
			Fit{}, true},
		{"binary", "diff --git a/f b/f\nindex 1..2\nGIT binary patch\n", ten, "binary", Fit{}, true},
		{"link", "diff --git a/f b/f\nnew file mode 120000\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+/etc\n", "",
			"only regular files", Fit{}, true},
		{"nothing", "hello\n", ten, "changes no file", Fit{}, true},
		{"update", "*** Begin Patch\n*** Update File: f\n@@\n 5\n-6\n+x\n*** End Patch\n", ten,
			strings.Replace(ten, "6", "x", 1), Fit{}, false},
		{"anchor", "*** Begin Patch\n*** Update File: f\n@@ b\n-x\n+y\n*** End Patch", "a\nx\nb\nx\n", "a\nx\nb\ny\n",
			Fit{}, false},
		{"spaces", "*** Begin Patch\n*** Update File: f\n@@\n if\n-  x\n+\ty\n*** End Patch", "if \n\tx\n",
			"if \n\ty\n", Fit{Fuzz: 2}, false},
		{"end", "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n*** End of File\n*** End Patch", "x\nx\n", "x\ny\n",
			Fit{}, false},
		{"add", "*** Begin Patch\n*** Add File: f\n+a\n+b\n*** End Patch", "", "a\nb\n", Fit{}, false},
		{"incomplete", "*** Begin Patch\n*** Update File: f\n@@\n-x\n+y\n", "x\n", "incomplete", Fit{}, true},
		{"twice", "*** Begin Patch\n*** Add File: f\n+a\n*** Delete File: f\n*** End Patch", "", "changed twice",
			Fit{}, true},
	} {
		got, fit, err := applyAll(t, test.patch, map[string]string{"f": test.file})
		switch {
		case test.bad && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, %q", test.about, err, got)
		case !test.bad && (err != nil || got["f"] != test.want || fit != test.fit):
			t.Errorf("%s: %q, %+v, %v", test.about, got["f"], fit, err)
		}
	}
	got, _, err := applyAll(t,
		"diff --git a/x y b/z\nsimilarity index 100%\nrename from x y\nrename to z\ndiff --git a/e b/e\nnew file mode 100755\nindex 0..1\n", map[string]string{"x y": "1"})
	if err != nil || got["z"] != "1" || len(got) != 2 {
		t.Error(got, err)
	}
}

func FuzzApply(f *testing.F) {
	f.Add("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n 5\n-6\n+x\n", "5\n6\n")
	f.Add("*** Begin Patch\n*** Update File: f\n@@ a\n 5\n-6\n+x\n*** End of File\n*** End Patch\n", "a\n5\n6\n")
	f.Fuzz(func(t *testing.T, text, content string) {
		cost.Input(t, text, func(text string) { _, _ = Parse(text, -1, 10) })
		cost.Of(t, len(text)+len(content), func() {
			files, err := Parse(text, -1, 10)
			if err != nil {
				return
			}
			for i := range files {
				if !local(files[i].Path) {
					t.Errorf("%q", files[i].Path)
				}
				_, _, _ = files[i].Apply(content)
			}
		})
	})
}
