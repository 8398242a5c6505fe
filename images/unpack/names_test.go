package unpack

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNames: what was made in a folder is listed until something is removed from it; a folder with the number of one
// that is gone begins anew; beyond the memory for it nothing is known, and not half of it.
func TestNames(t *testing.T) {
	n := newNames()
	list := func(folder uint64) string {
		b, ok := n.list(folder)
		if !ok {
			return "unknown"
		}
		var all []string
		for _, e := range appendEntries(nil, &listed{}, b) {
			all = append(all, fmt.Sprintf("%s %d %d", e.base, e.ino, e.kind))
		}
		return strings.Join(all, ", ")
	}
	n.add(1, 5, "a", unix.DT_REG) // nobody has begun it
	n.begin(2)
	n.begin(3)
	n.add(2, 6, "a", unix.DT_REG)
	n.add(3, 7, strings.Repeat("b", 255), unix.DT_REG)
	n.add(2, 0, "c\n", unix.DT_UNKNOWN)
	for folder, want := range map[uint64]string{1: "unknown", 2: "a 6 8, c\n 0 0", 3: strings.Repeat("b", 255) +
		" 7 8"} {
		if got := list(folder); got != want {
			t.Errorf("%d: %q, want %q", folder, got, want)
		}
	}
	n.begin(2)
	n.add(2, 8, "d", unix.DT_REG)
	n.forget(3)
	n.add(3, 9, "e", unix.DT_REG)
	if got := list(2) + "; " + list(3); got != "d 8 8; unknown" {
		t.Error(got)
	}
	n.forget(2)
	if n.room != maxNames {
		t.Errorf("room for %d", n.room)
	}
	n.room = 100
	n.begin(4)
	for i := range 10 {
		n.add(4, 1, fmt.Sprint("name", i), unix.DT_REG)
	}
	if got := list(4); got != "unknown" || n.room != 100 {
		t.Errorf("%s, room for %d", got, n.room)
	}
}

// TestNamesOfLayer: layers that take back what they have said have the manifest of what there is.
func TestNamesOfLayer(t *testing.T) {
	var many, again []any
	for i := range 300 {
		many = append(many, fileE(fmt.Sprintf("d/f%d", i), "x"))
		again = append(again, fileE(fmt.Sprintf("d/f%d", i*7%300), "y"))
	}
	big := strings.Repeat("z", smallBytes+1)
	for name, entries := range map[string][]any{
		"a name again": append(append([]any{dirE("d/")}, many...), fileE("d/f7", "y"),
			fileE("d/new", "z")),
		"many again": append(append([]any{dirE("d/")}, many...), again...),
		"a folder, a file, a folder": {dirE("d/"), fileE("d/a", ""), fileE("d/b/c", ""), fileE("d", ""), dirE("d/"),
			fileE("d/e", "")},
		"folders that come and go": {dirE("a/"), fileE("a/x", ""), fileE("a", ""), dirE("b/"), fileE("b/y", ""),
			fileE("b", ""), dirE("c/"), fileE("c/z", "")},
		"implied": {fileE("a/b/c/d", ""), fileE("a/b/e", ""), fileE("f", "")},
		"whiteouts": {dirE("d/"), fileE("d/a", ""), fileE("d/.wh.b", ""), fileE("d/c", ""),
			fileE("d/.wh..wh..opq", ""), fileE("d/.wh.e", ""), fileE("d/f", "")},
		"by a link": {dirE("usr/lib/"), linkE("lib", "usr/lib"), fileE("lib/a", ""),
			fileE("usr/lib/b", ""), hardE("usr/c", "lib/a"), fileE("lib/a", "new")},
		"all kinds": {dirE("d/"), fileE("d/big", big), fileE("d/small", "x"), linkE("d/link", "small"),
			hardE("d/hard", "d/small"), dirE("d/e/"), fileE("d/e/f", "")},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := os.Open(t.TempDir())
			must(t, err)
			defer root.Close()
			var recorded, read bytes.Buffer
			_, err = Unpack(root, bytes.NewReader(layer(t, entries...)),
				Options{SingleUID: os.Geteuid() != 0, Manifest: &recorded})
			must(t, err)
			must(t, WriteManifest(t.Context(), &read, nil, root, Checksums(t.Context()), nil))
			if recorded.String() != read.String() {
				t.Errorf("recorded\n%s\nread\n%s", recorded.String(), read.String())
			}
		})
	}
}
