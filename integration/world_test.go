package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// patience bounds every wait for something that must happen. It is generous: it
// only matters when a test fails.
var patience = testenv.Patience(20 * time.Second)

// reporter is the part of testing.TB that both tests and scripts have.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is the part of the machine that belongs to one test: folders, socket and
// so the daemon. Its end checks that nothing of it is left.
type world struct {
	t    reporter
	dir  string   // short: a socket's path holds 107 bytes
	bin  string   // folder of the binaries
	vars []string // the environment of every command
	// tolerated are parts of error lines that the test provokes in the log.
	tolerated []string
	trees     []string // cgroups that must be gone in the end
}

// newWorld makes the world of a test, which ends with it.
func newWorld(t testing.TB, vars ...string) *world {
	t.Helper()
	w, err := makeWorld(t, filepath.Dir(testenv.Bin(t, "hutch")), vars...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	return w
}

func makeWorld(t reporter, bin string, vars ...string) (*world, error) {
	dir, err := os.MkdirTemp("", "hi")
	if err != nil {
		return nil, err
	}
	w := &world{t: t, dir: dir, bin: bin}
	for _, sub := range []string{"run", "home", "tmp"} {
		if err := os.Mkdir(w.path(sub), 0o700); err != nil {
			return nil, err
		}
	}
	w.vars = append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + w.path("home"), "TMPDIR=" + w.path("tmp"), "LANG=C.UTF-8",
		"HUTCH_ROOT=" + w.root(), "HUTCH_SOCKET=" + w.socket(), "XDG_RUNTIME_DIR=" + w.path("run"),
		"HUTCH_CONFIG=" + w.path("home/config.yaml"),
	}, vars...)
	return w, nil
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }
func (w *world) root() string            { return w.path("state") }
func (w *world) socket() string          { return w.path("sock") }
func (w *world) log() string             { return filepath.Join(w.root(), "hutchd.log") }

// sub is a new folder of the caller's, for a workspace or files.
func (w *world) sub(t testing.TB, name string) string {
	t.Helper()
	if err := os.MkdirAll(w.path(name), 0o755); err != nil {
		t.Fatal(err)
	}
	return w.path(name)
}

// command is hutch with these arguments.
func (w *world) command(args ...string) *exec.Cmd { return w.program("hutch", args...) }

// program is one of the binaries.
func (w *world) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bin, name), args...)
	cmd.Env = w.vars
	cmd.Dir = w.dir
	return cmd
}

// result is how a command ended.
type result struct {
	args           []string
	code           int
	stdout, stderr string
}

// run runs hutch to its end. Its stdin is empty.
func (w *world) run(t testing.TB, args ...string) result {
	t.Helper()
	return w.finish(t, w.command(args...))
}

// feed is run with a text on stdin.
func (w *world) feed(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	cmd := w.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	return w.finish(t, cmd)
}

// finish runs cmd to its end. Output that is not redirected is captured.
func (w *world) finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	code := await(t, cmd)
	return result{cmd.Args, code, out.String(), errs.String()}
}

// await waits for a started command and returns its exit code; death by a signal
// is 128+n, as in a shell. A command that does not end fails the test.
func await(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s did not end within %v", strings.Join(cmd.Args, " "), patience)
	}
	if code, ok := exitCode(err); ok {
		return code
	}
	t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	return 0
}

// exitCode is the code of a command that ended with err, as a shell has it.
func exitCode(err error) (int, bool) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, true
	case !errors.As(err, &exit):
		return 0, false
	case exit.ExitCode() < 0:
		return 128 + int(exit.Sys().(interface{ Signal() syscall.Signal }).Signal()), true
	}
	return exit.ExitCode(), true
}

// want fails the test unless the command ended with code.
func (r result) want(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s",
			strings.Join(r.args, " "), r.code, code, abridged(r.stdout), abridged(r.stderr))
	}
	return r
}

// says fails the test unless stderr holds every part.
func (r result) says(t testing.TB, parts ...string) result {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(r.stderr, part) {
			t.Fatalf("%s: stderr does not say %q:\n%s", strings.Join(r.args, " "), part, abridged(r.stderr))
		}
	}
	return r
}

func abridged(s string) string {
	if len(s) > 4000 {
		return s[:2000] + "\n[...]\n" + s[len(s)-2000:]
	}
	return s
}

// ok runs hutch, which must succeed, and returns its stdout.
func (w *world) ok(t testing.TB, args ...string) string {
	t.Helper()
	return w.run(t, args...).want(t, 0).stdout
}

// inside runs a command in a new sandbox of the host image, which must succeed,
// and returns its stdout.
func (w *world) inside(t testing.TB, argv ...string) string {
	t.Helper()
	return w.ok(t, append([]string{"run", "host", "--"}, argv...)...)
}

// create makes a sandbox that stays, and returns its id.
func (w *world) create(t testing.TB, args ...string) string {
	t.Helper()
	return strings.TrimSpace(w.ok(t, append([]string{"create"}, args...)...))
}

// decode reads JSON that a command printed.
func decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in:\n%s", err, abridged(text))
	}
	return v
}

// end ends the daemon, if one runs, and checks that nothing is left.
func (w *world) end() {
	w.t.Helper()
	w.shutdown()
	for _, what := range w.left(patience) {
		w.t.Errorf("left behind: %s", what)
	}
	reap()
	w.checkLog()
	if err := os.RemoveAll(w.dir); err != nil && !errors.Is(err, fs.ErrPermission) {
		// Layers hold files of subordinate ids, which only root can remove; the home
		// of a test user goes as a whole.
		w.t.Errorf("remove the folder of the test: %v", err)
	}
}

// shutdown asks a running daemon to remove everything and waits for its end.
func (w *world) shutdown() {
	w.t.Helper()
	// A hutch-launch whose monitor was killed waits for the next.
	orphaned, _ := filepath.Glob(filepath.Join(w.root(), "launch-*.sock"))
	if _, err := os.Stat(w.socket()); len(orphaned) == 0 && (err != nil || !w.answers()) {
		return
	}
	w.noteTrees()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.bin, "hutch"), "rpc", "system.shutdown", `{"mode":"kill"}`)
	cmd.Env = w.vars
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Errorf("shut the daemon down: %v: %s", err, out)
	}
}

// logOnFailure shows the daemon's log when the test has failed.
func (w *world) logOnFailure(t testing.TB) {
	t.Cleanup(func() {
		if text, err := os.ReadFile(w.log()); err == nil && t.Failed() {
			t.Logf("the daemon's log:\n%s", abridged(string(text)))
		}
	})
}

// checkLog looks for errors that the daemon told nobody but its log.
func (w *world) checkLog() {
	w.t.Helper()
	f, err := os.Open(w.log())
	if err != nil {
		return
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		w.t.Errorf("read the daemon's log: %v", err)
	}
	at := 0
lines:
	for line := range strings.Lines(string(text)) {
		at += len(line)
		if !strings.Contains(line, "level=ERROR") && !strings.Contains(line, "panic") && !strings.Contains(line, "fatal error") && !strings.Contains(line, "DATA RACE") {
			continue
		}
		for _, part := range w.tolerated {
			if strings.Contains(line, part) {
				continue lines
			}
		}
		w.t.Errorf("the daemon's log: %s", line)
		if strings.HasPrefix(line, "panic") { // where
			w.t.Logf("%s", text[at:min(len(text), at+4<<10)])
		}
	}
}

// needs skips t where the machine has not got a program.
func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			testenv.Require(t, probe.Check{Name: p, Status: probe.No, Detail: err.Error(), Remedy: "make deps"})
		}
	}
}

// needsPython skips t where the host image has no python3.
func needsPython(t testing.TB) { t.Helper(); needsInside(t, "/usr/bin/python3") }

// needsInside skips t where the host image, which shows the host's /usr, has no such
// program.
func needsInside(t testing.TB, program string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		testenv.Require(t, probe.Check{Name: filepath.Base(program), Status: probe.No, Detail: err.Error(), Remedy: "make deps, or install it for all users"})
	}
}
