package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnpackInOrder: small files are written by several goroutines, and what comes later in
// the stream still wins, links to what came before, and finds it in its way.
func TestUnpackInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	var entries []any
	want := make(map[string]string)
	for i := range 5000 {
		dir := fmt.Sprintf("d%d", random.IntN(100)) // more than the cache keeps
		name, content := fmt.Sprintf("%s/f%d", dir, random.IntN(20)), fmt.Sprint(i)
		if i%7 == 0 {
			content = strings.Repeat(content, smallBytes/3) // some too large for a batch
		}
		entries = append(entries, fileE(name, content))
		want[name] = content
		switch random.IntN(10) {
		case 0: // what was just written has a second name
			link := fmt.Sprintf("links/l%d", i)
			entries = append(entries, hardE(link, name))
			want[link] = content
		case 1: // a folder in place of it, then a file in place of that
			entries = append(entries, dirE(name), fileE(name+"/below", "x"), fileE(name, "back"))
			want[name] = "back"
		case 2: // through a symlink to its folder
			entries = append(entries, linkE("s"+dir, dir), fileE("s"+name, "through"))
			want[name] = "through"
		case 3: // hidden and made again
			entries = append(entries, fileE(fmt.Sprintf("%s/.wh.w%d", dir, i), ""),
				fileE(fmt.Sprintf("%s/w%d", dir, i), "w"))
			want[fmt.Sprintf("%s/w%d", dir, i)] = "w"
		}
	}
	c := newCage(t)
	_, err := c.unpack(t, layer(t, entries...), Options{SingleUID: os.Geteuid() != 0})
	must(t, err)
	for name, content := range want {
		if got, err := os.ReadFile(filepath.Join(c.root, name)); err != nil || string(got) != content {
			t.Errorf("%s has %.20q, want %.20q: %v", name, got, content, err)
		}
	}
}

// TestUnpackFirstError: of several bad entries the first is told, whoever met it.
func TestUnpackFirstError(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, last := range []any{fileE("../x", ""), fileE("z"+long, ""), hardE("h", "missing"),
		fileE("file0/below", "")} {
		var entries []any
		for i := range 500 {
			entries = append(entries, fileE(fmt.Sprint("file", i), "x"))
			if i == 250 {
				entries = append(entries, fileE(long, "x"))
			}
		}
		root, err := os.Open(t.TempDir())
		must(t, err)
		_, err = Unpack(root, bytes.NewReader(layer(t, append(entries, last)...)),
			Options{SingleUID: os.Geteuid() != 0})
		must(t, root.Close())
		var e *EntryError
		if !errors.As(err, &e) || e.Entry != long || !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("error %.100v", err)
		}
	}
	// A file in a batch is no folder either.
	c := newCage(t)
	_, err := c.unpack(t, layer(t, fileE("f", "x"), fileE("f/below", "x")), Options{SingleUID: os.Geteuid() != 0})
	if !errors.Is(err, ErrUnsafe) {
		t.Errorf("a file below a file: %v", err)
	}
}
