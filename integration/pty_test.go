package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
)

// pty is a terminal with somebody in front of it.
type pty struct {
	t             testing.TB
	master, slave *os.File

	mu   sync.Mutex
	more *sync.Cond // seen has grown, or the other side is gone
	seen bytes.Buffer
	over bool
}

func openPty(t testing.TB) *pty {
	t.Helper()
	master := open(t, "/dev/ptmx", os.O_RDWR|unix.O_NOCTTY)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	p := &pty{t: t, master: master}
	p.more = sync.NewCond(&p.mu)
	p.slave = open(t, fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY)
	return p
}

// give makes the terminal cmd's controlling one, on all three files.
func (p *pty) give(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(append([]string{}, cmd.Env...), "TERM=vt100")
}

// started gives the slave up and begins to read the screen.
func (p *pty) started() {
	p.slave.Close()
	go func() {
		for buf := make([]byte, 4096); ; {
			n, err := sys.ReadMaster(p.master.Read, buf) // EIO when the last slave is closed
			p.mu.Lock()
			p.seen.Write(buf[:n])
			p.over = err != nil
			p.more.Broadcast()
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// sees waits until the screen has shown a text.
func (p *pty) sees(want string) {
	p.t.Helper()
	late := time.AfterFunc(patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.over = true
		p.more.Broadcast()
	})
	defer late.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !strings.Contains(p.seen.String(), want) {
		if p.over {
			p.t.Fatalf("the terminal never showed %q, but %q", want, p.seen.String())
		}
		p.more.Wait()
	}
}

// rest is everything the screen has shown when the other side is gone.
func (p *pty) rest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over {
		p.more.Wait()
	}
	return p.seen.String()
}

func (p *pty) write(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pty) resize(rows, cols uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		p.t.Fatal(err)
	}
}

// shell starts an interactive `hutch run` on a new terminal.
func (w *world) terminal(t testing.TB, args ...string) (*pty, *exec.Cmd) {
	t.Helper()
	p := openPty(t)
	p.resize(24, 80)
	cmd := w.command(args...)
	p.give(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.started()
	return p, cmd
}

// TestTerminal: a terminal of the sandbox's own, of the caller's size and kind,
// with job control.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("tty", func(t *testing.T) {
		p, cmd := w.terminal(t, "run", "-it", "host", "--", "sh", "-c", "tty; stty size; echo $TERM; readlink /proc/self/fd/0; exit 3")
		if code := await(t, cmd); code != 3 {
			t.Errorf("exit code %d, want 3", code)
		}
		if got, want := p.rest(), "/dev/pts/0\r\n24 80\r\nvt100\r\n/dev/pts/0\r\n"; got != want {
			t.Errorf("the terminal showed %q, want %q", got, want)
		}
	})
	t.Run("shell", func(t *testing.T) {
		p, cmd := w.terminal(t, "run", "-it", "host", "--", "sh", "-c", "PS1='$ ' exec sh")
		p.sees("$ ")
		p.write("echo $((6*7))\n")
		p.sees("42\r\n")
		p.write("sh -c 'echo run''ning; exec sleep infinity'; echo code $?\n") // Ctrl-C reaches the command, not the shell
		p.sees("running\r\n")
		p.write("\x03")
		p.write("echo alive\n")
		p.sees("alive\r\n")
		p.write("sh -c 'trap \"stty size; kill 0\" WINCH; echo wait''ing; sleep infinity & wait'\n")
		p.sees("waiting\r\n")
		p.resize(50, 132)
		p.sees("50 132\r\n")
		p.write("exit 9\n")
		if code := await(t, cmd); code != 9 {
			t.Errorf("exit code %d, want 9", code)
		}
	})
	t.Run("restored", func(t *testing.T) {
		p := openPty(t)
		before, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		keep, err := unix.FcntlInt(p.slave.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(keep)
		cmd := w.command("run", "-it", "host", "true")
		p.give(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.started()
		if code := await(t, cmd); code != 0 {
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
		p, cmd := w.terminal(t, "run", "-it", "host", "--", "sh", "-c", "trap '' HUP; echo ready; sleep infinity")
		p.sees("ready")
		kill(t, cmd.Process.Pid)
		await(t, cmd)
		w.awaitNoSandbox(t)
	})
	t.Run("without one", func(t *testing.T) {
		for _, stdin := range []string{"", "line\n", "part"} {
			want := strings.ReplaceAll(stdin, "\n", "\r\n") // echoed
			r := w.feed(t, stdin, "run", "-t", "host", "--", "sh", "-c", "cat; tty").want(t, 0)
			if !strings.HasPrefix(r.stdout, want) || !strings.HasSuffix(r.stdout, "/dev/pts/0\r\n") {
				t.Errorf("stdin %q: the terminal showed %q", stdin, r.stdout)
			}
		}
	})
}
