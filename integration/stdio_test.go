package integration_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// open is os.OpenFile for tests; the file is closed with the test.
func open(t testing.TB, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestStdioFiles: regular files are read and written, in place, as a shell's
// redirections want it.
func TestStdioFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := write(t, w.path("in"), "first\nsecond\n")
	out := w.path("out")
	write(t, out, "older\n")
	run := func(t *testing.T, stdin, stdout, stderr *os.File, command string) {
		t.Helper()
		cmd := w.command("run", "host", "--", "sh", "-c", command)
		// An untyped nil would be a non-nil io.Reader.
		if stdin != nil {
			cmd.Stdin = stdin
		}
		cmd.Stdout, cmd.Stderr = stdout, stderr
		w.finish(t, cmd).want(t, 0)
	}
	t.Run("append", func(t *testing.T) {
		f := open(t, out, os.O_WRONLY|os.O_APPEND)
		run(t, open(t, in, os.O_RDONLY), f, f, "cat; echo err >&2; echo out")
		if got, want := read(t, out), "older\nfirst\nsecond\nerr\nout\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("same file keeps the order", func(t *testing.T) {
		f := open(t, out, os.O_WRONLY|os.O_TRUNC)
		run(t, nil, f, f, "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
		var want strings.Builder
		for i := range 9 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i+1, i+1)
		}
		if got := read(t, out); got != want.String() {
			t.Errorf("got %q, want %q", got, want.String())
		}
	})
	t.Run("reopened inside", func(t *testing.T) {
		// The same tool, on a file that the sandbox may see and on the caller's.
		f := open(t, out, os.O_WRONLY|os.O_TRUNC)
		stdin := open(t, in, os.O_RDONLY)
		run(t, stdin, f, f, `
echo mine >/tmp/own; exec 3</tmp/own
if echo changed >/proc/self/fd/3; then echo "allowed: $(cat /tmp/own)"; fi
if (echo stolen >/proc/self/fd/0) 2>/dev/null && false; then :; fi
readlink /proc/self/fd/0 /proc/self/fd/1 | sed 's/[0-9]*//g'`)
		if got, want := read(t, out), "allowed: changed\npipe:[]\npipe:[]\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := read(t, in); got != "first\nsecond\n" {
			t.Errorf("the caller's stdin was overwritten: %q", got)
		}
	})
	t.Run("offset", func(t *testing.T) {
		// Two commands share one description: the second goes on behind the first.
		f := open(t, out, os.O_WRONLY|os.O_TRUNC)
		run(t, nil, f, nil, "echo one")
		run(t, nil, f, nil, "echo two")
		if got := read(t, out); got != "one\ntwo\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestStdioRefused: what a sandbox could walk out through never gets in.
func TestStdioRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := write(t, w.path("file"), "text\n")
	refused := []struct {
		name  string
		file  *os.File
		words string
	}{
		{"directory", open(t, w.dir, os.O_RDONLY), "directory"},
		{"O_PATH", open(t, file, unix.O_PATH), "O_PATH"},
		{"O_PATH directory", open(t, w.dir, unix.O_PATH|unix.O_DIRECTORY), "O_PATH"},
	}
	if f := blockDevice(t); f != nil {
		refused = append(refused, struct {
			name  string
			file  *os.File
			words string
		}{"block device", f, "block device"})
	}
	for _, tt := range refused {
		t.Run("cli "+tt.name, func(t *testing.T) {
			cmd := w.command("run", "host", "true")
			cmd.Stdin = tt.file
			w.finish(t, cmd).want(t, 125).says(t, tt.words, "try:")
			cmd = w.command("run", "host", "true")
			cmd.Stdout = tt.file
			w.finish(t, cmd).want(t, 125).says(t, tt.words)
		})
	}
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	// On the wire there is nobody who pumps, so regular files are refused as well.
	refused = append(refused, struct {
		name  string
		file  *os.File
		words string
	}{"regular file", open(t, file, os.O_RDONLY), "regular file"})
	for _, tt := range refused {
		for _, stream := range []string{"stdin", "stdout", "stderr"} {
			t.Run("rpc "+tt.name+" "+stream, func(t *testing.T) {
				e := c.refused("invalid_argument", "exec.run",
					params{"sandbox": sb, "argv": []string{"true"}, "fds": 1, "stdio": params{stream: 0}}, tt.file)
				if !strings.Contains(e.Message, tt.words) {
					t.Errorf("%s does not say %q", e, tt.words)
				}
				if stream == "stderr" {
					return
				}
				// Nor may they carry a terminal: the daemon would open them anew, at the start.
				null := open(t, os.DevNull, os.O_RDWR)
				of := params{"stdin": 1, "stdout": 1, stream: 0}
				e = c.refused("invalid_argument", "exec.run", params{"sandbox": sb, "argv": []string{"true"}, "fds": 2,
					"pty": params{"rows": 24, "cols": 80}, "stdio": of}, tt.file, null)
				if !strings.Contains(e.Message, tt.words) || e.Data.Field != "stdio."+stream {
					t.Errorf("with a terminal: %s does not say %q", e, tt.words)
				}
			})
		}
	}
	// The allowed twin: a pipe.
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.call(nil, "exec.run", params{"sandbox": sb, "argv": []string{"echo", "through"}, "fds": 1, "stdio": params{"stdout": 0}}, pw)
	pw.Close()
	if got, _ := io.ReadAll(r); string(got) != "through\n" {
		t.Errorf("through a pipe came %q", got)
	}
}

// TestTerminalAppend: the output of a terminal goes behind what is in the caller's file.
func TestTerminalAppend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := write(t, w.path("log"), "before\n")
	cmd := w.command("run", "-t", "host", "--", "echo", "hi")
	cmd.Stdout = open(t, log, os.O_WRONLY|os.O_APPEND)
	w.finish(t, cmd).want(t, 0)
	if got := read(t, log); got != "before\nhi\r\n" {
		t.Errorf("the file holds %q", got)
	}
}

// blockDevice is one that may be opened, or nil.
func blockDevice(t testing.TB) *os.File {
	names, _ := filepath.Glob("/dev/[svl]*[a-z0-9]")
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.Mode()&os.ModeDevice != 0 && st.Mode()&os.ModeCharDevice == 0 {
			if f, err := os.Open(name); err == nil {
				t.Cleanup(func() { f.Close() })
				return f
			}
		}
	}
	return nil
}

// TestStdioReopen: `echo x >/dev/stderr` works inside, whatever stderr is and
// whoever the command is.
func TestStdioReopen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	users := []string{"0"}
	if testenv.CurrentKind() != mustrun.NoSubUID {
		users = append(users, "1000", "nobody")
	}
	const script = `echo out >/dev/stdout; echo err >/dev/stderr; cat </dev/stdin; echo fd >/proc/self/fd/1`
	for _, user := range users {
		args := []string{"run", "-u", user, "host", "sh", "-c", script}
		t.Run("pipe "+user, func(t *testing.T) {
			r := w.feed(t, "in\n", args...).want(t, 0)
			if r.stdout != "out\nin\nfd\n" || r.stderr != "err\n" {
				t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
			}
		})
		t.Run("file "+user, func(t *testing.T) {
			cmd := w.command(args...)
			cmd.Stdin = open(t, write(t, w.path("in-"+user), "in\n"), os.O_RDONLY)
			cmd.Stdout = open(t, w.path("out-"+user), os.O_CREATE|os.O_WRONLY)
			cmd.Stderr = open(t, w.path("err-"+user), os.O_CREATE|os.O_WRONLY)
			w.finish(t, cmd).want(t, 0)
			if out, errs := read(t, w.path("out-"+user)), read(t, w.path("err-"+user)); out != "out\nin\nfd\n" || errs != "err\n" {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
		})
		t.Run("null "+user, func(t *testing.T) {
			cmd := w.command(args...)
			cmd.Stdout = open(t, os.DevNull, os.O_WRONLY)
			cmd.Stderr = cmd.Stdout
			w.finish(t, cmd).want(t, 0)
		})
		t.Run("terminal "+user, func(t *testing.T) {
			p := openPty(t)
			cmd := w.command(append([]string{"run", "-t"}, args[1:]...)...)
			p.give(cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p.started()
			p.sees("err\r\n") // typed earlier it would be for the caller's terminal
			p.write("typed\n\x04")
			if code := await(t, cmd); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if got := p.rest(); !strings.Contains(got, "out\r\nerr\r\n") || !strings.Contains(got, "typed\r\nfd\r\n") {
				t.Errorf("on the terminal: %q", got)
			}
		})
	}
}

// TestStdinBig: more input than any pipe holds, in both directions at once.
func TestStdinBig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	file := write(t, w.path("big"), string(data))
	for name, stdin := range map[string]io.Reader{"pipe": bytes.NewReader(data), "file": open(t, file, os.O_RDONLY)} {
		cmd := w.command("run", "host", "--", "tee", "/tmp/copy")
		cmd.Stdin = stdin
		r := w.finish(t, cmd).want(t, 0)
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(r.stdout))); got != sum {
			t.Errorf("%s: %d bytes came back, %d went in", name, len(r.stdout), len(data))
		}
	}
	// A command that does not read its input does not wait for it.
	cmd := w.command("run", "host", "true")
	cmd.Stdin = open(t, file, os.O_RDONLY)
	w.finish(t, cmd).want(t, 0)
}

// TestOutputBig: 50 MB arrive, through a pipe and into a file.
func TestOutputBig(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size = 50_000_000
	args := []string{"run", "host", "head", "-c", fmt.Sprint(size), "/dev/zero"}
	if got := len(w.ok(t, args...)); got != size {
		t.Errorf("%d bytes through a pipe, want %d", got, size)
	}
	cmd := w.command(args...)
	cmd.Stdout = open(t, w.path("zeros"), os.O_CREATE|os.O_WRONLY)
	w.finish(t, cmd).want(t, 0)
	if st, err := os.Stat(w.path("zeros")); err != nil || st.Size() != size {
		t.Errorf("in the file: %v, %v", st.Size(), err)
	}
}

// TestOutputEarlyExit: what a command wrote just before it ended is never lost,
// in a thousand rounds of distinct output, nor given to another command.
func TestOutputEarlyExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	const inFlight = 8
	calls := make([]*pending, 0, inFlight)
	check := func(i int, p *pending) {
		t.Helper()
		m := p.wait()
		if m.Error != nil {
			t.Fatalf("round %d: %s", i, m.Error)
		}
		res := decode[execResult](t, string(m.Result))
		if want := fmt.Sprintf("out %d\n", i); res.Stdout != want || res.Stderr != fmt.Sprintf("err %d\n", i) {
			t.Fatalf("round %d: stdout %q, stderr %q", i, res.Stdout, res.Stderr)
		}
	}
	n := rounds(1000)
	for i := range n {
		if len(calls) == inFlight {
			check(i-inFlight, calls[0])
			calls = calls[1:]
		}
		calls = append(calls, c.start("exec.run", params{"sandbox": sb, "command": fmt.Sprintf("echo out %d; echo err %d >&2", i, i)}))
	}
	for i, p := range calls {
		check(n-len(calls)+i, p)
	}
	// Through the command line, into a pipe and into a file.
	for i := range rounds(50) {
		text := fmt.Sprintf("run %d\n", i)
		if got := w.inside(t, "printf", text); got != text {
			t.Fatalf("round %d: %q through a pipe", i, got)
		}
		f := open(t, w.path("file"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
		cmd := w.command("run", "host", "printf", text)
		cmd.Stdout = f
		w.finish(t, cmd).want(t, 0)
		if got := read(t, w.path("file")); got != text {
			t.Fatalf("round %d: %q in a file", i, got)
		}
	}
}

// TestReaderGone: a reader that has seen enough ends the command by SIGPIPE.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.inside(t, "true")
	for _, sink := range []string{"pipe", "socket"} {
		t.Run(sink, func(t *testing.T) {
			ours, theirs := stream(t, sink)
			cmd := w.command("run", "host", "--", "yes")
			cmd.Stdout = theirs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			buf := make([]byte, 2)
			if _, err := io.ReadFull(ours, buf); err != nil || string(buf) != "y\n" {
				t.Fatalf("%q, %v", buf, err)
			}
			ours.Close()
			if code := await(t, cmd); code != 128+int(unix.SIGPIPE) {
				t.Errorf("exit code %d, want %d", code, 128+int(unix.SIGPIPE))
			}
		})
	}
	shell := exec.Command("sh", "-c", "hutch run host yes | head -1")
	shell.Env, shell.Dir = w.vars, w.dir
	if r := w.finish(t, shell).want(t, 0); r.stdout != "y\n" {
		t.Errorf("got %q", r.stdout)
	}
}

// stream is a connected pair: ours to read, theirs to write.
func stream(t testing.TB, kind string) (ours, theirs *os.File) {
	t.Helper()
	if kind == "pipe" {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
}

// TestClosedStdio: a caller without standard files is no reason to fail, or to
// hand the sandbox something else that happens to be fd 0.
func TestClosedStdio(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	shell := exec.Command("sh", "-c", "exec hutch run host -- sh -c 'ls -l /proc/self/fd >/tmp/fds; exit 5' <&- >&- 2>&-")
	shell.Env, shell.Dir = w.vars, w.dir
	shell.SysProcAttr = &syscall.SysProcAttr{}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if code := await(t, shell); code != 5 && code != 125 {
		t.Errorf("exit code %d, want the command's 5 or a refusal", code)
	}
}
