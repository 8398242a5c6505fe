package unpack

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var stamp = time.Unix(1_600_000_000, 0)

// Short forms of headers. Content is the file's size in zeros or its text.
func dirE(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: stamp}
}

func fileE(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: stamp, Size: int64(len(content))},
		content}
}

func linkE(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777, ModTime: stamp}
}

func hardE(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, ModTime: stamp}
}

type entry struct {
	tar.Header
	content string
}

// layer writes a tar stream of entries, each an entry or a tar.Header.
func layer(t testing.TB, entries ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		var h tar.Header
		var content string
		switch e := e.(type) {
		case tar.Header:
			h = e
		case entry:
			h, content = e.Header, e.content
		}
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// cage is a folder to unpack into, inside one that must not change.
type cage struct {
	outer, root string
	before      map[string]string
}

func newCage(t testing.TB) *cage {
	t.Helper()
	c := &cage{outer: t.TempDir()}
	t.Cleanup(func() { // else an ordinary user cannot remove read-only folders
		_ = filepath.WalkDir(c.outer, func(p string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(p, 0o700)
			}
			return nil
		})
	})
	c.root = filepath.Join(c.outer, "in", "root")
	must(t, os.MkdirAll(c.root, 0o700))
	for _, p := range []string{"canary", "in/canary", "in/etc/passwd"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(c.outer, p)), 0o755))
		must(t, os.WriteFile(filepath.Join(c.outer, p), []byte("untouched"), 0o644))
	}
	c.before = c.outside(t)
	return c
}

func (c *cage) outside(t testing.TB) map[string]string {
	return snapshot(t, c.outer, c.root)
}

// unpack unpacks and checks that nothing outside changed, and that the manifest says what there is.
func (c *cage) unpack(t testing.TB, stream []byte, opts Options) (Stats, error) {
	t.Helper()
	root, err := os.Open(c.root)
	must(t, err)
	defer root.Close()
	var recorded, read bytes.Buffer
	opts.Manifest = &recorded
	stats, err := Unpack(root, bytes.NewReader(stream), opts)
	if err == nil && os.Geteuid() == 0 { // others cannot read all of it
		must(t, WriteManifest(t.Context(), &read, nil, root, Checksums(t.Context()), nil))
		if recorded.String() != read.String() {
			t.Errorf("recorded\n%s\nread\n%s", recorded.String(), read.String())
		}
	}
	if after := c.outside(t); !maps.Equal(after, c.before) {
		t.Errorf("the world outside changed:\n%v\n%v", c.before, after)
	}
	return stats, err
}

// snapshot describes a tree: path -> type, mode, owner, time, content, links
// and attributes. Nodes with several names are told by their first name.
func snapshot(t testing.TB, dir string, without ...string) map[string]string {
	t.Helper()
	m := make(map[string]string)
	first := make(map[uint64]string)
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(without, p) {
			return fs.SkipDir
		}
		rel := strings.TrimPrefix(p, dir)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		s := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			s += " -> " + to
		case unix.S_IFREG:
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			s += fmt.Sprintf(" %q", data)
		case unix.S_IFCHR:
			s += fmt.Sprintf(" dev %d", st.Rdev)
		}
		if st.Nlink > 1 && !d.IsDir() {
			if one, ok := first[st.Ino]; ok {
				s += " = " + one
			} else {
				first[st.Ino] = rel
			}
		}
		for _, x := range xattrs(p) {
			s += " " + x
		}
		m[rel] = s
		return nil
	}))
	return m
}

// xattrs lists name=value of a node's attributes, sorted.
func xattrs(p string) []string {
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(p, buf)
	if err != nil {
		return nil
	}
	var all []string
	for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
		if len(name) == 0 {
			continue
		}
		v := make([]byte, 4096)
		if n, err := unix.Lgetxattr(p, string(name), v); err == nil {
			all = append(all, fmt.Sprintf("%s=%q", name, v[:n]))
		}
	}
	slices.Sort(all)
	return all
}

var (
	noOwner   = regexp.MustCompile(`^(\d+) \d+:\d+`)
	keptOwner = regexp.MustCompile(` user\.hutch\.owner="[0-9:]+"`)
)

func TestUnpack(t *testing.T) {
	single := os.Geteuid() != 0 // an ordinary user cannot chown; root's run covers it
	setuid := fileE("bin/su", "elf")
	setuid.Mode, setuid.Uid, setuid.Gid = 0o4755, 7, 8
	ro := dirE("ro/")
	ro.Mode = 0o555
	withXattr := fileE("x", "")
	withXattr.PAXRecords = map[string]string{
		"SCHILY.xattr.user.mine": "\x00v", "SCHILY.xattr.user.overlay.redirect": "/etc",
		"SCHILY.xattr.trusted.overlay.opaque": "y",
		"SCHILY.xattr.user.hutch.owner":       "0:0", "SCHILY.xattr.security.selinux": "x",
	}
	tests := []struct {
		name    string
		entries []any
		want    map[string]string // path -> snapshot; absent paths are not looked at
		absent  []string
	}{
		{"files", []any{dirE("./"), dirE("bin/"), setuid, fileE("/abs", "a"), fileE("./odd:,\n\xff", "b")},
			map[string]string{
				"": "40755 0:0", "/bin": "40755 0:0", "/bin/su": `104755 7:8 "elf"`, "/abs": `100644 0:0 "a"`,
				"/odd:,\n\xff": `100644 0:0 "b"`,
			}, nil},
		{"implied parents", []any{fileE("a/b/c", "x")}, map[string]string{"/a": "40755 0:0", "/a/b": "40755 0:0",
			"/a/b/c": `100644 0:0 "x"`}, nil},
		{"read-only folder gets its content", []any{ro, fileE("ro/f", "x")},
			map[string]string{"/ro": "40555 0:0", "/ro/f": `100644 0:0 "x"`}, nil},
		{"attributes", []any{withXattr}, map[string]string{"/x": `100644 0:0 "" user.mine="\x00v"`}, nil},
		{"devices are left out", []any{
			tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3},
			tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda"},
			tar.Header{Typeflag: tar.TypeChar, Name: "etc/passwd"}, // 0:0 would be a whiteout
			tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o622, Uid: 5},
		}, map[string]string{"/fifo": "10622 5:0"}, []string{"/dev/null", "/dev/sda", "/etc/passwd"}},
		{"links", []any{fileE("a", "x"), hardE("b", "/a"), linkE("l", "a"), hardE("l2", "l"), hardE("a", "a"),
			hardE("b", "a")}, map[string]string{
			"/a": `100644 0:0 "x"`, "/b": `100644 0:0 "x" = /a`, "/l": "120777 0:0 -> a", "/l2": "120777 0:0 -> a = /l",
		}, nil},
		{"parent is a symlink of the layer", []any{linkE("lib", "/usr/lib"), dirE("usr/lib/"), fileE("lib/x", "x"),
			linkE("up", "../../usr"), fileE("up/y", "y")}, map[string]string{
			"/usr/lib/x": `100644 0:0 "x"`, "/usr/y": `100644 0:0 "y"`, "/lib": "120777 0:0 -> /usr/lib",
		}, nil},
		{"later entries win", []any{
			fileE("f", "old"), fileE("f", "new"), dirE("d/"), fileE("d/x", "x"), fileE("d", "file"), fileE("e", "file"),
			dirE("e/"), fileE("e/y", "y"),
			dirE("keep/"), fileE("keep/z", "z"), tar.Header{Typeflag: tar.TypeDir, Name: "keep", Mode: 0o700},
			linkE("s", "keep"), dirE("s/"), fileE("s/q", "q"),
		}, map[string]string{
			"/f": `100644 0:0 "new"`, "/d": `100644 0:0 "file"`, "/e/y": `100644 0:0 "y"`, "/keep": "40700 0:0",
			"/keep/z": `100644 0:0 "z"`, "/s/q": `100644 0:0 "q"`,
		}, []string{"/keep/q"}},
		{"whiteouts", []any{
			fileE("a/.wh.gone", ""), fileE("o/.wh..wh..opq", ""), fileE("o/new", "n"), fileE(".wh..wh.plnk", ""),
			fileE("mine", "m"), fileE(".wh.mine", ""), // about lower layers: mine stays
			fileE(".wh.again", ""), fileE("again/x", "x"), dirE("was/"), fileE(".wh.was", ""), fileE(".wh.file", ""),
			fileE("file", "f"),
			fileE("both/.wh.x", ""), fileE("both/.wh..wh..opq", ""),
		}, map[string]string{
			"/a/gone": "20600 0:0 dev 0", "/o": `40755 0:0 user.overlay.opaque="y"`, "/o/new": `100644 0:0 "n"`,
			"/mine":  `100644 0:0 "m"`,
			"/again": `40755 0:0 user.overlay.opaque="y"`, "/was": `40755 0:0 user.overlay.opaque="y"`,
			"/file": `100644 0:0 "f"`,
			"/both": `40755 0:0 user.overlay.opaque="y"`,
		}, []string{"/.wh..wh.plnk", "/both/x"}},
		{"whiteout through a symlink stays inside", []any{linkE("l", "/etc"), dirE("etc/"), fileE("l/.wh.passwd", ""),
			fileE("l/.wh..wh..opq", "")}, map[string]string{
			"/etc": `40755 0:0 user.overlay.opaque="y"`, "/l": "120777 0:0 -> /etc",
		}, nil},
		{"a global header says nothing about files", []any{
			tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g", PAXRecords: map[string]string{"path": "other",
				"size": "1", "comment": "c"}}, fileE("f", "text"),
		}, map[string]string{"/f": `100644 0:0 "text"`}, []string{"/g", "/other"}},
		{"overwrite through a hard link", []any{fileE("a", "old"), hardE("b", "a"), fileE("b", "new")},
			map[string]string{"/a": `100644 0:0 "old"`, "/b": `100644 0:0 "new"`}, nil},
		{"overwrite through a symlink", []any{linkE("l", "../canary"), fileE("l", "new")},
			map[string]string{"/l": `100644 0:0 "new"`}, nil},
		{"absolute and climbing symlinks stay inside", []any{
			linkE("abs", "/"), fileE("abs/in/canary", "x"), linkE("up", "../../.."), fileE("up/canary", "y"),
			linkE("proc", "/proc/self/root"),
		}, map[string]string{"/in/canary": `100644 0:0 "x"`, "/canary": `100644 0:0 "y"`}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old := unix.Umask(0o077)
			c := newCage(t)
			_, err := c.unpack(t, layer(t, tt.entries...), Options{SingleUID: single})
			unix.Umask(old)
			must(t, err)
			got := snapshot(t, c.root)
			for p, want := range tt.want {
				if single {
					got[p] = noOwner.ReplaceAllString(got[p], "$1 U:G")
					want = noOwner.ReplaceAllString(want, "$1 U:G")
					got[p] = keptOwner.ReplaceAllString(got[p], "")
				}
				if got[p] != want {
					t.Errorf("%q is %s, want %s", p, got[p], want)
				}
			}
			for _, p := range tt.absent {
				if have, ok := got[p]; ok {
					t.Errorf("%q was made: %s", p, have)
				}
			}
		})
	}
}

func TestUnpackRefuses(t *testing.T) {
	deep := strings.Repeat("d/", 2100) + "f"
	long := strings.Repeat(strings.Repeat("n", 200)+"/", 25) + "f"
	tests := []struct {
		name    string
		entries []any
		want    error
	}{
		{"climbing name", []any{fileE("../canary", "x")}, ErrUnsafe},
		{"climbing in the middle", []any{dirE("a/"), fileE("a/../../canary", "x")}, ErrUnsafe},
		{"root is a symlink", []any{linkE("./", "/")}, ErrUnsafe},
		{"root is a file", []any{fileE(".", "x")}, ErrUnsafe},
		{"root is a hard link", []any{fileE("a", ""), hardE("/", "a")}, ErrUnsafe},
		{"hard link climbs", []any{hardE("l", "../canary")}, ErrUnsafe},
		{"hard link through a symlink", []any{linkE("s", "/in"), hardE("l", "s/canary")}, ErrUnsafe},
		{"hard link to a folder", []any{dirE("d/"), hardE("l", "d")}, ErrUnsafe},
		{"hard link to the root", []any{hardE("l", "/")}, ErrUnsafe},
		{"hard link to a whiteout", []any{fileE(".wh.x", ""), hardE("l", "x")}, ErrUnsafe},
		{"hard link below a file", []any{fileE("f", ""), hardE("l", "f/x")}, ErrUnsafe},
		{"hard link by way of a symlink to a lower layer",
			[]any{linkE("s", "d"), dirE("d/"), hardE("s/l", "lower-layer")}, ErrUnsafe},
		{"whiteout of nothing", []any{fileE("a/.wh.", "")}, ErrUnsafe},
		{"whiteout of .", []any{fileE("a/.wh..", "")}, ErrUnsafe},
		{"whiteout of ..", []any{fileE("a/.wh...", "")}, ErrUnsafe},
		{"folder named like a whiteout", []any{fileE(".wh.d/f", "")}, ErrUnsafe},
		{"parent is a file", []any{fileE("f", ""), fileE("f/x", "")}, ErrUnsafe},
		{"parent leads nowhere", []any{linkE("l", "/nowhere"), fileE("l/x", "")}, ErrUnsafe},
		{"parent is a loop", []any{linkE("a", "b"), linkE("b", "a"), fileE("a/x", "")}, ErrUnsafe},
		{"symlink to nothing", []any{linkE("l", "")}, ErrUnsafe},
		{"deep path", []any{fileE(deep, "x")}, ErrLimit},
		{"long path", []any{fileE(long, "x")}, ErrLimit},
		{"unknown type", []any{tar.Header{Typeflag: 'Q', Name: "q"}}, ErrUnsafe},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCage(t)
			_, err := c.unpack(t, layer(t, tt.entries...), Options{SingleUID: true})
			var e *EntryError
			if !errors.Is(err, tt.want) || !errors.As(err, &e) {
				t.Errorf("error %v, want an EntryError that is %v", err, tt.want)
			}
		})
	}
}

func TestUnpackRefusesNoOwner(t *testing.T) {
	for _, id := range []int{-1, -2, 1<<32 - 1, 1 << 40} {
		f := fileE("f", "")
		f.Uid = id
		f.Format = tar.FormatGNU // base-256 numbers, which may be negative
		if _, err := newCage(t).unpack(t, layer(t, f), Options{}); !errors.Is(err, ErrUnsafe) {
			t.Errorf("uid %d: %v", id, err)
		}
	}
}

func TestUnpackLimits(t *testing.T) {
	big := fileE("big", strings.Repeat("x", 5000))
	tests := []struct {
		name   string
		limits Limits
		layer  []any
	}{
		{"entries", Limits{MaxEntries: 2}, []any{fileE("a", ""), fileE("b", ""), fileE("c", "")}},
		{"implied folders count", Limits{MaxEntries: 3}, []any{fileE("a/b/c/d", "")}},
		{"a file", Limits{MaxFileBytes: 4999}, []any{big}},
		{"all files", Limits{MaxBytes: 4999}, []any{big}},
		{"the stream", Limits{MaxBytes: 1000}, []any{fileE("a", "")}},
		{"depth", Limits{MaxDepth: 2}, []any{fileE("a/b/c", "")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := newCage(t).
				unpack(t, layer(t, tt.layer...), Options{Limits: tt.limits, SingleUID: true}); !errors.Is(err,
				ErrLimit) {
				t.Errorf("error %v, want %v", err, ErrLimit)
			}
			if _, err := newCage(t).unpack(t, layer(t, tt.layer...), Options{SingleUID: true}); err != nil {
				t.Errorf("with the default limits: %v", err)
			}
		})
	}
}

func TestLimitsForCompressed(t *testing.T) {
	l := Limits{MaxBytes: 1000, MaxRatio: 10, RatioFloorBytes: 100}.WithDefaults()
	for n, want := range map[int64]int64{-1: 100, 0: 100, 5: 100, 11: 110, 50: 500, 100: 1000, 1 << 62: 1000} {
		if got := l.ForCompressed(n).MaxBytes; got != want {
			t.Errorf("ForCompressed(%d) = %d, want %d", n, got, want)
		}
	}
	if got := DefaultLimits.ForCompressed(2 << 20).MaxBytes; got >= 2<<30 {
		t.Errorf("2 MB may become %d bytes", got)
	}
}

func TestUnpackTruncated(t *testing.T) {
	stream := layer(t, dirE("d/"), fileE("d/a", strings.Repeat("x", 2000)), fileE("d/b", "y"))
	for _, n := range []int{100, 700, 1600, 3000} {
		c := newCage(t)
		if _, err := c.unpack(t, stream[:n], Options{SingleUID: true}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: error %v, want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestUnpackReadsToTheEnd(t *testing.T) {
	stream := append(layer(t, fileE("a", "x")), bytes.Repeat([]byte{7}, 100_000)...)
	r := bytes.NewReader(stream)
	c := newCage(t)
	root, err := os.Open(c.root)
	must(t, err)
	defer root.Close()
	_, err = Unpack(root, r, Options{SingleUID: true})
	must(t, err)
	if r.Len() != 0 {
		t.Errorf("%d bytes were not read", r.Len())
	}
}

func TestUnpackStats(t *testing.T) {
	x := fileE("x", "12345")
	x.PAXRecords = map[string]string{"SCHILY.xattr.user.overlay.opaque": "y",
		"SCHILY.xattr.system.posix_acl_access": "z"}
	c := newCage(t)
	got, err := c.unpack(t, layer(t, dirE("d/"), x, hardE("y", "x"), fileE("i/j/k", "1"),
		tar.Header{Typeflag: tar.TypeChar, Name: "c"}, fileE(".wh..wh..opq", "")), Options{SingleUID: true})
	must(t, err)
	if got.Bytes != 6 || got.Devices != 1 || got.Xattrs != 1 || got.OverlayXattrs != 1 || !got.RootOpaque ||
		got.Entries != 8 ||
		!slices.Equal(got.Implied, []string{"", "i", "i/j"}) {
		t.Errorf("stats %+v", got)
	}
}

// TestEmptyCapability: an attribute that the kernel takes and does not read again says nothing, and spoils no image.
func TestEmptyCapability(t *testing.T) {
	x := fileE("x", "12345")
	x.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "", "SCHILY.xattr.user.a": "b"}
	c := newCage(t)
	got, err := c.unpack(t, layer(t, x), Options{SingleUID: true})
	must(t, err)
	if got.Xattrs != 1 {
		t.Errorf("stats %+v", got)
	}
	if _, err := unix.Lgetxattr(filepath.Join(c.root, "x"), "security.capability", nil); !errors.Is(err, unix.ENODATA) {
		t.Errorf("the attribute: %v", err)
	}
}

func TestUnpackTimes(t *testing.T) {
	c := newCage(t)
	f := fileE("d/f", "x")
	f.ModTime = time.Unix(1_500_000_000, 123456789)
	f.Format = tar.FormatPAX
	l := linkE("d/l", "f")
	_, err := c.unpack(t, layer(t, dirE("d/"), f, l), Options{SingleUID: true})
	must(t, err)
	for p, want := range map[string]time.Time{"d": stamp, "d/f": f.ModTime, "d/l": stamp} {
		st, err := os.Lstat(filepath.Join(c.root, p))
		must(t, err)
		if !st.ModTime().Equal(want) {
			t.Errorf("%s has time %v, want %v", p, st.ModTime(), want)
		}
	}
}
