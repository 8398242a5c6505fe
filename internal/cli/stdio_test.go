package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// self is the owner that makes a test's own pipes pass directly.
func self() uint32 { return uint32(os.Geteuid()) }

// pipe returns a pipe whose ends are closed with the test.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func open(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	return f
}

// pty returns both ends of a new terminal.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master = open(t, "/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY)
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return master, open(t, fmt.Sprintf("/dev/pts/%d", n), unix.O_RDWR|unix.O_NOCTTY)
}

func socket(t *testing.T) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	f := os.NewFile(uintptr(fds[0]), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

func TestClassify(t *testing.T) {
	r, _ := pipe(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, slave := pty(t)
	for _, tt := range []struct {
		name  string
		file  *os.File
		owner uint32
		want  kind
		err   string
	}{
		{"pipe", r, self(), direct, ""},
		{"pipe of another user", r, self() + 1, pumped, ""},
		{"fifo", open(t, fifo, unix.O_RDWR), self(), direct, ""},
		{"null", open(t, "/dev/null", unix.O_RDWR), self() + 1, direct, ""},
		{"zero", open(t, "/dev/zero", unix.O_RDONLY), self(), direct, ""},
		{"file", open(t, filepath.Join(dir, "f"), unix.O_RDWR|unix.O_CREAT), self(), pumped, ""},
		{"socket", socket(t), self(), pumped, ""},
		{"terminal", slave, self(), terminal, ""},
		{"directory", open(t, dir, unix.O_RDONLY), self(), 0, "a directory"},
		{"O_PATH", open(t, "/dev/null", unix.O_PATH), self(), 0, "O_PATH"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := classify("standard input", tt.file, tt.owner)
			if tt.err != "" {
				var known *api.Error
				if !errors.As(err, &known) || known.Hint == "" || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want an error about %q with a hint", err, tt.err)
				}
				return
			}
			if err != nil || e.kind != tt.want {
				t.Errorf("got kind %d, %v, want %d", e.kind, err, tt.want)
			}
		})
	}
}

func TestClassifyBlockDevice(t *testing.T) {
	devices, err := filepath.Glob("/dev/[svl]*[a-z0-9]")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range devices {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice {
			if _, err := classify("standard input", f, self()); err == nil {
				t.Errorf("%s is accepted", name)
			}
			return
		}
	}
	testenv.Require(t, probe.Check{
		Name: "block device", Status: probe.No, Detail: "none in /dev can be opened by this user",
		Remedy: "sudo make test",
	})
}

// runWith runs a command with what s says, as a sandbox would, and finishes s
// when it has ended.
func runWith(t *testing.T, s *Stdio, argv ...string) error {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Sent()
	// Wait waits for the process alone: its files are passed, not copied.
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.Finish(ctx)
}

func null(t *testing.T) *os.File { return open(t, "/dev/null", unix.O_RDWR) }

// TestPumpToFile wants every byte of a large output, in order, in a file.
func TestPumpToFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	out := open(t, name, unix.O_WRONLY|unix.O_CREAT)
	s, err := OpenStdio(StdioOptions{Stdin: null(t), Stdout: out, Stderr: null(t), Owner: self()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := runWith(t, s, "seq", "1", "500000"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("seq", "1", "500000").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived of %d", len(got), len(want))
	}
}

// TestPumpOrder writes alternately to stdout and stderr, which are one file.
func TestPumpOrder(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	out := open(t, name, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND)
	again := open(t, name, unix.O_WRONLY|unix.O_APPEND)
	s, err := OpenStdio(StdioOptions{Stdin: null(t), Stdout: out, Stderr: again, Owner: self()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Stdout != s.Stderr {
		t.Error("one file, but two pipes")
	}
	if err := runWith(t, s, "sh", "-c",
		"i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "o%d\ne%d\n", i, i)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Errorf("the order is lost:\n%.200s", got)
	}
}

// TestPumpBackground wants what the command wrote, and no waiting for a child
// that keeps its output open.
func TestPumpBackground(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	hold, release := pipe(t) // the child ends when the test does
	out := open(t, name, unix.O_WRONLY|unix.O_CREAT)
	s, err := OpenStdio(StdioOptions{Stdin: hold, Stdout: out, Stderr: null(t), Owner: self()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := runWith(t, s, "sh", "-c", "exec 3<&0; cat <&3 & seq 1 10000"); err != nil {
		t.Fatal(err)
	}
	release.Close()
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasSuffix(got, []byte("\n10000\n")) {
		t.Errorf("the end is missing: %q", got[max(0, len(got)-20):])
	}
}

// TestPumpReaderGone closes the reader: the command gets SIGPIPE, hutch no error.
func TestPumpReaderGone(t *testing.T) {
	_, events := CatchSignals(t.Context()) // as run does: SIGPIPE must not end hutch
	events.Listen()
	defer events.Stop()
	r, w := pipe(t)
	r.Close()
	s, err := OpenStdio(StdioOptions{Stdin: null(t), Stdout: w, Stderr: null(t), Owner: self() + 1})
	if os.Geteuid() != 0 {
		// Only root meets pipes of another owner than the sandbox's: use a socket.
		sock := socket(t)
		if err := unix.Shutdown(int(sock.Fd()), unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		s, err = OpenStdio(StdioOptions{Stdin: null(t), Stdout: sock, Stderr: null(t), Owner: self()})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := runWith(t, s, "yes"); err != nil {
		t.Errorf("a reader that went away is reported: %v", err)
	}
}

// TestPumpNoSpace reports what the command cannot: its output is lost.
func TestPumpNoSpace(t *testing.T) {
	sock := open(t, "/dev/full", unix.O_WRONLY)
	p := startOut("standard output", feed(t, "x"), sock)
	<-p.done
	if !errors.Is(p.err, unix.ENOSPC) {
		t.Errorf("got %v, want ENOSPC", p.err)
	}
}

// feed is the kept end of a pipe that holds text and ends there.
func feed(t *testing.T, text string) *os.File {
	t.Helper()
	kept, passed, err := newPipe(self(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := passed.WriteString(text); err != nil {
		t.Fatal(err)
	}
	passed.Close()
	t.Cleanup(func() { kept.Close() })
	return kept
}

func TestInput(t *testing.T) {
	dir := t.TempDir()
	text := strings.Repeat("some input\n", 100000)
	file := filepath.Join(dir, "in")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "out")
	s, err := OpenStdio(StdioOptions{
		Stdin: open(t, file, unix.O_RDONLY), Stdout: open(t, name, unix.O_WRONLY|unix.O_CREAT), Stderr: null(t),
		Owner: self(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := runWith(t, s, "cat"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != text {
		t.Errorf("%d bytes of %d arrived: %v", len(got), len(text), err)
	}
}

// TestInputUnread ends although the command never reads, and although the
// caller's own input never ends.
func TestInputUnread(t *testing.T) {
	for name, in := range map[string]*os.File{
		"zeros without end": feedFrom(t),
		"silent socket":     socket(t),
	} {
		t.Run(name, func(t *testing.T) {
			s, err := OpenStdio(StdioOptions{Stdin: in, Stdout: null(t), Stderr: null(t), Owner: self()})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := runWith(t, s, "true"); err != nil {
				t.Error(err)
			}
		})
	}
}

// feedFrom is a socket that always has more to read.
func feedFrom(t *testing.T) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	w := os.NewFile(uintptr(fds[1]), "zeros")
	go func() {
		defer close(done)
		_, _ = io.Copy(w, zeros{}) // until the other end is closed
	}()
	r := os.NewFile(uintptr(fds[0]), "socket")
	t.Cleanup(func() { r.Close(); <-done; w.Close() })
	return r
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestInputOfTerminal(t *testing.T) {
	_, slave := pty(t)
	opts := StdioOptions{Stdin: slave, Stdout: null(t), Stderr: null(t), Owner: self()}
	for _, tt := range []struct {
		interactive, tty, connected bool
	}{{false, false, false}, {true, false, true}, {false, true, true}} {
		opts.Interactive, opts.TTY = tt.interactive, tt.tty
		s, err := OpenStdio(opts)
		if err != nil {
			t.Fatal(err)
		}
		if (s.Stdin != nil) != tt.connected {
			t.Errorf("-i=%t -t=%t: connected is %t", tt.interactive, tt.tty, s.Stdin != nil)
		}
		s.Close()
	}
}

// TestPipeOwner wants the command's pipes to belong to the sandbox's uid 0: else
// opening /dev/stderr fails there.
func TestPipeOwner(t *testing.T) {
	owner := self()
	if owner == 0 {
		owner = 231072
	}
	for _, keepRead := range []bool{true, false} {
		kept, passed, err := newPipe(owner, keepRead)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(passed.Fd()), &st); err != nil || st.Uid != owner {
			t.Errorf("owner %d, %v, want %d", st.Uid, err, owner)
		}
		flags, err := unix.FcntlInt(passed.Fd(), unix.F_GETFL, 0)
		if err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("the command's end does not block: %#x, %v", flags, err)
		}
		kept.Close()
		passed.Close()
	}
}

// TestRegain: what was typed before a question is no answer to it, and what a program has drawn, or left unfinished, is
// off the screen and over.
func TestRegain(t *testing.T) {
	master, slave := pty(t)
	if _, err := master.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	DropInput(slave)
	if _, err := master.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(slave)
	if line, err := in.ReadString('\n'); err != nil || line != "n\n" {
		t.Errorf("%q, %v", line, err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 3, Col: 80}); err != nil {
		t.Fatal(err)
	}
	Regain(slave)
	fmt.Fprintln(slave, "end")
	out := bufio.NewReader(master)
	var all strings.Builder
	for !strings.Contains(all.String(), "end") {
		line, err := out.ReadString('\n')
		all.WriteString(line)
		if err != nil {
			t.Fatalf("%q: %v", all.String(), err)
		}
	}
	if got := all.String(); !strings.Contains(got, "\x18\x1b\\\x1b[!p") ||
		!strings.Contains(got, "\x1b[3;1H\r\n\r\n\r\n\x1b[1;1Hend") {
		t.Errorf("%q", got)
	}
}
