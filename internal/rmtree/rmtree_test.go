package rmtree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestPathDeep: more levels than a process may have files open.
func TestPathDeep(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	deepen(t, top, 3000)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	few := old
	few.Cur = 100
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err := Path(top)
	if serr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); serr != nil {
		t.Fatal(serr)
	}
	if err != nil {
		t.Fatalf("remove: %.300s", err)
	}
	if _, err := os.Lstat(top); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if err := Path(top); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}

// deepen makes a folder with so many levels below it.
func deepen(t *testing.T, top string, levels int) {
	t.Helper()
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = unix.Close(at)
}

// TestPathMount: what is mounted below is not the tree's: nothing of it is removed.
func TestPathMount(t *testing.T) {
	top, precious := filepath.Join(t.TempDir(), "top"), t.TempDir()
	at := filepath.Join(top, "mnt/0")
	if err := errors.Join(os.MkdirAll(at, 0o700), os.WriteFile(filepath.Join(precious, "work"), nil,
		0o600)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(precious, at, "", unix.MS_BIND, ""); err != nil {
		testenv.Require(t, probe.Check{Name: "bind mounts", Status: probe.No, Detail: err.Error(),
			Remedy: "run as root"})
	}
	err := Path(top)
	if uerr := unix.Unmount(at, unix.MNT_DETACH); uerr != nil {
		t.Fatal(uerr)
	}
	if !errors.Is(err, unix.EXDEV) {
		t.Errorf("got %v, want %v", err, unix.EXDEV)
	}
	if _, err := os.Lstat(filepath.Join(precious, "work")); err != nil {
		t.Errorf("the mounted folder was emptied: %v", err)
	}
	if err := Path(top); err != nil {
		t.Errorf("after the unmount: %v", err)
	}
}
