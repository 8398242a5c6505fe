package unpack

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
)

// TestManifest: what a layer's manifest says is what its folder holds, whatever the
// stream did on the way.
func TestManifest(t *testing.T) {
	deep := strings.Repeat("d/", 300)
	stream := layer(t,
		fileE("a", "first"), fileE("a", "second"), fileE("empty", ""), fileE("a.b", "x"), fileE("a-", "y"),
		dirE("usr/lib/"), linkE("lib", "usr/lib"), fileE("lib/through", "z"), hardE("hard", "lib/through"),
		fileE("odd \"name\"\n \\", "odd"), fileE("\xff\xfe", "bytes"), fileE(deep+"f", "deep"), fileE("e/.wh.gone", ""),
		tar.Header{Typeflag: tar.TypeReg, Name: "marked", Mode: 0o644, Format: tar.FormatPAX,
			PAXRecords: map[string]string{paxXattr + "user.a": "1", paxXattr + "user.b": "2"}},
		tar.Header{Typeflag: tar.TypeDir, Name: "folder/", Mode: 0o755, Uid: 0, Format: tar.FormatPAX,
			PAXRecords: map[string]string{paxXattr + "user.c": "3"}},
		tar.Header{Typeflag: tar.TypeReg, Name: "taken", Mode: 0o644, Format: tar.FormatPAX,
			PAXRecords: map[string]string{paxXattr + "user.a": "1"}},
		fileE("taken", "again, without"), hardE("linked", "marked"), fileE("opaque/.wh..wh..opq", ""),
		tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o600}, fileE("b/c", "gone"), fileE("b", "a file now"),
	)
	dir := t.TempDir()
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	var recorded, read, recordedAttrs, readAttrs bytes.Buffer
	_, err = Unpack(root, bytes.NewReader(stream), Options{SingleUID: os.Geteuid() != 0, Manifest: &recorded,
		Attributes: &recordedAttrs})
	must(t, err)
	must(t, WriteManifest(t.Context(), &read, &readAttrs, root, Checksums(t.Context()), nil))
	if recorded.String() != read.String() {
		t.Errorf("recorded\n%s\nread\n%s", recorded.String(), read.String())
	}
	if recordedAttrs.String() != readAttrs.String() || readAttrs.Len() == 0 {
		t.Errorf("attributes recorded\n%s\nread\n%s", recordedAttrs.String(), readAttrs.String())
	}
	var paths []string
	for lines := bufio.NewScanner(&read); lines.Scan(); {
		p, err := PathOf(lines.Text())
		must(t, err)
		if _, err := os.Lstat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
		paths = append(paths, p)
	}
	if !slices.IsSortedFunc(paths, ComparePaths) || len(paths) < 310 || paths[0] != "." {
		t.Errorf("paths %q", paths)
	}
	// The difference is seen.
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("sEcond"), 0o600))
	var after bytes.Buffer
	must(t, WriteManifest(t.Context(), &after, nil, root, Checksums(t.Context()), nil))
	if after.String() == recorded.String() {
		t.Error("a changed file is not seen")
	}
}

// TestChecksums: a large file is read once, however many names it has, each file is read when it has one, and the end
// of ctx is the end.
func TestChecksums(t *testing.T) {
	const size, names = 32 << 20, 1000
	dir := t.TempDir()
	first := filepath.Join(dir, "f")
	must(t, os.WriteFile(first, []byte("content"), 0o600))
	must(t, os.Truncate(first, size)) // sparse
	for i := range names {
		must(t, os.Link(first, filepath.Join(dir, fmt.Sprint("name", i))))
	}
	must(t, os.WriteFile(filepath.Join(dir, "other"), bytes.Repeat([]byte("x"), keptSize), 0o600))
	root, err := os.Open(dir)
	must(t, err)
	defer root.Close()
	var lines bytes.Buffer
	cost.Once(t, 20*names,
		func() { must(t, WriteManifest(t.Context(), &lines, nil, root, Checksums(t.Context()), nil)) })
	sums := make(map[string]int)
	for line := range strings.Lines(lines.String()) {
		sums[strings.Fields(line)[5]]++
	}
	if got := slices.Sorted(maps.Values(sums)); !slices.Equal(got, []int{1, 1, names + 1}) {
		t.Errorf("checksums of %v files are the same", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteManifest(t.Context(), io.Discard, nil, root, Checksums(ctx), nil); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}

// TestWalkKeepsFolder: a collection of garbage does not close the folder that is walked
// through, which nobody else may hold.
func TestWalkKeepsFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		must(t, os.MkdirAll(filepath.Join(dir, name, "below"), 0o755))
	}
	open := func() *os.File {
		f, err := os.Open(dir)
		must(t, err)
		return f
	}
	must(t, Walk(t.Context(), open(), func(*Node) error {
		collect(t)
		return nil
	}))
}

// collect collects garbage, and returns when the files are closed that nobody held any more. A collection leaves that
// to others, who take one after the other: when a file is closed that was dropped before the second one, what the
// first one has found was closed before.
func collect(t *testing.T) {
	t.Helper()
	runtime.GC()
	r := dropped(t)
	defer r.Close()
	runtime.GC()
	must(t, r.SetReadDeadline(time.Now().Add(testenv.Patience(20*time.Second))))
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("a collection does not close a pipe that nobody holds: %v", err)
	}
}

// dropped is the end of a pipe of which nobody holds the other end. The frame that did must be gone.
//
//go:noinline
func dropped(t *testing.T) *os.File {
	t.Helper()
	r, _, err := os.Pipe()
	must(t, err)
	return r
}

// FuzzPathOf: no line makes more than an error, and a path comes back as it was.
func FuzzPathOf(f *testing.F) {
	f.Add("a \"b\n")
	f.Fuzz(func(t *testing.T, s string) {
		cost.Input(t, s, func(s string) { _, _ = PathOf(s) })
		n := Node{Path: s}
		n.Stat.Mode = 0o10644 // a fifo
		line, err := n.Line(nil)
		must(t, err)
		if got, err := PathOf(line); err != nil || got != s {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	})
}
