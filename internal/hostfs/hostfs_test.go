package hostfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	sub, file := filepath.Join(dir, "sub"), filepath.Join(dir, "file")
	must(t, os.Mkdir(sub, 0o700))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink("sub", filepath.Join(dir, "link")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	t.Chdir(dir)
	for _, tt := range []struct {
		path, real string
		dir        bool
		code       api.Code
	}{
		{sub, sub, true, ""},
		{"sub", sub, true, ""},
		{".", dir, true, ""},
		{"link", sub, true, ""},
		{"sub/../file", file, false, ""},
		{"none", "", false, api.NotFound},
		{"file/x", "", false, api.NotFound},
		{"fifo", "", false, api.InvalidArgument},
		{"/dev/null", "", false, api.InvalidArgument},
		{"", "", false, api.NotFound},
	} {
		t.Run(tt.path, func(t *testing.T) {
			s, err := Open(tt.path)
			if tt.code != "" {
				if api.ErrorCode(err) != tt.code {
					t.Fatalf("got %v, want %s", err, tt.code)
				}
				return
			}
			must(t, err)
			defer s.FD.Close()
			if s.Path != tt.real || s.Dir != tt.dir {
				t.Errorf("got %q, dir %t, want %q, dir %t", s.Path, s.Dir, tt.real, tt.dir)
			}
		})
	}
}

// TestOpenUnreadable has an allowed twin: the same folder, readable.
func TestOpenUnreadable(t *testing.T) {
	testenv.NotRoot(t) // root reads everything
	dir := t.TempDir()
	t.Cleanup(func() { must(t, os.Chmod(dir, 0o700)) })
	for mode, code := range map[os.FileMode]api.Code{0o700: "", 0o300: api.PermissionDenied, 0o600: api.PermissionDenied} {
		must(t, os.Chmod(dir, mode))
		s, err := Open(dir)
		if s != nil {
			s.FD.Close()
		}
		var known *api.Error
		if code == "" && err != nil || code != "" && (!errors.As(err, &known) || known.Code != code || known.Hint == "") {
			t.Errorf("mode %o: %v, want %q", mode, err, code)
		}
	}
}

func TestOpenRemoved(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	must(t, os.Mkdir(gone, 0o700))
	t.Chdir(gone)
	must(t, os.Remove(gone))
	if s, err := Open("."); err == nil {
		s.FD.Close()
		t.Error("a removed folder is accepted")
	}
}

// detached returns a path to the root of a detached mount of dir.
func detached(t *testing.T, dir string, id uint32, readOnly bool) string {
	t.Helper()
	s, err := Open(dir)
	must(t, err)
	defer s.FD.Close()
	f, err := s.Detach(id, readOnly)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
}

func TestDetachMapsRootAlone(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	const id = 231072
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "roots"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "others"), nil, 0o600))
	must(t, os.Chown(filepath.Join(dir, "others"), 1000, 1000))
	root := detached(t, dir, id, false)
	for name, want := range map[string]uint32{"roots": id, "others": 65534} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(root, name), &st))
		if st.Uid != want || st.Gid != want {
			t.Errorf("%s belongs to %d:%d, want %d", name, st.Uid, st.Gid, want)
		}
	}
	// Root itself has no place in the map: what it would create could belong to
	// nobody.
	if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o600); !errors.Is(err, unix.EOVERFLOW) {
		t.Errorf("create as uid 0: %v, want EOVERFLOW", err)
	}
}

func TestDetachReadOnly(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o666))
	for _, readOnly := range []bool{false, true} {
		root := detached(t, dir, 231072, readOnly)
		f, err := os.OpenFile(filepath.Join(root, "f"), os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		if errors.Is(err, unix.EROFS) != readOnly {
			t.Errorf("readOnly %t: %v", readOnly, err)
		}
	}
}

// TestDetachUnmappable wants a reason where a file system knows no id maps.
func TestDetachUnmappable(t *testing.T) {
	testenv.Root(t) // only root maps mounts
	s, err := Open("/proc/self")
	must(t, err)
	defer s.FD.Close()
	_, err = s.Detach(231072, true)
	var known *api.Error
	if !errors.As(err, &known) || known.Code != api.Unavailable || !strings.Contains(err.Error(), "/proc/") {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"/a/b-c": "/a/b-c", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$x": "'$x'"} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}
