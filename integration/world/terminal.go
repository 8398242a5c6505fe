package world

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

	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/sys"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// PTY is a terminal with somebody in front of it.
type PTY struct {
	t             testing.TB
	master, Slave *os.File

	mu   sync.Mutex
	more *sync.Cond // seen has grown, or the other side is gone
	seen bytes.Buffer
	over bool
}

// OpenPTY makes a terminal.
func OpenPTY(t testing.TB) *PTY {
	t.Helper()
	master := Open(t, "/dev/ptmx", os.O_RDWR|unix.O_NOCTTY)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	p := &PTY{t: t, master: master}
	p.more = sync.NewCond(&p.mu)
	p.Slave = Open(t, fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY)
	return p
}

// Give makes the terminal cmd's controlling one, on all three files.
func (p *PTY) Give(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Slave, p.Slave, p.Slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(append([]string{}, cmd.Env...), "TERM=vt100")
}

// Started gives the slave up and begins to read the screen.
func (p *PTY) Started() {
	p.Slave.Close()
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

// Sees waits until the screen has shown a text.
func (p *PTY) Sees(want string) {
	p.t.Helper()
	late := false
	bound := time.AfterFunc(Patience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		late = true
		p.more.Broadcast()
	})
	defer bound.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !strings.Contains(p.seen.String(), want) {
		switch {
		case p.over:
			p.t.Fatalf("the terminal never showed %q, but %q", want, p.seen.String())
		case late:
			testenv.Late(p.t, "the terminal has not shown %q, but %q", want, p.seen.String())
		}
		p.more.Wait()
	}
}

// Rest is everything the screen has shown when the other side is gone.
func (p *PTY) Rest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over {
		p.more.Wait()
	}
	return p.seen.String()
}

// Screen is what a person sees in the end on a terminal of the usual size, when the other side is gone: lines without
// the spaces behind them, and without empty ones at the end.
func (p *PTY) Screen() []string {
	vt := vt10x.New(vt10x.WithSize(80, 24))
	_, _ = vt.Write([]byte(p.Rest())) // of a terminal without a writer
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(vt.String(), " \n"), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

// Write types keys.
func (p *PTY) Write(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// Resize changes the terminal's size.
func (p *PTY) Resize(rows, cols uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: cols}); err != nil {
		p.t.Fatal(err)
	}
}

// Terminal starts hutch on a new terminal.
func (w *World) Terminal(t testing.TB, args ...string) (*PTY, *exec.Cmd) {
	t.Helper()
	p := OpenPTY(t)
	p.Resize(24, 80)
	cmd := w.Command(args...)
	p.Give(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Started()
	return p, cmd
}

// Stateful is a shell as the tests use it.
type Stateful struct {
	T  testing.TB
	C  *hutch.Client
	Sh api.Shell
}

// OpenShell opens a shell that keeps its state.
func OpenShell(t testing.TB, c *hutch.Client, p api.ShellParams) *Stateful {
	t.Helper()
	sh, err := c.OpenShell(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return &Stateful{t, c, sh}
}

// Run runs a command in the shell.
func (s *Stateful) Run(command string) api.ShellResult {
	s.T.Helper()
	return s.Within(30, command)
}

// Within is Run with a limit of time.
func (s *Stateful) Within(seconds float64, command string) api.ShellResult {
	s.T.Helper()
	r, err := s.C.RunShell(s.T.Context(), api.ShellRunParams{Shell: s.Sh.Shell, Command: command, TimeoutS: &seconds})
	if err != nil {
		s.T.Fatalf("%q: %v", command, err)
	}
	return r
}

// Says runs a command that must succeed and write this, and nothing to stderr.
func (s *Stateful) Says(command, want string) {
	s.T.Helper()
	if r := s.Run(command); r.Stdout != want || r.Stderr != "" || r.ExitCode != 0 || r.Verdict != api.VerdictOK ||
		r.Closed || r.Truncated {
		s.T.Errorf("%q: %+v, want stdout %q", command, r, want)
	}
}

// AwaitBusy waits until a command runs in the last shell of a sandbox.
func AwaitBusy(t testing.TB, c *hutch.Client, sandbox string) {
	t.Helper()
	testenv.Poll(t, Limit, "nothing runs", func() bool {
		list, err := c.ListShells(t.Context(), sandbox)
		return err == nil && len(list) > 0 && list[len(list)-1].Busy
	})
}
