package jsonrpc

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// pair is a connected pair of stream sockets, closed with the test.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "pair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}

// pipes makes n different files, closed with the test.
func pipes(t testing.TB, n int) []*os.File {
	t.Helper()
	files := make([]*os.File, n)
	for i := range files {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		t.Cleanup(func() { _ = w.Close() })
		files[i] = w
	}
	return files
}

// inode identifies the pipe behind a file, whichever fd refers to it.
func inode(t testing.TB, f *os.File) uint64 {
	t.Helper()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	var serr error
	if err := rc.Control(func(fd uintptr) { serr = unix.Fstat(int(fd), &st) }); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
	return st.Ino
}

func inodes(t testing.TB, files []*os.File) []uint64 {
	list := []uint64{}
	for _, f := range files {
		list = append(list, inode(t, f))
	}
	return list
}
