package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// alone puts this thread, and all that it starts, into a network that has loopback and nothing else. The thread is the
// caller's from then on.
func alone() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// server is a running `hutch web --e2b` with a hutchd of its own.
type server struct {
	dir, url, key string
	hutch         string
	env           []string
	cmd           *exec.Cmd
}

func serve(ctx context.Context, bin string) (*server, error) {
	dir, err := os.MkdirTemp("", "compat")
	if err != nil {
		return nil, err
	}
	token := make([]byte, 16)
	_, _ = rand.Read(token) // it never fails
	s := &server{dir: dir, key: "e2b_" + hex.EncodeToString(token), hutch: filepath.Join(bin, "hutch")}
	file := filepath.Join(dir, "token")
	err = os.WriteFile(file, []byte(hex.EncodeToString(token)+"\n"), 0o600)
	for _, sub := range []string{"home", "run"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, sub), 0o700))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"), "LANG=C.UTF-8",
		"HUTCH_ROOT=" + filepath.Join(dir, "state"), "HUTCH_SOCKET=" + filepath.Join(dir, "sock"),
		"XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "HUTCH_CONFIG=" + filepath.Join(dir, "config.yaml")}
	s.cmd = exec.CommandContext(ctx, s.hutch, "web", "--listen", "127.0.0.1:0", "--e2b=127.0.0.1:0",
		"--token-file", file)
	s.cmd.Env = s.env
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(unix.SIGTERM) }
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

func (s *server) start() error {
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	said, before := bufio.NewReader(stderr), ""
	for {
		line, err := said.ReadString('\n')
		if before += line; err != nil {
			return fmt.Errorf("hutch web: %w: %s", err, before)
		}
		if _, at, ok := strings.Cut(strings.TrimSpace(line), "E2B's shape on "); ok {
			s.url = at
			go func() { _, _ = io.Copy(os.Stderr, said) }() // it must not wait for a reader
			return nil
		}
	}
}

// end ends the server, its daemon and all sandboxes.
func (s *server) end() error {
	var errs []error
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Signal(unix.SIGTERM) // it may have ended
		_ = s.cmd.Wait()
	}
	down := exec.Command(s.hutch, "rpc", "system.shutdown", `{"mode":"kill"}`)
	down.Env = s.env
	if out, err := down.CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("hutch rpc system.shutdown: %w: %s", err, out))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
