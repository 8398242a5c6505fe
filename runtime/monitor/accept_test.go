package monitor

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestOpenLock: only a regular file of the user's own is a lock, and what a symlink
// points at is neither opened nor made.
func TestOpenLock(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sock.lock")
	for range 2 { // made, then found
		lock, err := openLock(path)
		if err != nil {
			t.Fatal(err)
		}
		lock.Close()
	}
	victim, link := filepath.Join(dir, "victim"), filepath.Join(dir, "link.lock")
	if err := os.Symlink(victim, link); err != nil {
		t.Fatal(err)
	}
	if _, err := openLock(link); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("a symlink: %v, want unavailable", err)
	}
	if _, err := os.Lstat(victim); !os.IsNotExist(err) {
		t.Errorf("the symlink was followed: %v", err)
	}
	if _, err := openLock("/dev/null"); api.ErrorCode(err) != api.PermissionDenied {
		t.Errorf("a device: %v, want permission_denied", err)
	}
}

// TestRemoveStale: a dead daemon's socket goes, any other file stays.
func TestRemoveStale(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "sock")
	if err := removeStale(sock); err != nil {
		t.Fatalf("nothing there: %v", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if err := removeStale(sock); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(sock); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	file := filepath.Join(dir, "diary.txt")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeStale(file); api.ErrorCode(err) != api.FailedPrecondition {
		t.Errorf("a regular file: %v, want failed_precondition", err)
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}
