package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// load drives one netload (netload/netload.c), wherever it runs.
type load struct {
	in    *os.File
	out   *os.File
	lines *bufio.Reader
	ended chan struct{}
	err   error  // why it ended, once it has
	kill  func() // where it is a process of ours
	stuck error  // what it did not answer
}

// netload compiles the client, once. C and static: it runs where there are no libraries, and
// no runtime of its own takes part in what is measured.
func (h *Host) netload(ctx context.Context) (string, error) {
	dir, err := h.mkdir("netload", 0o755)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "netload")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	return bin, h.compile(ctx, bin, filepath.Join(h.module, "integration", "bench", "netload", "netload.c"))
}

// compile makes a static program of a C source.
func (h *Host) compile(ctx context.Context, bin, source string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if _, err := exec.LookPath(cc); err != nil {
		return &Unavailable{MissingTool, "no C compiler " + cc, "install gcc, or set CC"}
	}
	build := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-o",
		bin, source)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", shellLine(build.Args), err, out)
	}
	return nil
}

// startLoad starts a netload with pipes. wait returns when it has ended; what it writes to
// stderr explains a failure.
func (h *Host) startLoad(start func(stdin, stdout, stderr *os.File) (wait func() error, err error)) (*load, error) {
	var ends [6]*os.File
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, err
		}
	}
	stdin, in, out, stdout, errs, stderr := ends[0], ends[1], ends[2], ends[3], ends[4], ends[5]
	l := &load{kill: func() {}, in: in, out: out, lines: bufio.NewReader(out), ended: make(chan struct{})}
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(errs) // it fails when there is nothing more to say
		said <- strings.TrimSpace(string(text))
	}()
	wait, err := start(stdin, stdout, stderr)
	if err != nil {
		wait = func() error { return err }
	}
	go func() {
		defer close(l.ended)
		err := wait()
		err = errors.Join(err, stdin.Close(), stdout.Close(), stderr.Close())
		if text := <-said; err == nil {
			err = fmt.Errorf("netload has ended: %s", text)
		} else {
			err = fmt.Errorf("netload: %w: %s", err, text)
		}
		l.err = errors.Join(err, errs.Close())
	}()
	h.undo.Add(func() error {
		err := in.Close()
		if l.stuck != nil {
			l.kill()
		}
		select {
		case <-l.ended:
		case <-time.After(endLimit):
			err = errors.Join(err, errors.New("netload does not end when its input does"))
		}
		return errors.Join(err, out.Close())
	})
	return l, err
}

// do has netload carry out a command, and returns what it says that took.
func (l *load) do(what string, to target, n int) (time.Duration, error) {
	if l.stuck != nil {
		return 0, l.stuck
	}
	if _, err := fmt.Fprintf(l.in, "%s %s %d %d\n", what, to.address, to.port, n); err != nil {
		return 0, errors.Join(err, l.why())
	}
	if err := l.out.SetReadDeadline(time.Now().Add(runLimit)); err != nil {
		return 0, err
	}
	line, err := l.lines.ReadString('\n')
	if err != nil {
		l.stuck = errors.Join(fmt.Errorf("%s to %s port %d, %d times or bytes: %w", what, to.address, to.port, n, err),
			l.why())
		return 0, l.stuck
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return time.Duration(ns), err
}

// target is where a server is, as seen by a client.
type target struct {
	address string
	port    uint16
}

// why is how netload ended, if it has.
func (l *load) why() error {
	select {
	case <-l.ended:
		return l.err
	case <-time.After(time.Second):
		return nil
	}
}
