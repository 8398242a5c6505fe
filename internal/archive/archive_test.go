package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/internal/testenv/tarfix"
)

// folderFD opens a folder for the test.
func folderFD(t testing.TB, path string) int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

// archiveOf makes a tar archive.
func archiveOf(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range headers {
		h := headers[i]
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Size = "content of "+h.Name, int64(len("content of "+h.Name))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &out
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
func dir(name string) tar.Header  { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
func link(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}
func hard(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}
func typed(name string, kind byte) tar.Header { return tar.Header{Typeflag: kind, Name: name} }

// TestRoundTrip: what is packed and unpacked is the same tree.
func TestRoundTrip(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	long := strings.Repeat("long", 40)
	steps := []error{
		os.MkdirAll(filepath.Join(from, "sub", "deep", long), 0o755),
		os.WriteFile(filepath.Join(from, "a"), []byte("text"), 0o640),
		os.WriteFile(filepath.Join(from, "sub", "big"), bytes.Repeat([]byte("0123456789"), 100_000), 0o600),
		os.WriteFile(filepath.Join(from, "sub", "deep", long, "\xff odd\nname"), nil, 0o755),
		os.Link(filepath.Join(from, "a"), filepath.Join(from, "sub", "hard")),
		os.Symlink("../a", filepath.Join(from, "sub", "soft")),
		os.Symlink("/nowhere", filepath.Join(from, "dangling")),
		unix.Mkfifo(filepath.Join(from, "fifo"), 0o600),
		os.Chmod(filepath.Join(from, "sub"), 0o500),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(from, "sub"), 0o700)
	var out bytes.Buffer
	stats, err := Pack(t.Context(), &out, folderFD(t, from), ".", "")
	if err != nil || stats.Skipped != 1 || stats.Entries != 10 || stats.Names[0] != "fifo" {
		t.Fatalf("%+v, %v", stats, err)
	}
	got, err := Unpack(t.Context(), &out, folderFD(t, to), Options{})
	if err != nil || got.Entries != stats.Entries || got.Bytes != stats.Bytes {
		t.Fatalf("%+v, %v; packed %+v", got, err, stats)
	}
	defer os.Chmod(filepath.Join(to, "sub"), 0o700)
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "fifo" || path == from {
			return err
		}
		other := strings.Replace(path, from, to, 1)
		var a, b unix.Stat_t
		if err := errors.Join(unix.Lstat(path, &a), unix.Lstat(other, &b)); err != nil {
			t.Error(err)
			return nil
		}
		if a.Mode != b.Mode || a.Nlink != b.Nlink || a.Mode&unix.S_IFMT != unix.S_IFLNK && a.Mtim.Sec != b.Mtim.Sec {
			t.Errorf("%s: %o %d %d, was %o %d %d", other, b.Mode, b.Nlink, b.Mtim.Sec, a.Mode, a.Nlink, a.Mtim.Sec)
		}
		if d.Type().IsRegular() {
			x, _ := os.ReadFile(path)
			y, _ := os.ReadFile(other)
			if !bytes.Equal(x, y) {
				t.Errorf("%s: %d bytes differ from %d", other, len(y), len(x))
			}
		}
		if d.Type()&fs.ModeSymlink != 0 {
			x, _ := os.Readlink(path)
			if y, _ := os.Readlink(other); x != y {
				t.Errorf("%s leads to %s, not %s", other, y, x)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Equal trees, equal archives; one file has the name that was asked for.
	out.Reset()
	if _, err := Pack(t.Context(), &out, folderFD(t, from), "a", "b"); err != nil {
		t.Fatal(err)
	}
	if h, err := tar.NewReader(&out).Next(); err != nil || h.Name != "b" || h.Size != 4 || h.Mode != 0o640 {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestHostile: an archive of a sandbox changes nothing outside, and makes nothing
// that would lead a reader there.
func TestHostile(t *testing.T) {
	tests := map[string]struct {
		entries []tar.Header
		refused bool     // hostile or not
		strict  bool     // refused when hostile
		made    []string // else, when hostile: what there is then
		skipped int64    // when hostile
	}{
		"up":            {entries: []tar.Header{file("../out")}, refused: true},
		"up inside":     {entries: []tar.Header{dir("a"), file("a/../../out")}, refused: true},
		"absolute":      {entries: []tar.Header{file("/abs")}, strict: true},
		"hard out":      {entries: []tar.Header{hard("a", "../../etc/passwd")}, refused: true},
		"hard existing": {entries: []tar.Header{hard("a", "existing")}, strict: true},
		"hard made":     {entries: []tar.Header{file("x"), hard("a", "x")}, made: []string{"a", "existing", "x"}},
		"hard to link":  {entries: []tar.Header{link("l", "existing"), hard("a", "l")}, refused: true},
		"link out":      {entries: []tar.Header{link("l", "/etc/passwd")}, made: []string{"existing"}, skipped: 1},
		"link up": {entries: []tar.Header{dir("d"), link("d/l", "../../x")}, made: []string{"d", "existing"},
			skipped: 1},
		"link around": {entries: []tar.Header{link("a", "."), link("b", "a/..")}, made: []string{"a", "existing"},
			skipped: 1},
		"link inside": {entries: []tar.Header{dir("d"), link("d/l", "../existing")},
			made: []string{"d", "d/l", "existing"}},
		"through link":   {entries: []tar.Header{dir("d"), link("l", "d"), file("l/x")}, strict: true},
		"through outer":  {entries: []tar.Header{file("outer/x")}, refused: true},
		"folder on file": {entries: []tar.Header{dir("existing")}, refused: true},
		"file on folder": {entries: []tar.Header{dir("d"), file("d")}, refused: true},
		"replaces":       {entries: []tar.Header{file("existing"), file("existing")}, made: []string{"existing"}},
		"devices": {entries: []tar.Header{typed("c", tar.TypeChar), typed("b", tar.TypeBlock),
			typed("f", tar.TypeFifo)},
			made: []string{"existing"}, skipped: 3},
		"deep": {entries: []tar.Header{file(strings.Repeat("d/", maxDepth+1) + "x")}, refused: true},
		"many": {entries: []tar.Header{file("1"), file("2"), file("3"), file("4"), file("5")}, strict: true},
		"large": {entries: []tar.Header{file(strings.Repeat("x", 90)), file(strings.Repeat("y", 90))},
			strict: true},
		"no folder":    {entries: []tar.Header{file("n/o/f")}, made: []string{"existing", "n", "n/o", "n/o/f"}},
		"itself":       {entries: []tar.Header{dir("./"), file("./a")}, made: []string{"a", "existing"}},
		"file itself":  {entries: []tar.Header{file(".")}, refused: true},
		"link replace": {entries: []tar.Header{link("l", "existing"), file("l")}, made: []string{"existing", "l"}},
	}
	for name, tt := range tests {
		for _, hostile := range []bool{true, false} {
			top := t.TempDir()
			to := filepath.Join(top, "to")
			outer := filepath.Join(top, "outer")
			err := errors.Join(os.Mkdir(to, 0o755), os.Mkdir(outer, 0o755),
				os.WriteFile(filepath.Join(to, "existing"), []byte("kept"), 0o600))
			if name == "through outer" {
				err = errors.Join(err, os.Symlink(outer, filepath.Join(to, "outer")))
			}
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{Hostile: hostile}
			if hostile {
				opts.MaxEntries, opts.MaxBytes = 4, 150
			}
			stats, err := Unpack(t.Context(), archiveOf(t, tt.entries...), folderFD(t, to), opts)
			if refused := tt.refused || hostile && tt.strict; refused != (err != nil) {
				t.Errorf("%s, hostile %v: %v", name, hostile, err)
			}
			if hostile && !tt.refused && !tt.strict {
				if got := tree(t, to); strings.Join(got, " ") != strings.Join(tt.made, " ") {
					t.Errorf("%s: made %v, want %v", name, got, tt.made)
				}
				if stats.Skipped != tt.skipped {
					t.Errorf("%s: skipped %v", name, stats)
				}
			}
			if got := tree(t, outer); len(got) != 0 {
				t.Errorf("%s: outside is %v", name, got)
			}
			if got := tree(t, top); !contains(got, "outer") || contains(got, "out") || contains(got, "x") {
				t.Errorf("%s: above is %v", name, got)
			}
		}
	}
}

// TestPackRoot: a root file system takes its owners, attributes and fifos along.
func TestPackRoot(t *testing.T) {
	from := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(from, "a"), []byte("x"), 0o600),
		unix.Mkfifo(filepath.Join(from, "fifo"), 0o600),
		unix.Setxattr(filepath.Join(from, "a"), "user.mine", []byte("value"), 0))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := PackRoot(t.Context(), &out, folderFD(t, from),
		func(_, _ uint32) (int, int) { return 7, 8 }); err != nil {
		t.Fatal(err)
	}
	got := map[string]*tar.Header{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		if h.Uid != 7 || h.Gid != 8 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		got[h.Name] = h
	}
	if len(got) != 3 || got["fifo"].Typeflag != tar.TypeFifo ||
		got["a"].PAXRecords[xattrPrefix+"user.mine"] != "value" {
		t.Errorf("packed %v", got)
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// tree lists what is below a folder.
func tree(t testing.TB, top string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if path != top {
			list = append(list, strings.TrimPrefix(path, top+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestNames: folders whose names alone fill the memory are refused.
func TestNames(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		tw := tar.NewWriter(w)
		for i := 0; ; i++ {
			h := dir(strings.Repeat(strings.Repeat("n", 250)+"/", 14) + strconv.Itoa(i))
			h.Mode = 0o755
			if err := tw.WriteHeader(&h); err != nil {
				return
			}
		}
	}()
	_, err := Unpack(t.Context(), r, folderFD(t, t.TempDir()), Options{Hostile: true})
	_ = r.Close()
	if !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

// TestModes: setuid bits stay in the sandbox, and the owner keeps access.
func TestModes(t *testing.T) {
	entries := []tar.Header{{Typeflag: tar.TypeDir, Name: "d", Mode: 0o2000},
		{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o6755}}
	for hostile, want := range map[bool][2]uint32{true: {0o700, 0o755}, false: {0o2000, 0o6755}} {
		to := t.TempDir()
		if _, err := Unpack(t.Context(), archiveOf(t, entries...), folderFD(t, to),
			Options{Hostile: hostile}); err != nil {
			t.Fatal(err)
		}
		var d, f unix.Stat_t
		if err := unix.Stat(filepath.Join(to, "d"), &d); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(to, "d"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Stat(filepath.Join(to, "d/f"), &f); err != nil {
			t.Fatal(err)
		}
		// Whoever is not in a file's group cannot make it setgid (chmod(2)).
		if got := [2]uint32{d.Mode & 0o7777, f.Mode & 0o7777}; got != want && (hostile || os.Geteuid() == 0) {
			t.Errorf("hostile %v: modes %o, want %o", hostile, got, want)
		}
	}
}

// TestRace: while files are packed and unpacked, somebody swaps folders for links
// that lead out. Nothing is made or read there.
func TestRace(t *testing.T) {
	top := t.TempDir()
	to, outer := filepath.Join(top, "to"), filepath.Join(top, "outer")
	err := errors.Join(os.MkdirAll(filepath.Join(to, "d"), 0o755), os.Mkdir(outer, 0o755),
		os.WriteFile(filepath.Join(outer, "secret"), []byte("secret"), 0o600),
		os.Symlink(outer, filepath.Join(to, "l")))
	if err != nil {
		t.Fatal(err)
	}
	fd := folderFD(t, to)
	ctx, stop := context.WithCancelCause(t.Context())
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for ctx.Err() == nil {
			_ = unix.Renameat2(fd, "d", fd, "l", unix.RENAME_EXCHANGE)
		}
	}()
	for range 300 {
		stream := archiveOf(t, dir("d"), file("d/a"), file("d/b"), file("d/e/f"))
		_, _ = Unpack(t.Context(), stream, fd, Options{Hostile: true})
		_, _ = Unpack(t.Context(), archiveOf(t, dir("d"), file("d/a"), file("d/b"), file("d/e/f")), fd, Options{})
		var out bytes.Buffer
		_, _ = Pack(t.Context(), &out, fd, ".", "")
		if bytes.Contains(out.Bytes(), []byte("secret")) {
			t.Fatal("the archive has a file from outside")
		}
	}
	stop(nil)
	<-swapped
	if got := tree(t, outer); len(got) != 1 {
		t.Errorf("outside is %v", got)
	}
}

// TestPackCancel: a call that is cancelled packs no more.
func TestPackCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := Pack(ctx, io.Discard, folderFD(t, t.TempDir()), ".", ""); err == nil || err.Error() != "enough" {
		t.Errorf("got %v", err)
	}
	if _, err := Unpack(ctx, archiveOf(t, file("a")), folderFD(t, t.TempDir()), Options{}); err == nil ||
		err.Error() != "enough" {
		t.Errorf("got %v", err)
	}
}

// FuzzUnpack: no archive makes anything outside, or a link that leads there.
func FuzzUnpack(f *testing.F) {
	f.Add(archiveOf(f, dir("d"), file("d/a"), link("d/l", "../x"), hard("h", "d/a")).Bytes())
	f.Add(archiveOf(f, file("../x"), link("a", "."), link("b", "a/..")).Bytes())
	top := f.TempDir() // for all: each input's folder is removed
	f.Fuzz(func(t *testing.T, data []byte) {
		to := filepath.Join(top, "a", "b")
		if err := os.MkdirAll(to, 0o755); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.RemoveAll(filepath.Join(top, "a")); err != nil {
				t.Error(err)
			}
		}()
		data = tarfix.Checksums(data)
		into := folderFD(t, to)
		cost.Once(t, len(data), func() {
			_, _ = Unpack(t.Context(), bytes.NewReader(data), into,
				Options{Hostile: true, MaxEntries: 100, MaxBytes: 1 << 20})
		})
		_ = filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeSymlink != 0 {
				if real, err := filepath.EvalSymlinks(path); err == nil && real != to &&
					!strings.HasPrefix(real, to+"/") {
					t.Errorf("%s leads to %s", path, real)
				}
			}
			return nil
		})
		if got := tree(t, top); len(got) < 2 || got[0] != "a" || got[1] != "a/b" {
			t.Errorf("made %v", got)
		}
		for _, name := range tree(t, top) {
			if name != "a" && name != "a/b" && !strings.HasPrefix(name, "a/b/") {
				t.Errorf("made %s", name)
			}
		}
	})
}
