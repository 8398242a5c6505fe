package exec_test

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

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestStdioFiles: regular files are read and written, in place, as a shell's
// redirections want it.
func TestStdioFiles(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	in := world.Write(t, w.Path("in"), "first\nsecond\n")
	out := w.Path("out")
	world.Write(t, out, "older\n")
	run := func(t *testing.T, stdin, stdout, stderr *os.File, command string) {
		t.Helper()
		cmd := w.Command("run", "host", "--", "sh", "-c", command)
		// An untyped nil would be a non-nil io.Reader.
		if stdin != nil {
			cmd.Stdin = stdin
		}
		cmd.Stdout, cmd.Stderr = stdout, stderr
		w.Finish(t, cmd).Want(t, 0)
	}
	t.Run("append", func(t *testing.T) {
		f := world.Open(t, out, os.O_WRONLY|os.O_APPEND)
		run(t, world.Open(t, in, os.O_RDONLY), f, f, "cat; echo err >&2; echo out")
		if got, want := world.Read(t, out), "older\nfirst\nsecond\nerr\nout\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("same file keeps the order", func(t *testing.T) {
		f := world.Open(t, out, os.O_WRONLY|os.O_TRUNC)
		run(t, nil, f, f, "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done")
		var want strings.Builder
		for i := range 9 {
			fmt.Fprintf(&want, "o%d\ne%d\n", i+1, i+1)
		}
		if got := world.Read(t, out); got != want.String() {
			t.Errorf("got %q, want %q", got, want.String())
		}
	})
	t.Run("reopened inside", func(t *testing.T) {
		// The same tool, on a file that the sandbox may see and on the caller's.
		f := world.Open(t, out, os.O_WRONLY|os.O_TRUNC)
		stdin := world.Open(t, in, os.O_RDONLY)
		run(t, stdin, f, f, `
echo mine >/tmp/own; exec 3</tmp/own
if echo changed >/proc/self/fd/3; then echo "allowed: $(cat /tmp/own)"; fi
if (echo stolen >/proc/self/fd/0) 2>/dev/null && false; then :; fi
readlink /proc/self/fd/0 /proc/self/fd/1 | sed 's/[0-9]*//g'`)
		if got, want := world.Read(t, out), "allowed: changed\npipe:[]\npipe:[]\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := world.Read(t, in); got != "first\nsecond\n" {
			t.Errorf("the caller's stdin was overwritten: %q", got)
		}
	})
	t.Run("offset", func(t *testing.T) {
		// Two commands share one description: the second goes on behind the first.
		f := world.Open(t, out, os.O_WRONLY|os.O_TRUNC)
		run(t, nil, f, nil, "echo one")
		run(t, nil, f, nil, "echo two")
		if got := world.Read(t, out); got != "one\ntwo\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestStdioRefused: what a sandbox could walk out through never gets in.
func TestStdioRefused(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	file := world.Write(t, w.Path("file"), "text\n")
	refused := []struct {
		name  string
		file  *os.File
		words string
	}{
		{"directory", world.Open(t, w.Dir, os.O_RDONLY), "directory"},
		{"O_PATH", world.Open(t, file, unix.O_PATH), "O_PATH"},
		{"O_PATH directory", world.Open(t, w.Dir, unix.O_PATH|unix.O_DIRECTORY), "O_PATH"},
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
			cmd := w.Command("run", "host", "true")
			cmd.Stdin = tt.file
			w.Finish(t, cmd).Want(t, 125).Says(t, tt.words, "try:")
			cmd = w.Command("run", "host", "true")
			cmd.Stdout = tt.file
			w.Finish(t, cmd).Want(t, 125).Says(t, tt.words)
		})
	}
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	// On the wire there is nobody who pumps, so regular files are refused as well.
	refused = append(refused, struct {
		name  string
		file  *os.File
		words string
	}{"regular file", world.Open(t, file, os.O_RDONLY), "regular file"})
	for _, tt := range refused {
		for _, stream := range []string{"stdin", "stdout", "stderr"} {
			t.Run("rpc "+tt.name+" "+stream, func(t *testing.T) {
				e := c.Refused("invalid_argument", "exec.run",
					world.Params{"sandbox": sb, "argv": []string{"true"}, "fds": 1, "stdio": world.Params{stream: 0}},
					tt.file)
				if !strings.Contains(e.Message, tt.words) {
					t.Errorf("%s does not say %q", e, tt.words)
				}
				if stream == "stderr" {
					return
				}
				// Nor may they carry a terminal: the daemon would open them anew, at the start.
				null := world.Open(t, os.DevNull, os.O_RDWR)
				of := world.Params{"stdin": 1, "stdout": 1, stream: 0}
				e = c.Refused("invalid_argument", "exec.run", world.Params{"sandbox": sb, "argv": []string{"true"},
					"fds": 2,
					"pty": world.Params{"rows": 24, "cols": 80}, "stdio": of}, tt.file, null)
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
	c.Call(nil, "exec.run", world.Params{"sandbox": sb, "argv": []string{"echo", "through"}, "fds": 1,
		"stdio": world.Params{"stdout": 0}}, pw)
	pw.Close()
	if got, _ := io.ReadAll(r); string(got) != "through\n" {
		t.Errorf("through a pipe came %q", got)
	}
}

// TestTerminalAppend: the output of a terminal goes behind what is in the caller's file.
func TestTerminalAppend(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	log := world.Write(t, w.Path("log"), "before\n")
	cmd := w.Command("run", "-t", "host", "--", "echo", "hi")
	cmd.Stdout = world.Open(t, log, os.O_WRONLY|os.O_APPEND)
	w.Finish(t, cmd).Want(t, 0)
	if got := world.Read(t, log); got != "before\nhi\r\n" {
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
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	users := []string{"0"}
	if testenv.CurrentKind() != mustrun.NoSubUID {
		users = append(users, "1000")
		if !testenv.InMachine() { // a name is for PID 1 to look up, not for the kernel
			users = append(users, "nobody")
		}
	}
	const script = `echo out >/dev/stdout; echo err >/dev/stderr; cat </dev/stdin; echo fd >/proc/self/fd/1`
	for _, user := range users {
		args := []string{"run", "-u", user, "host", "sh", "-c", script}
		t.Run("pipe "+user, func(t *testing.T) {
			r := w.Feed(t, "in\n", args...).Want(t, 0)
			if r.Stdout != "out\nin\nfd\n" || r.Stderr != "err\n" {
				t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
			}
		})
		t.Run("file "+user, func(t *testing.T) {
			cmd := w.Command(args...)
			cmd.Stdin = world.Open(t, world.Write(t, w.Path("in-"+user), "in\n"), os.O_RDONLY)
			cmd.Stdout = world.Open(t, w.Path("out-"+user), os.O_CREATE|os.O_WRONLY)
			cmd.Stderr = world.Open(t, w.Path("err-"+user), os.O_CREATE|os.O_WRONLY)
			w.Finish(t, cmd).Want(t, 0)
			if out, errs := world.Read(t, w.Path("out-"+user)),
				world.Read(t, w.Path("err-"+user)); out != "out\nin\nfd\n" || errs != "err\n" {
				t.Errorf("stdout %q, stderr %q", out, errs)
			}
		})
		t.Run("null "+user, func(t *testing.T) {
			cmd := w.Command(args...)
			cmd.Stdout = world.Open(t, os.DevNull, os.O_WRONLY)
			cmd.Stderr = cmd.Stdout
			w.Finish(t, cmd).Want(t, 0)
		})
		t.Run("terminal "+user, func(t *testing.T) {
			p := world.OpenPTY(t)
			cmd := w.Command(append([]string{"run", "-t"}, args[1:]...)...)
			p.Give(cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p.Started()
			p.Sees("err\r\n") // typed earlier it would be for the caller's terminal
			p.Write("typed\n\x04")
			if code := world.Await(t, cmd); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if got := p.Rest(); !strings.Contains(got, "out\r\nerr\r\n") || !strings.Contains(got, "typed\r\nfd\r\n") {
				t.Errorf("on the terminal: %q", got)
			}
		})
	}
}

// TestStdinBig: more input than any pipe holds, in both directions at once.
func TestStdinBig(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	file := world.Write(t, w.Path("big"), string(data))
	for name, stdin := range map[string]io.Reader{
		"pipe": bytes.NewReader(data), "file": world.Open(t, file, os.O_RDONLY),
	} {
		cmd := w.Command("run", "host", "--", "tee", "/tmp/copy")
		cmd.Stdin = stdin
		r := w.Finish(t, cmd).Want(t, 0)
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(r.Stdout))); got != sum {
			t.Errorf("%s: %d bytes came back, %d went in", name, len(r.Stdout), len(data))
		}
	}
	// A command that does not read its input does not wait for it.
	cmd := w.Command("run", "host", "true")
	cmd.Stdin = world.Open(t, file, os.O_RDONLY)
	w.Finish(t, cmd).Want(t, 0)
}

// TestOutputBig: 50 MB arrive, through a pipe and into a file.
func TestOutputBig(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const size = 50_000_000
	args := []string{"run", "host", "head", "-c", fmt.Sprint(size), "/dev/zero"}
	if got := len(w.OK(t, args...)); got != size {
		t.Errorf("%d bytes through a pipe, want %d", got, size)
	}
	cmd := w.Command(args...)
	cmd.Stdout = world.Open(t, w.Path("zeros"), os.O_CREATE|os.O_WRONLY)
	w.Finish(t, cmd).Want(t, 0)
	if st, err := os.Stat(w.Path("zeros")); err != nil || st.Size() != size {
		t.Errorf("in the file: %v, %v", st.Size(), err)
	}
}

// TestOutputEarlyExit: what a command wrote just before it ended is never lost,
// in a thousand rounds of distinct output, nor given to another command.
func TestOutputEarlyExit(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	const inFlight = 8
	calls := make([]*world.Pending, 0, inFlight)
	check := func(i int, p *world.Pending) {
		t.Helper()
		m := p.Wait()
		if m.Error != nil {
			t.Fatalf("round %d: %s", i, m.Error)
		}
		res := world.Decode[world.ExecResult](t, string(m.Result))
		if want := fmt.Sprintf("out %d\n", i); res.Stdout != want || res.Stderr != fmt.Sprintf("err %d\n", i) {
			t.Fatalf("round %d: stdout %q, stderr %q", i, res.Stdout, res.Stderr)
		}
	}
	n := world.Rounds(1000)
	for i := range n {
		if len(calls) == inFlight {
			check(i-inFlight, calls[0])
			calls = calls[1:]
		}
		calls = append(calls,
			c.Start("exec.run", world.Params{"sandbox": sb, "command": fmt.Sprintf("echo out %d; echo err %d >&2",
				i, i)}))
	}
	for i, p := range calls {
		check(n-len(calls)+i, p)
	}
	// Through the command line, into a pipe and into a file.
	for i := range world.Rounds(50) {
		text := fmt.Sprintf("run %d\n", i)
		if got := w.Inside(t, "printf", text); got != text {
			t.Fatalf("round %d: %q through a pipe", i, got)
		}
		f := world.Open(t, w.Path("file"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
		cmd := w.Command("run", "host", "printf", text)
		cmd.Stdout = f
		w.Finish(t, cmd).Want(t, 0)
		if got := world.Read(t, w.Path("file")); got != text {
			t.Fatalf("round %d: %q in a file", i, got)
		}
	}
}

// TestReaderGone: a reader that has seen enough ends the command by SIGPIPE.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Inside(t, "true")
	for _, sink := range []string{"pipe", "socket"} {
		t.Run(sink, func(t *testing.T) {
			ours, theirs := stream(t, sink)
			cmd := w.Command("run", "host", "--", "yes")
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
			if code := world.Await(t, cmd); code != 128+int(unix.SIGPIPE) {
				t.Errorf("exit code %d, want %d", code, 128+int(unix.SIGPIPE))
			}
		})
	}
	shell := exec.Command("sh", "-c", "hutch run host yes | head -1")
	shell.Env, shell.Dir = w.Vars, w.Dir
	if r := w.Finish(t, shell).Want(t, 0); r.Stdout != "y\n" {
		t.Errorf("got %q", r.Stdout)
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
	w := world.New(t)
	shell := exec.Command("sh", "-c",
		"exec hutch run host -- sh -c 'ls -l /proc/self/fd >/tmp/fds; exit 5' <&- >&- 2>&-")
	shell.Env, shell.Dir = w.Vars, w.Dir
	shell.SysProcAttr = &syscall.SysProcAttr{}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if code := world.Await(t, shell); code != 5 && code != 125 {
		t.Errorf("exit code %d, want the command's 5 or a refusal", code)
	}
}
