package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi/filesapi"
)

// grep is one search, of which it makes "path:line:text" of each match.
func grep(t testing.TB, c *filesapi.Client, path string, args filesapi.GrepArgs) (*filesapi.Reply, []filesapi.Match,
	[]string) {
	t.Helper()
	if args.Max == 0 {
		args.Max = 1000
	}
	args.LineSize = 100
	r, data, err := op(t, c, filesapi.OpGrep, path, &args)
	if err != nil {
		t.Fatal(err)
	}
	list, err := filesapi.ParseMatches(data, &args)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range list {
		lines = append(lines, fmt.Sprintf("%s:%d:%s", m.Path, m.Line, m.Text))
	}
	return r, list, lines
}

// grove makes a tree with ignore files and much that is not to be searched.
func grove(t testing.TB) string {
	dir := t.TempDir()
	for name, content := range map[string]string{
		".git/HEAD": "needle", ".git/info/exclude": "excluded\n", ".gitignore": "*.o\n/build/\n!keep.o\n",
		".ignore": "quiet\n",
		"a.go":    "one\nneedle two\n", "a.o": "needle", "keep.o": "needle", "build/x": "needle",
		"sub/build/x": "needle",
		"excluded":    "needle",
		"quiet":       "needle", ".hidden": "needle", "sub/.gitignore": "!*.o\nlocal\n", "sub/b.o": "needle",
		"sub/local": "needle",
		"binary":    "needle\x00", "sub/with\nnewline": "needle", "sub/\xff": "needle", "sub/" +
			strings.Repeat("n", 255): "needle",
		"nested/.git/HEAD": "x", "nested/c.o": "needle",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, content)
	}
	for link, target := range map[string]string{"link": "a.go", "out": "/etc", "loop": "."} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestGrepTree(t *testing.T) {
	c, dir := newClient(t), grove(t)
	all := []string{
		"a.go:2:needle two", "keep.o:1:needle", "nested/c.o:1:needle", "sub/b.o:1:needle", "sub/build/x:1:needle",
		"sub/" + strings.Repeat("n", 255) + ":1:needle", "sub/with\nnewline:1:needle", "sub/\xff:1:needle",
	}
	if _, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "needle"}); !slices.Equal(got, all) {
		t.Errorf("%q", got)
	}
	if _, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "NEED", IgnoreCase: true,
		Globs: []string{"*.go", "!sub/"}}); !slices.Equal(got, all[:1]) {
		t.Errorf("globs: %q", got)
	}
	r, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "needle", Hidden: true, NoIgnore: true, FilesOnly: true})
	if len(got) != 14 || slices.Contains(got, ".git/HEAD:0:") || r.Truncated {
		t.Errorf("no_ignore: %d, %q", len(got), got)
	}
	if _, _, got := grep(t, c, dir+"/sub", filesapi.GrepArgs{Pattern: "needle", FilesOnly: true}); slices.Contains(got,
		"local:0:") || len(got) != 5 {
		t.Errorf("below: %q", got)
	}
	if _, _, got := grep(t, c, dir+"/a.go", filesapi.GrepArgs{Pattern: "^ne+dle"}); !slices.Equal(got,
		[]string{":2:needle two"}) {
		t.Errorf("one file: %q", got)
	}
	var pages []string
	for offset, more := 0, true; more; offset = len(pages) {
		r, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "needle", Max: 3, Offset: offset})
		pages, more = append(pages, got...), r.Truncated
	}
	if !slices.Equal(pages, all) {
		t.Errorf("pages: %q", pages)
	}
}

// TestGrepLarge: lines are found with what is around them wherever the buffer ends, and millions of matches are pages.
func TestGrepLarge(t *testing.T) {
	c, dir := newClient(t), t.TempDir()
	var text strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	put(t, dir+"/large", text.String())
	r, list, _ := grep(t, c, dir, filesapi.GrepArgs{Pattern: "0000$", Context: 2, Max: 500})
	if len(list) != 40 || r.Truncated || r.Count != 1 {
		t.Fatalf("%d matches, %+v", len(list), r)
	}
	for i, m := range list {
		n := (i + 1) * 10_000
		want := [][]byte{fmt.Appendf(nil, "line %d", n-2), fmt.Appendf(nil, "line %d", n-1)}
		if m.Line != int64(n) || !slices.EqualFunc(m.Before, want, slices.Equal) || n < 400_000 &&
			(len(m.After) != 2 || string(m.After[1]) != fmt.Sprintf("line %d", n+2)) {
			t.Errorf("%d: %d, %q, %q, %q", n, m.Line, m.Before, m.Text, m.After)
		}
	}
	r, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "line", Offset: 300_000, Max: 2})
	if !r.Truncated || !slices.Equal(got, []string{"large:300001:line 300001", "large:300002:line 300002"}) {
		t.Errorf("%q, %+v", got, r)
	}
	put(t, dir+"/long", strings.Repeat("x", 3<<20)+"needle\nneedle\n")
	if _, _, got := grep(t, c, dir, filesapi.GrepArgs{Pattern: "needle"}); len(got) == 0 ||
		got[len(got)-1][:5] != "long:" {
		t.Errorf("%q", got)
	}
	// What would explode elsewhere.
	put(t, dir+"/aaa", strings.Repeat("a", 50_000)+"\n")
	if _, _, got := grep(t, c, dir+"/aaa", filesapi.GrepArgs{Pattern: "(a*)*b"}); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestGrepCancel(t *testing.T) {
	c := newClient(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
	defer timer.Stop()
	begin := time.Now()
	args := []byte(`{"pattern":"[a-z]{5}[0-9]{5}[^\\x00-\\x{10FFFF}]","max":10,"line_bytes":10,"hidden":true,"no_ignore":true}`)
	_, _, err := c.Call(ctx, filesapi.Request{Op: filesapi.OpGrep, Path: "/usr"}, args, filesapi.MaxGrep)
	if d := time.Since(begin); err == nil || d > time.Second {
		t.Errorf("%v after %v", err, d)
	}
}

func TestFind(t *testing.T) {
	c, dir := newClient(t), grove(t)
	if err := os.MkdirAll(dir+"/server/main", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/server/main.go", "")
	put(t, dir+"/server/main/domain.go", "")
	search := func(args filesapi.FindArgs) (list []string) {
		_, data, err := op(t, c, filesapi.OpFind, dir, &args)
		if err != nil {
			t.Fatal(err)
		}
		found, err := filesapi.ParseFound(data, &args)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			list = append(list, string(f.Path))
		}
		return list
	}
	if got := search(filesapi.FindArgs{Query: "main go", Files: true, Max: 10}); !slices.Equal(got,
		[]string{"server/main.go", "server/main/domain.go"}) {
		t.Errorf("%q", got)
	}
	if got := search(filesapi.FindArgs{Query: "srvmn", Folders: true, Max: 10}); !slices.Equal(got,
		[]string{"server/main"}) {
		t.Errorf("%q", got)
	}
	if got := search(filesapi.FindArgs{Files: true, Max: 3}); !slices.Equal(got, []string{"a.go", "binary", "keep.o"}) {
		t.Errorf("%q", got)
	}
	if got := search(filesapi.FindArgs{Query: "b.o", Files: true, NoIgnore: true, Max: 1}); !slices.Equal(got,
		[]string{"sub/b.o"}) {
		t.Errorf("%q", got)
	}
}

// BenchmarkGrep searches 100,000 files, and lets ripgrep do the same where it is installed (RG names it).
func BenchmarkGrep(b *testing.B) {
	dir := b.TempDir()
	line := strings.Repeat("the quick brown fox jumps over the lazy dog\n", 40)
	for i := range 1000 {
		sub := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			put(b, fmt.Sprintf("%s/file%d.txt", sub, j), line)
		}
	}
	put(b, dir+"/0/x", "a needle in it\n")
	c := newClient(b)
	rg := os.Getenv("RG")
	if rg == "" {
		rg, _ = exec.LookPath("rg")
	}
	for name, pattern := range map[string]string{"literal": "needle", "regexp": `ne+dle\s+i[nm]`,
		"classes": `[0-9]+needle[xyz]|lazy cat`} {
		b.Run(name+"/hutch", func(b *testing.B) {
			for b.Loop() {
				grep(b, c, dir, filesapi.GrepArgs{Pattern: pattern})
			}
		})
		if rg == "" {
			continue
		}
		b.Run(name+"/ripgrep", func(b *testing.B) {
			for b.Loop() {
				_ = exec.Command(rg, "-n", "--", pattern, dir).Run() // fails when nothing is found
			}
		})
	}
}
