package diskuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t testing.TB, path string, size int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
}

func measure(t testing.TB, stop Usage, paths ...string) Usage {
	t.Helper()
	u, err := Trees(t.Context(), stop, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestTrees: what counts, and what does not.
func TestTrees(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	empty := measure(t, Usage{}, dir)
	if empty.Inodes != 1 {
		t.Errorf("an empty folder: %+v", empty)
	}
	write(t, filepath.Join(dir, "big"), 1<<20)
	write(t, filepath.Join(other, "elsewhere"), 1<<20)
	grown := func(step string, bytes, inodes int64) {
		t.Helper()
		u := measure(t, Usage{}, dir)
		// A file system may need some blocks of its own for a file, and round.
		if got := u.Bytes - empty.Bytes; got < bytes || got > bytes+64<<10 || u.Inodes-empty.Inodes != inodes {
			t.Errorf("%s: %d bytes and %d inodes more than empty, want %d and %d", step, got, u.Inodes-empty.Inodes,
				bytes, inodes)
		}
	}
	grown("a file", 1<<20, 1)
	for i := range 10 {
		if err := os.Link(filepath.Join(dir, "big"), filepath.Join(dir, fmt.Sprint("link", i))); err != nil {
			t.Fatal(err)
		}
	}
	grown("hard links", 1<<20, 1)
	if err := os.Symlink(other, filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	grown("a symlink to elsewhere", 1<<20, 2)
	write(t, filepath.Join(dir, "sparse"), 0)
	if err := os.Truncate(filepath.Join(dir, "sparse"), 1<<40); err != nil {
		t.Fatal(err)
	}
	grown("a sparse file", 1<<20, 3)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	grown("a fifo", 1<<20, 4)
	both := measure(t, Usage{}, dir, other)
	if both.Bytes < 2<<20 || both.Inodes != empty.Inodes+4+2 {
		t.Errorf("two trees: %+v", both)
	}
	if u := measure(t, Usage{Bytes: 1 << 19}, dir, other); u.Bytes <= 1<<19 {
		t.Errorf("stopped with %+v", u)
	}
	if u := measure(t, Usage{Inodes: 3}, dir); u.Inodes != 4 {
		t.Errorf("stopped with %+v", u)
	}
}

// TestDeep: nested folders can neither use up files nor memory.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	const levels = 5*maxOpen + 3
	path := dir + strings.Repeat("/d", levels-1)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path+"/file", 1<<20)
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: maxOpen + 64, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	u, err := Trees(t.Context(), Usage{}, dir)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil || u.Inodes != levels+1 || u.Bytes < 1<<20 {
		t.Errorf("%+v, %v", u, err)
	}
	for i := range maxLate + 1 {
		if err := os.Mkdir(fmt.Sprintf("%s%s/%d", dir, strings.Repeat("/d", maxOpen-1), i), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Trees(t.Context(), Usage{}, dir); !errors.Is(err, ErrTooDeep) {
		t.Errorf("got %v", err)
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	if _, err := Trees(ctx, Usage{}, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// A file that is no overlay's does not count; the integration tests have one that is.
func TestUnlinked(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if u := Unlinked([]int{os.Getpid(), 1 << 30}); u.Bytes > 1<<20 {
		t.Errorf("%+v", u)
	}
}

func BenchmarkTrees(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 99 {
			write(b, filepath.Join(sub, fmt.Sprint(j)), 0)
		}
	}
	for b.Loop() {
		if u := measure(b, Usage{}, dir); u.Inodes != 100_001 {
			b.Fatal(u)
		}
	}
}
