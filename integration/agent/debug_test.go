package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDebugRun: the story of a command that is refused something names it, says by what and
// how to allow it, and the command's own output and exit code are what they are.
func TestDebugRun(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	world.NeedsPython(t)
	const lookup = `import socket, sys
try: socket.getaddrinfo(sys.argv[1], 80)
except OSError as e: print("refused"); sys.exit(4)
print("resolved")`
	r := w.Run(t, "debug", "run", "--allow", "good.test", "host", "--", "python3", "-B", "-c", lookup, "evil.test")
	if r.Code != 4 || r.Stdout != "refused\n" {
		t.Errorf("exit %d: %q", r.Code, r.Stdout)
	}
	for _, want := range []string{"\nsandbox sb_", "  launch ", "  record ", "user namespace", "  refused ",
		"evil.test, by names NXDOMAIN", "to allow it: --allow evil.test", "nonzero, exit code 4"} {
		if !strings.Contains("\n"+r.Stderr, want) {
			t.Errorf("the story lacks %q:\n%s", want, r.Stderr)
		}
	}
	// The twin.
	r = w.Run(t, "debug", "run", "--allow", "evil.test", "host", "--", "python3", "-B", "-c", lookup, "evil.test")
	if r.Code != 0 || r.Stdout != "resolved\n" || strings.Contains(r.Stderr, "  refused ") {
		t.Errorf("allowed: exit %d: %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
	// What a stricter profile refuses is not recorded: nobody may be told that it was not the sandbox.
	r = w.Run(t, "debug", "run", "--seccomp", "build", "host", "--", "sh", "-c", "exit 3")
	if r.Code != 3 || !strings.Contains(r.Stderr,
		"not recorded are system calls that fail with ENOSYS, and those that the seccomp profile build refuses") {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
	// And for programs.
	r = w.Run(t, "debug", "run", "--json", "--allow", "good.test", "host", "--", "python3", "-B", "-c", lookup,
		"evil.test")
	var all struct {
		Sandbox api.Sandbox
		Mounts  string
		Events  []api.Event
		Result  api.ExecResult
	}
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || r.Code != 4 || r.Stderr != "" {
		t.Fatalf("%v: exit %d: %q\n%s", err, r.Code, r.Stdout, r.Stderr)
	}
	denied := slices.ContainsFunc(all.Events, func(e api.Event) bool {
		return e.Kind == api.EventNetworkDenied && strings.Contains(string(e.Data), "evil.test")
	})
	if d := all.Sandbox.Debug; !denied || all.Result.Stdout != "refused\n" ||
		!strings.Contains(all.Mounts, " / /proc rw,") || d == nil || len(d.Steps) != len(api.DebugPhases) ||
		len(d.Config) == 0 || len(d.Seccomp) == 0 {
		t.Errorf("%+v", all)
	}
	if daemons := w.Daemons(); len(daemons) != 0 {
		t.Errorf("daemons are left: %+v", daemons)
	}
}

// TestDebugBreak: a creation stops behind the phase that is named, for a shell beside it as long as
// not all walls are up and for one inside afterwards, goes on when that ends, and leaves nothing when
// the caller dies meanwhile.
func TestDebugBreak(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const look = `echo "folder $(test -d "$HUTCH_FOLDER/fs" && echo there), filters $(sed -n 's/^Seccomp_filters:.//p' /proc/$HUTCH_PID/status)"
cat /proc/$HUTCH_PID/comm; exit 3`
	for _, test := range []struct{ phase, shell, want string }{
		{"folders", `echo "$HUTCH_SANDBOX $(ls "$HUTCH_FOLDER")" pid $HUTCH_PID.`, "pid .\n"},
		{"launch", look, "folder there, filters "},
		{"limits", look, "folder there, filters "}, // PID 1 may be on its way to its own until guest
		{"record", "echo inside of $(hostname); touch /tmp/seen; exit 4", "inside of hutch-"},
	} {
		r := w.Feed(t, test.shell, "debug", "run", "--break", test.phase, "host", "--", "sh", "-c",
			"ls /tmp/seen; echo the command")
		if r.Code != 0 || !strings.Contains(r.Stdout, test.want) || !strings.HasSuffix(r.Stdout, "the command\n") {
			t.Errorf("%s: exit %d: %q\n%s", test.phase, r.Code, r.Stdout, r.Stderr)
		}
		if !strings.Contains(r.Stderr, "stopped behind "+test.phase) ||
			strings.Contains(r.Stdout, "/tmp/seen") != (test.phase == "record") {
			t.Errorf("%s: %q\n%s", test.phase, r.Stdout, r.Stderr)
		}
	}
	if r := w.Run(t, "debug", "run", "--break", "lunch", "host", "--", "true"); r.Code != 125 ||
		!strings.Contains(r.Stderr, "none of image, folders") {
		t.Errorf("a phase that there is not: exit %d: %s", r.Code, r.Stderr)
	}
	// Of a caller that dies nothing is left.
	c := w.Launch(t, "debug", "run", "--break", "launch", "host", "--", "true")
	if _, err := io.WriteString(c.Stdin, "echo stopped\n"); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "stopped")
	c.Signal(t, os.Kill)
	_ = c.Stdin.Close() // of the shell, which is not hutch's
	c.End(t)
	w.AwaitNoSandbox(t)
}

// TestBreakParams: what asks for a break that cannot be is refused, and nothing is left of it.
func TestBreakParams(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	r, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer held.Close()
	file, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, test := range map[string]struct {
		p     api.CreateParams
		files []*os.File
		field string
	}{
		"without debug": {api.CreateParams{Break: &api.Break{Phase: "launch"}}, []*os.File{r}, "break"},
		"phase": {api.CreateParams{Debug: true, Break: &api.Break{Phase: "total"}}, []*os.File{r},
			"break.phase"},
		"file": {api.CreateParams{Debug: true, Break: &api.Break{Phase: "launch"}}, []*os.File{file},
			"break.fd"},
		"no fd": {api.CreateParams{Debug: true, Break: &api.Break{Phase: "launch", FD: 1}}, []*os.File{r}, ""},
	} {
		test.p.Image = "host"
		_, err := c.CreateSandbox(t.Context(), test.p, test.files, nil)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.InvalidArgument || test.field != "" && e.Field != test.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A call that is canceled does not wait for its break.
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}, Debug: true,
		Break: &api.Break{Phase: "limits"}}, []*os.File{r}, func(p api.Progress) {
		if p.Kind == api.ProgressBreak {
			cancel(errors.New("enough"))
		}
	})
	if err == nil {
		t.Error("the creation went on")
	}
	w.AwaitNoSandbox(t)
}

// TestDebugLive: what a living sandbox is refused shows as it happens, and ends with it; a shell in it
// has the walls that it says it has.
func TestDebugLive(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	sb := w.Create(t, "--allow", "good.test", "host")
	w.Run(t, "exec", sb, "--", "sh", "-c", "unshare -U true; getent hosts evil.test")
	if r := w.Run(t, "debug", "net", "-n", sb); r.Code != 0 || !strings.Contains(r.Stdout, `"good.test"`) ||
		!strings.Contains(r.Stdout, "evil.test, by names NXDOMAIN") ||
		strings.Contains(r.Stdout, "unshare") {
		t.Errorf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	live := w.Launch(t, "debug", "syscalls", sb)
	live.AwaitPart(t, "unshare(0x10000000")
	// mount of newer util-linux has fsopen(2) refused first, umount has one call to make.
	w.Run(t, "exec", sb, "--", "umount", "/proc")
	live.AwaitPart(t, "umount2(")
	r := w.Feed(t, "touch /tmp/x && echo as $(id -u); unshare -U true; exit 5", "debug", "shell", sb)
	if r.Code != 5 || r.Stdout != "as 0\n" || !strings.Contains(r.Stderr, "user namespace") ||
		!strings.Contains(r.Stderr, "mode allow") {
		t.Errorf("exit %d: %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
	w.OK(t, "rm", "-f", sb)
	if code := live.End(t); code != 0 {
		t.Errorf("debug syscalls of a sandbox that is gone: exit %d", code)
	}
	if r := w.Run(t, "debug", "shell", sb); r.Code != 125 || !strings.Contains(r.Stderr, sb) {
		t.Errorf("exit %d: %s", r.Code, r.Stderr)
	}
}
