package exec_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestTerminal: a terminal of the sandbox's own, of the caller's size and kind,
// with job control.
func TestTerminal(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	t.Run("tty", func(t *testing.T) {
		p, cmd := w.Terminal(t, "run", "-it", "host", "--", "sh", "-c",
			"tty; stty size; echo $TERM; readlink /proc/self/fd/0; exit 3")
		if code := world.Await(t, cmd); code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
		if got, want := p.Rest(), "/dev/pts/0\r\n24 80\r\nvt100\r\n/dev/pts/0\r\n"; got != want {
			t.Errorf("the terminal showed %q, want %q", got, want)
		}
	})
	t.Run("shell", func(t *testing.T) {
		p, cmd := w.Terminal(t, "run", "-it", "host", "--", "sh", "-c", "PS1='$ ' exec sh")
		p.Sees("$ ")
		p.Write("echo $((6*7))\n")
		p.Sees("42\r\n")
		// Ctrl-C reaches the command, not the shell
		p.Write("sh -c 'echo run''ning; exec sleep infinity'; echo code $?\n")
		p.Sees("running\r\n")
		p.Write("\x03")
		p.Write("echo alive\n")
		p.Sees("alive\r\n")
		p.Write("sh -c 'trap \"stty size; kill 0\" WINCH; echo wait''ing; sleep infinity & wait'\n")
		p.Sees("waiting\r\n")
		p.Resize(50, 132)
		p.Sees("50 132\r\n")
		p.Write("exit 9\n")
		if code := world.Await(t, cmd); code != 9 {
			t.Errorf("exit code %d, want 9", code)
		}
	})
	t.Run("restored", func(t *testing.T) {
		p := world.OpenPTY(t)
		before, err := unix.IoctlGetTermios(int(p.Slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		keep, err := unix.FcntlInt(p.Slave.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(keep)
		cmd := w.Command("run", "-it", "host", "true")
		p.Give(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.Started()
		if code := world.Await(t, cmd); code != 0 {
			t.Errorf("exit code %d", code)
		}
		after, err := unix.IoctlGetTermios(keep, unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		if *before != *after {
			t.Errorf("the terminal was left as %+v, it was %+v", after, before)
		}
	})
	t.Run("hang-up", func(t *testing.T) {
		p, cmd := w.Terminal(t, "run", "-it", "host", "--", "sh", "-c", "trap '' HUP; echo ready; sleep infinity")
		p.Sees("ready")
		world.Kill(t, cmd.Process.Pid)
		world.Await(t, cmd)
		w.AwaitNoSandbox(t)
	})
	t.Run("without one", func(t *testing.T) {
		for _, stdin := range []string{"", "line\n", "part"} {
			want := strings.ReplaceAll(stdin, "\n", "\r\n") // echoed
			r := w.Feed(t, stdin, "run", "-t", "host", "--", "sh", "-c", "cat; tty").Want(t, 0)
			if !strings.HasPrefix(r.Stdout, want) || !strings.HasSuffix(r.Stdout, "/dev/pts/0\r\n") {
				t.Errorf("stdin %q: the terminal showed %q", stdin, r.Stdout)
			}
		}
	})
}

// TestTerminalWithoutInput: whose standard input ends has an end of file in a terminal as well, whether the program
// reads lines or keys.
func TestTerminalWithoutInput(t *testing.T) {
	testenv.Axes(t)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	for _, tt := range []struct {
		stdin string
		argv  []string
		out   string
	}{
		{"", []string{"cat"}, ""},
		{"", []string{"bash", "--norc"}, "exit"},
		{"", []string{"python3", "-q"}, ">>> "},
		{"echo $((6*7))\n", []string{"bash", "--norc"}, "42\r\n"},
		// and reads nothing
		{strings.Repeat("a", 20_000), []string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do printf '%10000d' $i; done"},
			"9"},
	} {
		if r := w.Feed(t, tt.stdin, append([]string{"run", "-it", "host", "--"}, tt.argv...)...).
			Want(t, 0); !strings.Contains(r.Stdout, tt.out) {
			t.Errorf("%v: %q, want %q", tt.argv, r.Stdout, tt.out)
		}
	}
}
