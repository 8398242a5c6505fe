package treecopy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/internal/rmtree"
	"github.com/hutch-sh/hutch/internal/sys"
)

func open2(t testing.TB, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func tree(t testing.TB, src, dst string) (diskuse.Usage, error) {
	t.Helper()
	return Tree(t.Context(), open2(t, src), open2(t, dst))
}

var unixTime = time.Unix(1_000_000_000, 123)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// describe lists what is below dir.
func describe(t testing.TB, dir string) string {
	t.Helper()
	var text strings.Builder
	inodes := map[uint64]int{}
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		if inodes[st.Ino] == 0 {
			inodes[st.Ino] = len(inodes) + 1
		}
		target, _ := os.Readlink(path)
		value := make([]byte, 64)
		n, _ := unix.Lgetxattr(path, "user.x", value)
		opaque, _ := unix.Lgetxattr(path, "user.overlay.opaque", value[max(0, n):])
		rel, _ := filepath.Rel(dir, path)
		size := st.Size
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			size = 0
		}
		fmt.Fprintf(&text, "%s %o %d:%d %d %d #%d %d.%d %q %d %d\n", rel, st.Mode, st.Uid, st.Gid, size, st.Rdev,
			inodes[st.Ino], st.Mtim.Sec, st.Mtim.Nsec, target, n, opaque)
		return nil
	}))
	return text.String()
}

// TestTree: what is copied, with all that belongs to it, and what is not.
func TestTree(t *testing.T) {
	src, dst := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "dst")
	at := func(name string) string { return filepath.Join(src, name) }
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600), os.Mkdir(src, 0o755), os.Mkdir(dst, 0o700),
		os.MkdirAll(at("a/b"), 0o755),
		os.WriteFile(at("f"), []byte("text"), 0o600), os.Chmod(at("f"), 0o755|os.ModeSetuid),
		os.Link(at("f"), at("a/hard")),
		os.Symlink(outside, at("link")), os.Symlink("/", at("root")), unix.Mkfifo(at("fifo"), 0o640),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0),
		os.WriteFile(at("sparse"), nil, 0o644), os.Truncate(at("sparse"), 1<<30),
		os.WriteFile(at("closed"), []byte("x"), 0), os.Chmod(at("a/b"), 0o711))
	if err := unix.Mknod(at("whiteout"), unix.S_IFCHR, 0); err != nil && !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	f, err := os.OpenFile(at("sparse"), os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("middle"), 1<<29)
	must(t, err, f.Close())
	for name, attr := range map[string]string{"f": "user.x", "a": "user.overlay.opaque", "a/b": "user.overlay.origin"} {
		if err := unix.Setxattr(at(name), attr, []byte("y"), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
	}
	must(t, os.Chtimes(at("a"), unixTime, unixTime))
	if os.Getuid() != 0 { // nobody else reads it
		must(t, os.Remove(at("closed")))
	}
	used, err := tree(t, src, dst)
	must(t, err)
	if want, got := describe(t, src), describe(t, dst); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if n, _ := unix.Lgetxattr(filepath.Join(dst, "a/b"), "user.overlay.origin", nil); n > 0 {
		t.Error("the origin of another overlay was copied")
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(dst, "sparse"), &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("%d blocks of a sparse file", st.Blocks)
	}
	if used.Bytes > 1<<20 || used.Inodes < 10 {
		t.Errorf("%+v", used)
	}
}

// TestTreeDeep: more folders in each other than are followed are an error, and many are not.
func TestTreeDeep(t *testing.T) {
	for depth, want := range map[int]error{MaxDepth - 1: nil, MaxDepth + 1: ErrTooDeep} {
		src, dst := t.TempDir(), t.TempDir()
		dir := open2(t, src)
		for range depth {
			must(t, unix.Mkdirat(int(dir.Fd()), "d", 0o755))
			fd, err := unix.Openat(int(dir.Fd()), "d", unix.O_DIRECTORY, 0)
			must(t, err)
			dir.Close()
			dir = os.NewFile(uintptr(fd), "d")
		}
		dir.Close()
		if _, err := tree(t, src, dst); !errors.Is(err, want) {
			t.Errorf("%d: %v", depth, err)
		}
		must(t, rmtree.Path(filepath.Join(src, "d")), rmtree.Path(filepath.Join(dst, "d")))
	}
}

// TestTreeSideBySide: folders that several copy are as in the source, and so are files with names in several of them,
// in which folder the first name may be, and what a folder that is done must not lose when others are not.
func TestTreeSideBySide(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(maxCrew))
	src := filepath.Join(t.TempDir(), "src")
	for i := range 7 {
		must(t, os.MkdirAll(filepath.Join(src, fmt.Sprint("d", i)), 0o755))
	}
	for i := range 300 {
		dir := filepath.Join(src, fmt.Sprint("d", i%7), fmt.Sprint("e", i%40))
		file := filepath.Join(dir, fmt.Sprint(i))
		must(t, os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(strings.Repeat(fmt.Sprint(i), i)), 0o600),
			os.Chmod(file, os.FileMode(i)|0o400),
			os.Chtimes(file, unixTime, unixTime.Add(time.Duration(i))))
		if i%3 == 0 {
			must(t, os.Link(file, filepath.Join(src, fmt.Sprint("d", (i+1)%7), fmt.Sprint("link", i))),
				os.Link(file, filepath.Join(src, fmt.Sprint(i))))
		}
	}
	for i := range 7 {
		dir := filepath.Join(src, fmt.Sprint("d", i))
		must(t, os.Chmod(dir, 0o500|os.FileMode(i)), os.Chtimes(dir, unixTime, unixTime))
		defer os.Chmod(dir, 0o700)
	}
	want, fds := describe(t, src), openFDs(t)
	for range 5 {
		dst := t.TempDir()
		must(t, os.Chmod(dst, 0o700))
		used, err := tree(t, src, dst)
		must(t, err)
		if got := describe(t, dst); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		if want := int64(strings.Count(want, "\n")) - 200; used.Inodes != want {
			t.Errorf("%d inodes, want %d", used.Inodes, want)
		}
		for i := range 7 { // so that it can be removed
			must(t, os.Chmod(filepath.Join(dst, fmt.Sprint("d", i)), 0o700))
		}
	}
	if n := openFDs(t) - fds; n > 40 { // those of the test itself
		t.Errorf("%d more are open", n)
	}
}

func openFDs(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(list)
}

// TestTreeFails: what goes wrong in one of many folders is what the copy fails with; all end then, and nothing stays
// open. The same of a context that ends.
func TestTreeFails(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(maxCrew))
	src := t.TempDir()
	for i := range 50 {
		must(t, os.MkdirAll(filepath.Join(src, fmt.Sprint(i), "a/b/c"), 0o755),
			os.WriteFile(filepath.Join(src, fmt.Sprint(i), "a/f"), []byte("x"), 0o600))
	}
	bad := filepath.Join(src, "37", strings.Repeat("d/", MaxDepth))
	must(t, os.MkdirAll(bad, 0o755))
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrDeadlineExceeded)
	for _, c := range []struct {
		ctx  context.Context
		want error
		path string
	}{{t.Context(), ErrTooDeep, "copy 37/d/d/"}, {ended, os.ErrDeadlineExceeded, "copy "}} {
		from, to := open2(t, src), open2(t, t.TempDir())
		fds := openFDs(t)
		_, err := Tree(c.ctx, from, to)
		if !errors.Is(err, c.want) || !strings.HasPrefix(fmt.Sprint(err), c.path) {
			t.Errorf("%v, want %v", err, c.want)
		}
		if n := openFDs(t); n != fds {
			t.Errorf("%d are open, %d were", n, fds)
		}
	}
	must(t, os.RemoveAll(filepath.Join(src, "37")))
	if _, err := tree(t, src, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestTreeModes: owner and mode are the source's, whatever the creation gave: a umask takes bits away, a folder with
// the set-group-id bit gives its group and the bit, and a change of the owner takes set-id bits away.
func TestTreeModes(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "dst")
	must(t, os.Mkdir(dst, 0o700), os.Mkdir(filepath.Join(src, "plain"), 0o755))
	root := os.Getuid() == 0
	for i, mode := range []uint32{0o777, 0o666, 0o600, 0o4755, 0o2755, 0o2644, 0o6777, 0o1777} {
		file, dir := filepath.Join(src, fmt.Sprint("f", i)), filepath.Join(src, fmt.Sprint("d", i))
		must(t, os.WriteFile(file, []byte("x"), 0o600), os.Mkdir(dir, 0o700))
		for _, path := range []string{file, dir} {
			if root && i%2 == 1 {
				must(t, os.Chown(path, 1000+i, 2000+i))
			}
			must(t, unix.Chmod(path, mode))
		}
	}
	if root {
		must(t, os.Chown(dst, -1, 4321))
	}
	must(t, unix.Chmod(dst, 0o2700))
	_, err := tree(t, src, dst)
	must(t, err)
	if want, got := describe(t, src), describe(t, dst); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func BenchmarkTree(b *testing.B) {
	src := b.TempDir()
	for i := range 10 {
		must(b, os.WriteFile(filepath.Join(src, fmt.Sprint(i)), make([]byte, 1<<20), 0o600))
	}
	for b.Loop() {
		dst := b.TempDir()
		if _, err := tree(b, src, dst); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSmall(b *testing.B) {
	top := b.TempDir()
	must(b, sys.Spread(top)) // as the shelf's folder is
	src := filepath.Join(top, "src")
	for i := range 1000 {
		dir := filepath.Join(src, fmt.Sprint(i%50))
		must(b, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), make([]byte, 10<<10), 0o644))
	}
	for i := 0; b.Loop(); i++ {
		dst := filepath.Join(top, fmt.Sprint(i))
		must(b, os.Mkdir(dst, 0o755))
		if _, err := tree(b, src, dst); err != nil {
			b.Fatal(err)
		}
	}
}
