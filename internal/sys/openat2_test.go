package sys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOpenBelow(t *testing.T) {
	outer := t.TempDir()
	root := filepath.Join(outer, "root")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "a"), 0o755),
		os.WriteFile(filepath.Join(outer, "secret"), nil, 0o600),
		os.WriteFile(filepath.Join(root, "secret"), nil, 0o600),
		os.Symlink("../../secret", filepath.Join(root, "a", "up")),
		os.Symlink("/secret", filepath.Join(root, "abs")),
		os.Symlink("/proc/self/root", filepath.Join(root, "magic")),
		os.Symlink("loop", filepath.Join(root, "loop")),
	); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var want unix.Stat_t
	if err := unix.Stat(filepath.Join(root, "secret"), &want); err != nil {
		t.Fatal(err)
	}
	across := func(dirfd int, path string, flags int, _ uint32) (int, error) { return OpenAcross(dirfd, path, flags) }
	for _, tt := range []struct {
		path            string
		beneath, inRoot error
	}{
		{"secret", nil, nil},
		{"a/../secret", nil, nil},
		{"../secret", unix.EXDEV, nil},
		{"/secret", unix.EXDEV, nil},
		{"a/up", unix.ELOOP, nil},
		{"abs", unix.ELOOP, nil},
		{"loop", unix.ELOOP, unix.ELOOP},
		{"magic/secret", unix.ELOOP, unix.ENOENT},
		{"none", unix.ENOENT, unix.ENOENT},
	} {
		for name, c := range map[string]struct {
			open func(int, string, int, uint32) (int, error)
			want error
		}{"OpenBeneath": {OpenBeneath, tt.beneath}, "OpenAcross": {across, tt.beneath},
			"OpenInRoot": {OpenInRoot, tt.inRoot}} {
			fd, err := c.open(int(dir.Fd()), tt.path, unix.O_PATH, 0)
			if !errors.Is(err, c.want) {
				t.Errorf("%s(%q): %v, want %v", name, tt.path, err, c.want)
			}
			if err != nil {
				continue
			}
			var got unix.Stat_t
			if err := unix.Fstat(fd, &got); err != nil || got.Ino != want.Ino {
				t.Errorf("%s(%q) opened inode %d, want %d (%v)", name, tt.path, got.Ino, want.Ino, err)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s(%q) is not close-on-exec: %#x, %v", name, tt.path, flags, err)
			}
			_ = unix.Close(fd)
		}
	}
}
