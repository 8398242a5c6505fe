package testenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Removed returns when there is no path, a cgroup for example, that somebody is about to
// remove. For its bound see Within.
func Removed(t testing.TB, path string, d time.Duration) {
	t.Helper()
	gone, err := Gone(path, Patience(d))
	switch {
	case err != nil:
		t.Fatal(err)
	case !gone:
		Late(t, "%s is still there after %v", path, d)
	}
}

// Gone waits until there is no path, of which inotify tells, and reports whether that was within d. Of a cgroup that is
// removed by way of a mount that was made in another cgroup namespace inotify says nothing: that is another superblock
// (kernfs_test_super compares the namespaces). So the last word is a look.
func Gone(path string, d time.Duration) (bool, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return false, fmt.Errorf("inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	// ENOENT: the folder around it is gone as well.
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_DELETE|unix.IN_MOVED_FROM); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("watch %s: %w", filepath.Dir(path), err)
	}
	if err := events.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false, err
	}
	for buf := make([]byte, 4096); ; {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		switch _, err := events.Read(buf); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			_, err := os.Lstat(path)
			return errors.Is(err, fs.ErrNotExist), nil
		case err != nil:
			return false, err
		}
	}
}

// Unpopulated returns when there is no process in a cgroup, nor below it, or no cgroup: the
// kernel tells of it (cgroups(7), cgroup.events). It takes a process out of its cgroup a
// moment after its parent has seen it end. For its bound see Within.
func Unpopulated(t testing.TB, dir string, d time.Duration) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for late := time.Now().Add(Patience(d)); ; {
		text := make([]byte, 4096)
		n, err := unix.Pread(int(f.Fd()), text, 0)
		if errors.Is(err, unix.ENODEV) || strings.Contains(string(text[:max(0, n)]), "populated 0\n") {
			return
		}
		if err != nil {
			t.Fatal(err)
			return
		}
		left := time.Until(late)
		if left <= 0 {
			Late(t, "%s still has processes after %v", dir, d)
			return
		}
		// What changed since the last read is seen at once; EINTR is the runtime's.
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}
