package monitor

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestListener: connections are accepted in turn, many may wait, and Close ends a wait and takes the socket away.
func TestListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Error("bound twice")
	}
	const many = 300 // more than the 128 of sys/socket.h
	for range many {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range many {
		f, err := l.accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.accept()
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept ends with %v", err)
	}
	if _, err := l.accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept behind Close: %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("connected behind Close")
	}
}
