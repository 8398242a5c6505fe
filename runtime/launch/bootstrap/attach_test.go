package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// listens is the environment variable that makes this test binary a process that listens where it says until somebody
// has connected, and ends without accepting.
const listens = "HUTCH_TEST_LISTEN"

func TestMain(m *testing.M) {
	if path := os.Getenv(listens); path != "" {
		if err := listenOnly(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func listenOnly(path string) error {
	f, err := Bind(path)
	if err != nil {
		return err
	}
	if err := unix.Listen(int(f.Fd()), 1); err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// TestAttachToOneThatEnds: a hutch-launch that decides to end while somebody connects is none; whoever comes starts
// another.
func TestAttachToOneThatEnds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "launch.sock")
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), listens+"="+path)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("listening\n"))); err != nil {
		t.Fatal(err)
	}
	l, err := Attach(t.Context(), path, MethodSelf)
	if l != nil || err != nil {
		t.Errorf("attached to %v, %v; want none", l, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if l, err := Attach(t.Context(), path, MethodSelf); l != nil || err != nil {
		t.Errorf("attached to %v behind its end, %v; want none", l, err)
	}
}
