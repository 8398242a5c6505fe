package unpack

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/testenv/tarfix"
)

// FuzzUnpack feeds arbitrary bytes. Whatever happens, the world outside the
// folder stays, the folder can be removed, and no attribute or device of
// overlayfs gets in that the layer asked for directly.
//
// Rate: 500/s, because each input makes a tree, which is read twice and removed.
func FuzzUnpack(f *testing.F) {
	for _, seed := range [][]any{
		{dirE("./"), dirE("a/"), fileE("a/b", "x"), hardE("c", "a/b"), linkE("d", "/a"), fileE("d/e", "y")},
		{fileE("../x", "x")}, {linkE("l", "../.."), fileE("l/canary", "x")},
		{linkE("l", "/in"), hardE("h", "l/canary")},
		{fileE("a/.wh.b", ""), fileE("a/.wh..wh..opq", ""), dirE("a/b/")}, {fileE(".wh...", "")},
		{tar.Header{Typeflag: tar.TypeChar, Name: "c"}, tar.Header{Typeflag: tar.TypeFifo, Name: "p", Mode: 0o4777}},
		{linkE("a", "b"), linkE("b", "a"), fileE("a/x", "")}, {fileE("a/.wh.b", "")},
		{dirE("d/"), fileE("d", ""), dirE("d/")},
	} {
		f.Add(layer(f, seed...))
	}
	x := fileE("x", "")
	x.PAXRecords = map[string]string{"SCHILY.xattr.user.overlay.opaque": "y", "SCHILY.xattr.user.a": "b",
		"GNU.sparse.major": "1"}
	f.Add(layer(f, x))
	c := newCage(f) // for all: that it stays as it is, is what is tested
	f.Fuzz(func(t *testing.T, stream []byte) {
		must(t, os.MkdirAll(c.root, 0o700))
		stream = tarfix.Checksums(stream)
		var stats Stats
		var err error
		cost.Once(t, len(stream), func() {
			stats, err = c.unpack(t, stream, Options{Limits: Limits{MaxBytes: 1 << 20, MaxEntries: 1000, MaxDepth: 100},
				SingleUID: true})
		})
		if err == nil && stats.Entries > 1000 {
			t.Errorf("%d entries", stats.Entries)
		}
		for p, s := range snapshot(t, c.root) {
			for _, x := range xattrs(filepath.Join(c.root, p)) {
				// The empty origin is on folders with whiteouts, see originXattr.
				if len(x) > 13 && x[:13] == "user.overlay." && x != `user.overlay.opaque="y"` &&
					x != `user.overlay.origin=""` {
					t.Errorf("%s has %s: %s", p, x, s)
				}
			}
		}
		dir, err := os.Open(filepath.Dir(c.root))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := rmtree.At(int(dir.Fd()), "root"); err != nil {
			t.Errorf("remove: %v", err)
		}
		if after := c.outside(t); len(after) != len(c.before) {
			t.Errorf("removing reached outside: %v", after)
		}
	})
}

func TestRemoveTree(t *testing.T) {
	c := newCage(t)
	// Deeper than there may be open files: made step by step.
	fd, err := unix.Open(c.root, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 300 {
		must(t, unix.Mkdirat(fd, "d", 0o700))
		must(t, unix.Mkdirat(fd, "e", 0o700))
		next, err := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
	}
	must(t, unix.Close(fd))
	must(t, os.Symlink(c.outer, filepath.Join(c.root, "out")))
	for i := range 1200 {
		must(t, os.WriteFile(filepath.Join(c.root, fmt.Sprint("f", i)), nil, 0o000))
	}
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	few := old
	few.Cur = 64
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	dir, err := os.Open(filepath.Dir(c.root))
	must(t, err)
	defer dir.Close()
	must(t, rmtree.At(int(dir.Fd()), "root"))
	if _, err := os.Lstat(c.root); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	must(t, rmtree.At(int(dir.Fd()), "root")) // nothing to do
	if after := c.outside(t); len(after) != len(c.before) {
		t.Errorf("removing reached outside: %v", after)
	}
}

// A sparse file of GNU tar keeps its holes, and its size is what counts.
func TestUnpackSparse(t *testing.T) {
	// The old GNU format: one data block at the end of a 1 MiB file.
	const size = 1 << 20
	h := make([]byte, 512)
	copy(h, "sparse")
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], "00000001000\x0000000000000\x00") // 512 bytes stored
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	copy(h[386:], "00003777000\x0000000001000\x00") // one piece at 1 MiB - 512
	copy(h[483:], "00004000000\x00")                // real size
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7),
		byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	stream := append(h, bytes.Repeat([]byte{'x'}, 512)...)
	stream = append(stream, make([]byte, 1024)...)

	c := newCage(t)
	stats, err := c.unpack(t, stream, Options{SingleUID: true})
	must(t, err)
	data, err := os.ReadFile(filepath.Join(c.root, "sparse"))
	must(t, err)
	want := append(make([]byte, size-512), bytes.Repeat([]byte{'x'}, 512)...)
	if !bytes.Equal(data, want) || stats.Bytes != size {
		t.Errorf("%d bytes, stats %+v", len(data), stats)
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(c.root, "sparse"), &st))
	if st.Blocks*512 > size/4 {
		t.Errorf("it takes %d bytes on disk", st.Blocks*512)
	}
	if _, err := newCage(t).
		unpack(t, stream, Options{Limits: Limits{MaxBytes: size - 1}, SingleUID: true}); err == nil {
		t.Error("holes do not count for the limit")
	}
}
