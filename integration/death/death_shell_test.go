package death_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// askAgain calls shell.run until a daemon that lives has answered.
func askAgain(t testing.TB, w *world.World, p api.ShellRunParams) api.ShellResult {
	t.Helper()
	for end := time.Now().Add(world.Patience); time.Now().Before(end); {
		w.OK(t, "rpc", "system.info") // starts the next daemon
		c, err := hutch.Dial(t.Context(), w.Socket())
		if err != nil {
			continue
		}
		r, err := c.RunShell(t.Context(), p)
		_ = c.Close()
		if err == nil {
			return r
		}
		if !errors.Is(err, hutch.ErrLost) && api.ErrorCode(err) != api.Unavailable {
			t.Fatalf("run %d asked for again: %v", p.Run, err)
		}
	}
	testenv.Late(t, "run %d: no daemon answers", p.Run)
	return api.ShellResult{}
}

// TestDaemonDeathShell kills parts of the daemon at random moments of commands in a shell:
// each runs once, its result and output are those of an undisturbed one, and the shell
// keeps its state, as another does in which nothing runs.
func TestDaemonDeathShell(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	busy, idle := world.OpenShell(t, c, api.ShellParams{Sandbox: sb}),
		world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
	idle.Says("cd /usr; export KEPT=1; f() { echo f$KEPT; }", "")
	busy.Says("cd /tmp; n=0; sleep 1000 & echo $! >job", "")
	const lines = 1500
	want := counted(lines)
	n := world.Rounds(60)
	for i := range n {
		c, victim := w.Connect(t), world.Victims[i%len(world.Victims)]
		p := api.ShellRunParams{
			Shell: busy.Sh.Shell, Run: uint64(i + 2),
			Command: fmt.Sprintf("echo run >>/tmp/runs; i=0; while [ $i -lt %d ]; do echo $i; i=$((i+1)); done; n=$((n+1)); (exit 7)", lines),
		}
		type answer struct {
			api.ShellResult
			err error
		}
		first := make(chan answer, 1)
		d := w.Daemon(t)
		go func() {
			r, err := c.RunShell(t.Context(), p)
			first <- answer{r, err}
		}()
		testenv.RandomMoment(world.RunTime)
		world.KillNow(t, victim.PIDs(d))
		r := askAgain(t, w, p)
		if r.ExitCode != 7 || r.Verdict != api.VerdictNonzero || r.Closed || r.Run != p.Run || r.Stdout != want ||
			r.Stderr != "" {
			t.Fatalf("round %d, %s: run %d, exit code %d, %s, closed %v, stderr %q, %d bytes of output, want %d that are the same",
				i, victim.Name, r.Run, r.ExitCode, r.Verdict, r.Closed, r.Stderr, len(r.Stdout), len(want))
		}
		if a := <-first; a.err == nil && (a.Stdout != want || a.ExitCode != 7 || a.From != r.From || a.To != r.To) {
			t.Fatalf("round %d, %s: the first answer was %+v, the second %+v", i, victim.Name, a.ShellResult, r)
		}
		r = askAgain(t, w, api.ShellRunParams{Shell: idle.Sh.Shell, Command: "pwd; f; sh -c 'echo $KEPT'"})
		if r.Stdout != "/usr\nf1\n1\n" || r.ExitCode != 0 {
			t.Fatalf("round %d, %s: the shell that was idle: %+v", i, victim.Name, r)
		}
	}
	busy = &world.Stateful{T: t, C: w.Connect(t), Sh: busy.Sh}
	busy.Says("pwd; echo $n $(wc -l <runs); kill -0 $(cat job) && echo there",
		fmt.Sprintf("/tmp\n%d %d\nthere\n", n, n))
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathShellEnds: what ends a run while no hutchd lives is known to the next,
// and one that nobody asks for again ends with its time.
func TestDaemonDeathShellEnds(t *testing.T) {
	w := world.New(t)
	w.LogOnFailure(t)
	sb := world.Box(t, w.Connect(t))
	for _, tt := range []struct {
		command string
		timeout float64
		code    int
		verdict api.Verdict
		closed  bool
	}{
		{"until [ -e /tmp/go ]; do sleep 0.01; done; echo end; exit 3", 60, 3, api.VerdictNonzero, true},
		{"until [ -e /tmp/go ]; do sleep 0.01; done; echo end; (exit 4)", 60, 4, api.VerdictNonzero, false},
		{"echo end; sleep 1000", 1, 137, api.VerdictTimeoutWall, false},
		{"echo end; exec sleep 1000", 1, 137, api.VerdictTimeoutWall, false},
		{"until [ -e /tmp/go ]; do sleep 0.01; done; echo end; kill -9 $$", 60, 137, api.VerdictSignal, true},
	} {
		t.Run(tt.command, func(t *testing.T) {
			c := w.Connect(t)
			s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
			s.Says("rm -f /tmp/go; x=1", "")
			p := api.ShellRunParams{Shell: s.Sh.Shell, Run: 2, Command: tt.command, TimeoutS: &tt.timeout}
			first := make(chan error, 1)
			go func() {
				_, err := c.RunShell(t.Context(), p)
				first <- err
			}()
			world.AwaitBusy(t, c, sb)
			d := w.Daemon(t)
			// and with it hutchd; nothing of it lives until the next command
			world.Kill(t, d.Monitor)
			if err := <-first; !errors.Is(err, hutch.ErrLost) && tt.timeout > 10 { // else it may have been over by then
				t.Errorf("the call that was lost: %v", err)
			}
			if tt.timeout > 10 {
				w.OK(t, "exec", sb, "--", "touch", "/tmp/go")
			}
			r := askAgain(t, w, p)
			if r.ExitCode != tt.code || r.Verdict != tt.verdict || r.Closed != tt.closed || r.Stdout != "end\n" {
				t.Errorf("%+v", r)
			}
			other := p
			other.Command = "true"
			s = &world.Stateful{T: t, C: w.Connect(t), Sh: s.Sh}
			if _, err := s.C.RunShell(t.Context(), other); api.ErrorCode(err) != api.AlreadyExists {
				t.Errorf("another command under the same number: %v", err)
			}
			if other.Run = 7; !tt.closed {
				if _, err := s.C.RunShell(t.Context(), other); api.ErrorCode(err) != api.FailedPrecondition {
					t.Errorf("a number that is not the next: %v", err)
				}
				s.Says("echo $x", "1\n")
			}
			list, err := s.C.ListShells(t.Context(), sb)
			if last := list[len(list)-1]; err != nil || last.Over != tt.closed || last.Busy || !tt.closed &&
				last.Runs != 3 {
				t.Errorf("%+v %v", list, err)
			}
			if _, err := s.C.CloseShell(t.Context(), s.Sh.Shell); err != nil {
				t.Error(err)
			}
		})
	}
	if got := strings.TrimSpace(w.OK(t, "exec", sb, "--", "sh", "-c",
		"grep -l sleep /proc/[0-9]*/comm 2>/dev/null | wc -l")); got != "0" {
		t.Errorf("%s processes are left", got)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestStopKeepShell: an orderly restart leaves the command that runs in a shell to the
// next daemon.
func TestStopKeepShell(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
	p := api.ShellRunParams{Shell: s.Sh.Shell, Run: 1,
		Command: "until [ -e /tmp/go ]; do sleep 0.01; done; x=2; echo $x"}
	first := make(chan error, 1)
	go func() {
		_, err := c.RunShell(t.Context(), p)
		first <- err
	}()
	world.AwaitBusy(t, c, sb)
	w.OK(t, "rpc", "system.shutdown", `{"mode":"keep"}`)
	if err := <-first; err == nil {
		t.Error("the command has ended")
	}
	w.OK(t, "exec", sb, "--", "touch", "/tmp/go")
	if r := askAgain(t, w, p); r.Stdout != "2\n" || r.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
	s = &world.Stateful{T: t, C: w.Connect(t), Sh: s.Sh}
	s.Says("echo $x", "2\n")
	w.OK(t, "rm", "-f", sb)
}
