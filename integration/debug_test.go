package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDebugRun: the story of a command that is refused something names it, says by what and
// how to allow it, and the command's own output and exit code are what they are.
func TestDebugRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	needsPython(t)
	const lookup = `import socket, sys
try: socket.getaddrinfo(sys.argv[1], 80)
except OSError as e: print("refused"); sys.exit(4)
print("resolved")`
	r := w.run(t, "debug", "run", "--allow", "good.test", "host", "--", "python3", "-B", "-c", lookup, "evil.test")
	if r.code != 4 || r.stdout != "refused\n" {
		t.Errorf("exit %d: %q", r.code, r.stdout)
	}
	for _, want := range []string{"\nsandbox sb_", "  launch ", "  record ", "user namespace", "  refused ", "evil.test, by names NXDOMAIN", "to allow it: --allow evil.test", "nonzero, exit code 4"} {
		if !strings.Contains("\n"+r.stderr, want) {
			t.Errorf("the story lacks %q:\n%s", want, r.stderr)
		}
	}
	// The twin.
	r = w.run(t, "debug", "run", "--allow", "evil.test", "host", "--", "python3", "-B", "-c", lookup, "evil.test")
	if r.code != 0 || r.stdout != "resolved\n" || strings.Contains(r.stderr, "  refused ") {
		t.Errorf("allowed: exit %d: %q\n%s", r.code, r.stdout, r.stderr)
	}
	// And for programs.
	r = w.run(t, "debug", "run", "--json", "--allow", "good.test", "host", "--", "python3", "-B", "-c", lookup, "evil.test")
	var all struct {
		Sandbox api.Sandbox
		Mounts  string
		Events  []api.Event
		Result  api.ExecResult
	}
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil || r.code != 4 || r.stderr != "" {
		t.Fatalf("%v: exit %d: %q\n%s", err, r.code, r.stdout, r.stderr)
	}
	denied := slices.ContainsFunc(all.Events, func(e api.Event) bool {
		return e.Kind == api.EventNetworkDenied && strings.Contains(string(e.Data), "evil.test")
	})
	if d := all.Sandbox.Debug; !denied || all.Result.Stdout != "refused\n" || !strings.Contains(all.Mounts, " / /proc rw,") || d == nil || len(d.Steps) != len(api.DebugPhases) || len(d.Config) == 0 || len(d.Seccomp) == 0 {
		t.Errorf("%+v", all)
	}
	if daemons := w.daemons(); len(daemons) != 0 {
		t.Errorf("daemons are left: %+v", daemons)
	}
}

// TestDebugBreak: a creation stops behind the phase that is named, for a shell beside it as long as
// not all walls are up and for one inside afterwards, goes on when that ends, and leaves nothing when
// the caller dies meanwhile.
func TestDebugBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const look = `echo "folder $(test -d "$HUTCH_FOLDER/fs" && echo there), filters $(sed -n 's/^Seccomp_filters:.//p' /proc/$HUTCH_PID/status)"
cat /proc/$HUTCH_PID/comm; exit 3`
	for _, test := range []struct{ phase, shell, want string }{
		{"folders", `echo "$HUTCH_SANDBOX $(ls "$HUTCH_FOLDER")" pid $HUTCH_PID.`, "pid .\n"},
		{"launch", look, "folder there, filters "},
		{"limits", look, "folder there, filters "}, // PID 1 may be on its way to its own until guest
		{"record", "echo inside of $(hostname); touch /tmp/seen; exit 4", "inside of hutch-"},
	} {
		r := w.feed(t, test.shell, "debug", "run", "--break", test.phase, "host", "--", "sh", "-c", "ls /tmp/seen; echo the command")
		if r.code != 0 || !strings.Contains(r.stdout, test.want) || !strings.HasSuffix(r.stdout, "the command\n") {
			t.Errorf("%s: exit %d: %q\n%s", test.phase, r.code, r.stdout, r.stderr)
		}
		if !strings.Contains(r.stderr, "stopped behind "+test.phase) || strings.Contains(r.stdout, "/tmp/seen") != (test.phase == "record") {
			t.Errorf("%s: %q\n%s", test.phase, r.stdout, r.stderr)
		}
	}
	if r := w.run(t, "debug", "run", "--break", "lunch", "host", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "none of image, folders") {
		t.Errorf("a phase that there is not: exit %d: %s", r.code, r.stderr)
	}
	// Of a caller that dies nothing is left.
	c := w.launch(t, "debug", "run", "--break", "launch", "host", "--", "true")
	if _, err := io.WriteString(c.stdin, "echo stopped\n"); err != nil {
		t.Fatal(err)
	}
	c.await(t, "stopped")
	c.signal(t, os.Kill)
	_ = c.stdin.Close() // of the shell, which is not hutch's
	c.end(t)
	w.awaitNoSandbox(t)
}

// TestBreakParams: what asks for a break that can not be is refused, and nothing is left of it.
func TestBreakParams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
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
		"phase":         {api.CreateParams{Debug: true, Break: &api.Break{Phase: "total"}}, []*os.File{r}, "break.phase"},
		"file":          {api.CreateParams{Debug: true, Break: &api.Break{Phase: "launch"}}, []*os.File{file}, "break.fd"},
		"no fd":         {api.CreateParams{Debug: true, Break: &api.Break{Phase: "launch", FD: 1}}, []*os.File{r}, ""},
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
	_, err = c.CreateSandbox(ctx, api.CreateParams{Spec: api.Spec{Image: "host"}, Debug: true, Break: &api.Break{Phase: "limits"}}, []*os.File{r}, func(p api.Progress) {
		if p.Kind == api.ProgressBreak {
			cancel(errors.New("enough"))
		}
	})
	if err == nil {
		t.Error("the creation went on")
	}
	w.awaitNoSandbox(t)
}

// TestDebugLive: what a living sandbox is refused shows as it happens, and ends with it; a shell in it
// has the walls that it says it has.
func TestDebugLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sb := w.create(t, "--allow", "good.test", "host")
	w.run(t, "exec", sb, "--", "sh", "-c", "unshare -U true; getent hosts evil.test")
	if r := w.run(t, "debug", "net", "-n", sb); r.code != 0 || !strings.Contains(r.stdout, `"good.test"`) || !strings.Contains(r.stdout, "evil.test, by names NXDOMAIN") ||
		strings.Contains(r.stdout, "unshare") {
		t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	live := w.launch(t, "debug", "syscalls", sb)
	live.awaitPart(t, "unshare(0x10000000")
	// mount of newer util-linux has fsopen(2) refused first, umount has one call to make.
	w.run(t, "exec", sb, "--", "umount", "/proc")
	live.awaitPart(t, "umount2(")
	r := w.feed(t, "touch /tmp/x && echo as $(id -u); unshare -U true; exit 5", "debug", "shell", sb)
	if r.code != 5 || r.stdout != "as 0\n" || !strings.Contains(r.stderr, "user namespace") || !strings.Contains(r.stderr, "mode allow") {
		t.Errorf("exit %d: %q\n%s", r.code, r.stdout, r.stderr)
	}
	w.ok(t, "rm", "-f", sb)
	if code := live.end(t); code != 0 {
		t.Errorf("debug syscalls of a sandbox that is gone: exit %d", code)
	}
	if r := w.run(t, "debug", "shell", sb); r.code != 125 || !strings.Contains(r.stderr, sb) {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}
