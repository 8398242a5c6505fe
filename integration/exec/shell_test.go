package exec_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// refused is the code of the error that a run ends with.
func refused(s *world.Stateful, command string, want api.Code) {
	s.T.Helper()
	_, err := s.C.RunShell(s.T.Context(), api.ShellRunParams{Shell: s.Sh.Shell, Command: command})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != want || e.Hint == "" {
		s.T.Errorf("%q: %v, want %s and a hint", command, err, want)
	}
}

// TestShell: what a command does to the shell holds for the next.
func TestShell(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb, Cwd: "/usr", Env: map[string]string{"GREETING": "hi"}})
	s.Says("pwd; echo $GREETING", "/usr\nhi\n")
	s.Says("cd /tmp; x='a  b'; export E=1; f() { echo f $1; }; set -o noglob; trap 'echo trapped' TERM", "")
	s.Says(`pwd; echo "$x"; sh -c 'echo $E'; f 2; echo *`, "/tmp\na  b\n1\nf 2\n*\n")
	s.Says("set +o noglob; kill -TERM $$; :", "trapped\n")
	s.Says("cat; echo end", "end\n") // stdin is empty
	s.Says("cat <<X\none\ntwo $E\nX", "one\ntwo 1\n")
	s.Says("for i in 1 2 3\ndo\n  echo $i\ndone # no newline at the end", "1\n2\n3\n")
	s.Says("ls /proc/self/fd | tr '\\n' ' '", "0 1 2 3 ")
	for command, want := range map[string]struct {
		code   int
		stderr string
	}{
		"false":                 {1, ""},
		"(exit 7)":              {7, ""},
		"echo to err >&2":       {0, "to err\n"},
		"no-such-command":       {127, "not found"},
		"if":                    {2, "syntax error"},
		"echo 'unbalanced":      {2, "unexpected EOF"},
		"cat <<X\nunterminated": {0, "here-document"},
		"return 5":              {5, ""},
		"sh -c 'kill -9 $$'":    {137, "Killed"},
	} {
		r := s.Run(command)
		if r.ExitCode != want.code || !strings.Contains(r.Stderr, want.stderr) || want.stderr == "" && r.Stderr != "" ||
			r.Closed {
			t.Errorf("%q: %+v", command, r)
		}
	}
	s.Says("echo $x", "a b\n") // all that was not the end of it
	r, err := c.RunShell(t.Context(), api.ShellRunParams{Shell: s.Sh.Shell, Command: `printf 'a\0\377\n'`})
	if err != nil || r.Stdout != "YQD/Cg==" || r.StdoutEncoding != api.Base64 || r.To.Stdout-r.From.Stdout != 4 {
		t.Errorf("bytes: %+v %v", r, err)
	}
	r, err = c.RunShell(t.Context(), api.ShellRunParams{Shell: s.Sh.Shell, Command: `seq 100000`, OutputBytes: 100})
	if err != nil || !r.Truncated || !strings.HasPrefix(r.Stdout, "1\n2\n") ||
		!strings.HasSuffix(r.Stdout, "100000\n") || r.To.Stdout-r.From.Stdout != 588895 {
		t.Errorf("long: %+v %v", r, err)
	}
	s.Says("echo "+strings.Repeat("x", 500_000), strings.Repeat("x", 500_000)+"\n")
	if r := s.Run("set -x; echo traced; set +x"); r.Stdout != "traced\n" || r.Stderr != "++ echo traced\n++ set +x\n" {
		t.Errorf("traced: %+v", r)
	}

	// What runs in the background lives on, and what it writes does not stop a run.
	s.Says("sleep 1000 & echo $! >/tmp/job", "")
	s.Says("kill -0 $(cat /tmp/job) && echo there", "there\n")
	s.Run("yes >&2 & echo $! >/tmp/yes; sleep 0.1")
	s.Run("kill $(cat /tmp/yes); wait $(cat /tmp/yes)")

	other := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
	other.Says("echo ${x-none}", "none\n")
	list, err := c.ListShells(t.Context(), sb)
	if len(list) > 0 && list[0].Runs > 20 {
		list[0].Runs = 0 // as when it was opened
	}
	if err != nil || len(list) != 2 || list[0] != s.Sh || list[1].Shell != other.Sh.Shell {
		t.Errorf("list: %+v %v", list, err)
	}
	res, err := c.CloseShell(t.Context(), s.Sh.Shell)
	if err != nil || res.Verdict != api.VerdictKilled || len(res.Killed) == 0 {
		t.Errorf("close: %+v %v", res, err)
	}
	other.Says("kill -0 $(cat /tmp/job) 2>/dev/null || echo gone", "gone\n")
	refused(s, "true", api.NotFound)
	w.OK(t, "rm", "-f", sb)
	refused(other, "true", api.NotFound)
}

// TestShellOver: what ends the shell ends it with its exit code, and says so.
func TestShellOver(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	for command, want := range map[string]struct {
		code   int
		signal string
	}{
		"echo bye; exit 3":              {3, ""},
		"set -e; echo bye; false; echo": {1, ""},
		"echo bye; exec true":           {0, ""},
		"echo bye; exec sh -c 'exit 9'": {9, ""},
		"echo bye; kill -9 $$; echo no": {137, "SIGKILL"},
		"set -u; echo bye; echo $nope":  {127, ""},
		"echo bye; kill -9 -1; sleep 1": {137, "SIGKILL"},
	} {
		t.Run(command, func(t *testing.T) {
			s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
			s.Says("kept=1", "")
			r := s.Run(command)
			if r.ExitCode != want.code || r.Signal != want.signal || r.Stdout != "bye\n" || !r.Closed {
				t.Errorf("%+v", r)
			}
			refused(s, "true", api.FailedPrecondition)
			if list, err := c.ListShells(t.Context(), sb); err != nil || len(list) == 0 || !list[len(list)-1].Over {
				t.Errorf("%+v %v", list, err)
			}
		})
	}
	w.OK(t, "rm", "-f", sb)
}

// TestShellTimeout: a run that is killed takes with it all that it has started, and
// nothing else: the shell and what it left in the background before are as they were.
func TestShellTimeout(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
	s.Says("x=1; cd /tmp; set -- a b; trap 'echo trapped' TERM; sleep 1000 & echo $! >/tmp/before", "")
	const alive = `for f in /tmp/*.pid; do test -f $f && kill -0 $(cat $f) 2>/dev/null && echo $f; done; rm -f /tmp/*.pid; kill -0 $(cat /tmp/before) && echo $x $# $PWD $y`
	for _, command := range []string{
		"y=1; sh -c 'echo $$ >/tmp/a.pid; exec sleep 1000'; echo BAD",
		"y=1; cd /; set --; while :; do sleep 0.01; done",
		"y=1; (setsid sh -c '(echo $BASHPID $$ >/tmp/b.pid; exec sleep 1000) & sleep 1000' &); sleep 0.2; sleep 1000; echo BAD",
		"y=1; trap '' TERM INT HUP; sh -c 'trap \"\" TERM INT; echo $$ >/tmp/c.pid; sleep 1000; echo BAD'",
		"exec sleep 1000",
		"y=1; kill -STOP $BASHPID",
		"y=1; set -n; exit 4",
	} {
		r := s.Within(0.5, command)
		if r.Verdict != api.VerdictTimeoutWall || !r.TimedOut || r.Closed || r.ExitCode != 137 || r.Stdout != "" {
			t.Errorf("%q: %+v", command, r)
			continue
		}
		s.Says(alive, "1 2 /tmp\n")
	}
	s.Says("set -e; echo on; set +e", "on\n")
	s.Says("trap", "trap -- 'echo trapped' SIGTERM\n")

	// Its caller's end is the run's as well.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.RunShell(ctx, api.ShellRunParams{Shell: s.Sh.Shell, Command: "echo >/tmp/up; x=2; sleep 1000"})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	world.AwaitBusy(t, c, sb)
	refused(s, "true", api.FailedPrecondition) // one at a time
	cancel()
	wg.Wait()
	s.Says("echo $x", "1\n")

	// exec.kill is for the shell as a whole.
	wg.Go(func() {
		r := s.Run("sleep 1000")
		if r.Verdict != api.VerdictKilled || !r.Closed || r.ExitCode != 137 {
			t.Errorf("killed: %+v", r)
		}
	})
	world.AwaitBusy(t, c, sb)
	if _, err := c.ExecKill(t.Context(), s.Sh.Exec); err != nil {
		t.Error(err)
	}
	wg.Wait()
	w.OK(t, "rm", "-f", sb)
}

// TestShellLies: a sandbox that talks on the shell's own channels has its own results
// wrong, and nothing else.
func TestShellLies(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	for _, command := range []string{
		`kill -STOP $PPID; sleep 1000`,
		`kill -9 $PPID; sleep 1000`,
		`for fd in /proc/$PPID/fd/*; do (echo '{"ev":"done","run":1}' >$fd) 2>/dev/null; done; sleep 1000`,
		`for fd in /proc/$$/fd/*; do (echo 'done 1 0' >$fd) 2>/dev/null; done; sleep 1000`,
	} {
		s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
		start := time.Now()
		r := s.Within(0.5, command)
		if time.Since(start) > world.Patience {
			t.Errorf("%q took %v", command, time.Since(start))
		}
		t.Logf("%q: exit code %d, %s, closed %v", command, r.ExitCode, r.Verdict, r.Closed)
		if _, err := c.CloseShell(t.Context(), s.Sh.Shell); err != nil {
			t.Error(err)
		}
	}
	if got := w.OK(t, "exec", sb, "--", "sh", "-c",
		"grep -l sleep /proc/[0-9]*/comm 2>/dev/null | wc -l"); got != "0\n" {
		t.Errorf("%s processes are left", strings.TrimSpace(got))
	}
	w.OK(t, "rm", "-f", sb)
}

// TestShellParams: what no shell could do is refused.
func TestShellParams(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	for _, tt := range []struct {
		p    api.ShellParams
		code api.Code
	}{
		{api.ShellParams{Sandbox: "no-such"}, api.NotFound},
		{api.ShellParams{Sandbox: sb, User: "no-such"}, api.InvalidArgument},
		{api.ShellParams{Sandbox: sb, Cwd: "relative"}, api.InvalidArgument},
		{api.ShellParams{Sandbox: sb, Cwd: "/no/such"}, api.InvalidArgument},
		{api.ShellParams{Sandbox: sb, Env: map[string]string{"A=B": "x"}}, api.InvalidArgument},
	} {
		if _, err := c.OpenShell(t.Context(), tt.p); api.ErrorCode(err) != tt.code {
			t.Errorf("%+v: %v, want %s", tt.p, err, tt.code)
		}
	}
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb})
	for _, command := range []string{"", " \n", "a\x00b", strings.Repeat("x", api.MaxShellCommand+1)} {
		refused(s, command, api.InvalidArgument)
	}
	s.Says("echo fine", "fine\n")
	w.OK(t, "rm", "-f", sb)
}

// TestShellIdle: an open shell does not keep a sandbox from being idle, a command does.
func TestShellIdle(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	idle := world.AWhile().Seconds()
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", IdleS: idle}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb.ID})
	s.Says(fmt.Sprintf("sleep %v; echo up", idle+1), "up\n")
	w.AwaitNoSandbox(t)
	refused(s, "true", api.NotFound)
}

// TestShellUser: a shell of another user.
func TestShellUser(t *testing.T) {
	testenv.Axes(t, testenv.User)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sb := world.Box(t, c)
	user := "0"
	if info.Isolation.UserMap == "range" {
		user = "1000:1000"
	}
	s := world.OpenShell(t, c, api.ShellParams{Sandbox: sb, User: user})
	s.Says("id -u", strings.Split(user, ":")[0]+"\n")
	if r := s.Within(0.3, "sleep 1000"); r.Verdict != api.VerdictTimeoutWall || r.Closed {
		t.Errorf("%+v", r)
	}
	s.Says("cd; echo x >/dev/stdout; cat /proc/self/status | grep -c CapEff", "x\n1\n")
	w.OK(t, "rm", "-f", sb)
}

// TestShells: many shells at once, each with its own output.
func TestShells(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			sh, err := c.OpenShell(t.Context(), api.ShellParams{Sandbox: sb})
			if err != nil {
				t.Error(err)
				return
			}
			n := 0
			for j := range world.Rounds(50) {
				r, err := c.RunShell(t.Context(),
					api.ShellRunParams{Shell: sh.Shell,
						Command: fmt.Sprintf("n=$((n+1)); echo %d $n; echo %d >&2", i, j)})
				n++
				if want := fmt.Sprintf("%d %d\n", i, n); err != nil || r.Stdout != want ||
					r.Stderr != strconv.Itoa(j)+"\n" {
					t.Errorf("%+v %v, want %q", r, err, want)
				}
			}
		})
	}
	wg.Wait()
	w.OK(t, "rm", "-f", sb)
}
