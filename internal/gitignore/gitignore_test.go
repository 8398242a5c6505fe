package gitignore

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestAgainstGit compares with what git itself says of random patterns and paths.
func TestAgainstGit(t *testing.T) {
	testenv.Programs(t, "git")
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pieces := []string{"a", "b", "ab", "*", "**", "?", "/", "/", "[a-b]", "[!a]", ".c", `\`, "]", "[", "!", "#", " ",
		"[[:alpha:]]", "-"}
	names := []string{"a", "b", "ab", "a.c", "abb", ".c", "a b", "]", "b-"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var file strings.Builder
		for range 1 + random.IntN(3) {
			for range 1 + random.IntN(5) {
				file.WriteString(pieces[random.IntN(len(pieces))])
			}
			file.WriteByte('\n')
		}
		if err := os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(file.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for range 40 {
			path := names[random.IntN(len(names))]
			for range random.IntN(3) {
				path += "/" + names[random.IntN(len(names))]
			}
			paths = append(paths, path)
		}
		cmd := exec.Command("git", "-C", dir, "-c", "core.excludesFile=", "check-ignore", "--stdin", "-z", "--no-index")
		cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
		out, _ := cmd.Output() // fails when nothing is ignored
		ignored := map[string]bool{}
		for _, p := range bytes.Split(out, []byte{0}) {
			ignored[string(p)] = true
		}
		l := Parse(file.String())
		for _, path := range paths {
			if got := walk(l, path); got != ignored[path] {
				t.Errorf("%q says %v of %q, git %v", file.String(), got, path, ignored[path])
			}
		}
	}
}

// walk is whether path or a folder above it is ignored.
func walk(l *List, path string) bool {
	for i := range len(path) {
		if path[i] == '/' && l.Match(path[:i], true) == Ignore {
			return true
		}
	}
	return l.Match(path, false) == Ignore
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		patterns, path string
		folder         bool
		want           Verdict
	}{
		{"*.o\n!keep.o", "x/keep.o", false, Include},
		{"*.o\n!keep.o", "x/a.o", false, Ignore},
		{"build/", "build", false, None},
		{"build/", "x/build", true, Ignore},
		{"/top", "x/top", false, None},
		{"a/**/b", "a/b", false, Ignore},
		{"a/**/b", "a/x/y/b", false, Ignore},
		{"**/b", "b", false, Ignore},
		{"a/**", "a", true, None},
		{`sp\ `, "sp ", false, Ignore},
		{"# not\n\\#yes", "#yes", false, Ignore},
	} {
		if got := Parse(test.patterns).Match(test.path, test.folder); got != test.want {
			t.Errorf("%q of %q: %v", test.patterns, test.path, got)
		}
	}
}

// TestHostile: no pattern makes matching explode.
func TestHostile(t *testing.T) {
	begin := time.Now()
	Parse(strings.Repeat("*a", 400)+"b").Match(strings.Repeat("a", 4000), false)
	Parse(strings.Repeat("**/a/", 200)+"b").Match(strings.Repeat("a/", 2000)+"c", false)
	if d := time.Since(begin); d > 5*time.Second {
		t.Error(d)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a/**/b\n!*.[a-z]", "a/x/b")
	f.Fuzz(func(t *testing.T, patterns, path string) {
		path = path[:min(len(path), 64)]
		// Each byte of a pattern may have to be compared with each of the path.
		bound := cost.Bound{Base: cost.Default.Base, PerByte: cost.Default.PerByte * time.Duration(1+len(path)/16)}
		cost.Within(t, bound, patterns, func(patterns string) {
			l := Parse(patterns)
			l.Match(path, true)
			l.Match(path, false)
		})
	})
}
