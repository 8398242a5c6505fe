package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	archive "github.com/moby/go-archive"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestPackLikeMoby packs random trees, made by neither side. What Docker's extractor makes
// of a layer of ours is the tree that was packed, and what Docker's packer writes is that
// tree for our extractor. What Docker's packer leaves out (fractions of seconds, attributes
// user.*, marks of opaque folders) is then not in the tree.
func TestPackLikeMoby(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Require(t, probe.Check{Name: "root", Status: probe.No,
			Detail: "the peer sets owners and trusted.* attributes", Remedy: "run the tests as root"})
	}
	for seed := range uint64(12) {
		ours := randomTree(t, rand.New(rand.NewPCG(seed, 13)), true)
		stream, stats := packDir(t, ours, PackOptions{})
		if stats.Nodes != 0 || stats.Xattrs != 0 {
			t.Fatalf("seed %d: left out %+v", seed, stats)
		}
		theirs := t.TempDir()
		must(t, archive.Unpack(bytes.NewReader(stream), theirs,
			&archive.TarOptions{WhiteoutFormat: archive.OverlayWhiteoutFormat}))
		sameTree(t, fmt.Sprintf("seed %d, packed here and unpacked by moby", seed), comparable(t, theirs),
			comparable(t, ours))

		plain := randomTree(t, rand.New(rand.NewPCG(seed, 17)), false)
		r, err := archive.TarWithOptions(plain, &archive.TarOptions{WhiteoutFormat: archive.OverlayWhiteoutFormat})
		must(t, err)
		packed, err := io.ReadAll(r)
		must(t, errors.Join(err, r.Close()))
		got, _ := unpackDir(t, packed, false)
		sameTree(t, fmt.Sprintf("seed %d, packed by moby and unpacked here", seed), comparable(t, got),
			comparable(t, plain))
		if t.Failed() {
			return
		}
	}
}

func sameTree(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got[p] != want[p] {
			t.Errorf("%s: %q is\n%q, was\n%q", what, p, tail(got[p]), tail(want[p]))
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s: %q is new: %q", what, p, tail(got[p]))
		}
	}
}

// tail is the end of a file's description, without most of its content.
func tail(s string) string { return s[max(0, len(s)-300):] }

// oddNames are what names may be, beside short and plain.
var oddNames = []string{
	"with space", " lead", "trail ", "new\nline", "quote\"'", "back\\slash", "ünïcödé", "\xff\xfe", "a=b", "..x", "x..",
	"...", "-r", "*", "%s",
	".wh", "wh.x", strings.Repeat("n", 99), strings.Repeat("n", 100), strings.Repeat("n", 101),
	strings.Repeat("é", 127), strings.Repeat("L", 255),
}

// randomTree makes some dozens of files of all kinds. full gives them what only our packer keeps.
func randomTree(t *testing.T, r *rand.Rand, full bool) string {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	folders, files := []string{dir}, []string(nil)
	fresh := func() string {
		for {
			name := fmt.Sprintf("n%d", r.IntN(1000))
			if r.IntN(3) == 0 {
				name = oddNames[r.IntN(len(oddNames))]
			}
			p := filepath.Join(folders[r.IntN(len(folders))], name)
			if _, err := os.Lstat(p); errors.Is(err, os.ErrNotExist) {
				return p
			}
		}
	}
	for range 20 + r.IntN(40) {
		p := fresh()
		switch k := r.IntN(12); {
		case k < 3:
			must(t, os.Mkdir(p, 0o755))
			folders = append(folders, p)
			if full && r.IntN(4) == 0 {
				must(t, unix.Setxattr(p, opaqueXattr, []byte("y"), 0))
			}
		case k < 7:
			content := make([]byte, []int{0, 1, 511, 512, 513, 5000, copyBuffer + 1}[r.IntN(7)])
			for i := range content {
				content[i] = byte(r.Uint32())
			}
			must(t, os.WriteFile(p, content, 0o600))
			files = append(files, p)
		case k == 7:
			holes(t, r, p)
			files = append(files, p)
		case k == 8:
			must(t, os.Symlink([]string{"/etc/passwd", "../x", "no\nwhere", strings.Repeat("t/", 200), "n1"}[r.IntN(5)],
				p))
		case k == 9 && len(files) > 0:
			must(t, os.Link(files[r.IntN(len(files))], p))
		case k == 10:
			must(t, unix.Mkfifo(p, 0o600))
		case k == 11:
			must(t, unix.Mknod(p, unix.S_IFCHR|0o600, 0))
		}
	}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && p != dir {
			randomAttributes(t, r, p, d.Type(), full)
		}
		return err
	}))
	// Times last, of what is below first: what is done below a folder changes its own.
	var all []string
	must(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error { all = append(all, p); return err }))
	for _, p := range slices.Backward(all) {
		at := time.Unix(int64(r.IntN(1_500_000_000)), 0)
		if full {
			at = at.Add(time.Duration(r.IntN(1e9)))
		}
		ts := timespec(at)
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, p, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
	}
	return dir
}

// randomAttributes gives a node owner, mode and extended attributes. A whiteout has none.
func randomAttributes(t *testing.T, r *rand.Rand, p string, kind os.FileMode, full bool) {
	if kind&os.ModeCharDevice != 0 {
		return
	}
	must(t, os.Lchown(p, []int{0, 1, 1000, 65_534, 70_000, 1 << 22}[r.IntN(6)], []int{0, 5, 70_000}[r.IntN(3)]))
	if kind&os.ModeSymlink != 0 {
		return
	}
	must(t, unix.Chmod(p, []uint32{0o644, 0o755, 0o600, 0o4755, 0o2711, 0o1777, 0o000, 0o7777}[r.IntN(8)]))
	if kind.IsRegular() && r.IntN(4) == 0 {
		must(t, unix.Setxattr(p, capabilityXattr, []byte("\x01\x00\x00\x02\x00\x04"+strings.Repeat("\x00", 14)), 0))
	}
	// After the mark of opaque folders, whose other name of the peer sorts before all.
	if full && (kind.IsRegular() || kind.IsDir()) && r.IntN(3) == 0 {
		must(t, unix.Setxattr(p, []string{"user.z", "user.zünï", "user.z.b.c"}[r.IntN(3)],
			[]byte([]string{"v", "a\x00b\nc=d", strings.Repeat("z", 900)}[r.IntN(3)]), 0))
	}
}

// holes makes a file with holes in it, perhaps at its end.
func holes(t *testing.T, r *rand.Rand, p string) {
	f, err := os.Create(p)
	must(t, err)
	for range r.IntN(4) {
		_, err = f.WriteAt([]byte("data"), int64(r.IntN(1<<19)))
		must(t, err)
	}
	must(t, errors.Join(f.Truncate(int64(r.IntN(1<<20))), f.Close()))
}

// TestPackHardLinks: each name of a file says all that there is of it, an owner that is
// kept in an attribute included.
func TestPackHardLinks(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644))
	for name, value := range map[string]string{OwnerXattr: "5:6", "user.k": "v"} {
		must(t, unix.Setxattr(filepath.Join(dir, "a"), name, []byte(value), 0))
	}
	must(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")))
	stream, _ := packDir(t, dir, PackOptions{SingleUID: true, Implied: []string{""}})
	names := 0
	for r := tar.NewReader(bytes.NewReader(stream)); ; names++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Uid != 5 || h.Gid != 6 || h.PAXRecords[paxXattr+"user.k"] != "v" {
			t.Errorf("%s of type %c: owner %d:%d, %q", h.Name, h.Typeflag, h.Uid, h.Gid, h.PAXRecords)
		}
	}
	if names != 2 {
		t.Errorf("%d names", names)
	}
}
