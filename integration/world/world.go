// Package world is what the stories share, which are the packages of end-to-end tests beside
// it: the part of the machine that belongs to one test, how its commands are run, and the check
// that nothing is left of it. It may be imported by tests of integration alone.
package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// Limit bounds every wait for something that must happen. It is generous: it
// only matters when a test fails. It is for testenv, which knows how slow the machine is.
const Limit = 20 * time.Second

// Patience is Limit on this machine, for whoever does not ask testenv.
var Patience = testenv.Patience(Limit)

// Reporter is the part of testing.TB that both tests and scripts have.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// World is the part of the machine that belongs to one test: folders, socket and
// so the daemon. Its end checks that nothing of it is left.
type World struct {
	t    Reporter
	Dir  string   // short: a socket's path holds 107 bytes
	Bin  string   // folder of the binaries
	Vars []string // the environment of every command
	// tolerated are parts of error lines that the test provokes in the log.
	Tolerated []string
	trees     []string // cgroups that must be gone in the end
	late      error    // of a shutdown that took too long
}

// New makes the world of a test, which ends with it.
func New(t testing.TB, vars ...string) *World {
	t.Helper()
	w, err := Make(t, filepath.Dir(testenv.Bin(t, "hutch")), vars...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.End)
	return w
}

// Make makes a world of the binaries in a folder; the caller ends it.
func Make(t Reporter, bin string, vars ...string) (*World, error) {
	dir, err := os.MkdirTemp("", "hi")
	if err != nil {
		return nil, err
	}
	w := &World{t: t, Dir: dir, Bin: bin}
	for _, sub := range []string{"run", "home", "tmp"} {
		if err := os.Mkdir(w.Path(sub), 0o700); err != nil {
			return nil, err
		}
	}
	w.Vars = append([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + w.Path("home"), "TMPDIR=" + w.Path("tmp"), "LANG=C.UTF-8",
		"HUTCH_ROOT=" + w.Root(), "HUTCH_SOCKET=" + w.Socket(), "XDG_RUNTIME_DIR=" + w.Path("run"),
		"HUTCH_CONFIG=" + w.Path("home/config.yaml"),
	}, vars...)
	return w, nil
}

// Path is that of a file of the world.
func (w *World) Path(name string) string { return filepath.Join(w.Dir, name) }

// Root is the state folder.
func (w *World) Root() string { return w.Path("state") }

// Socket is the daemon's.
func (w *World) Socket() string { return w.Path("sock") }

func (w *World) log() string { return filepath.Join(w.Root(), "hutchd.log") }

// Sub is a new folder of the caller's, for a workspace or files.
func (w *World) Sub(t testing.TB, name string) string {
	t.Helper()
	if err := os.MkdirAll(w.Path(name), 0o755); err != nil {
		t.Fatal(err)
	}
	return w.Path(name)
}

// Command is hutch with these arguments.
func (w *World) Command(args ...string) *exec.Cmd { return w.Program("hutch", args...) }

// Program is one of the binaries.
func (w *World) Program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.Bin, name), args...)
	cmd.Env = w.Vars
	cmd.Dir = w.Dir
	return cmd
}

// Result is how a command ended.
type Result struct {
	Args           []string
	Code           int
	Stdout, Stderr string
}

// Run runs hutch to its end. Its stdin is empty.
func (w *World) Run(t testing.TB, args ...string) Result {
	t.Helper()
	return w.Finish(t, w.Command(args...))
}

// Feed is run with a text on stdin.
func (w *World) Feed(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	cmd := w.Command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	return w.Finish(t, cmd)
}

// Finish runs cmd to its end. Output that is not redirected is captured.
func (w *World) Finish(t testing.TB, cmd *exec.Cmd) Result {
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
	code := Await(t, cmd)
	return Result{cmd.Args, code, out.String(), errs.String()}
}

// FinishInSteps is Finish for a command of many steps, which writes to stdout at each: it fails the test when it writes
// nothing more.
func (w *World) FinishInSteps(t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	var errs bytes.Buffer
	out := &steps{late: time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })}
	cmd.Stdout, cmd.Stderr = out, &errs
	err := cmd.Run()
	if !out.late.Stop() {
		testenv.Late(t, "%s wrote nothing for %v, after %s", strings.Join(cmd.Args, " "), Patience,
			Abridged(out.text.String()))
	}
	code, ok := ExitCode(err)
	if !ok {
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return Result{cmd.Args, code, out.text.String(), errs.String()}
}

// FinishBusy is Finish for a command with much to do: it fails the test when the command has computed nothing for a
// while, however long it takes on a machine that has others to serve.
func (w *World) FinishBusy(t testing.TB, args ...string) Result {
	t.Helper()
	cmd := w.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	looks := time.NewTicker(Patience)
	defer looks.Stop()
	for used := time.Duration(0); ; {
		select {
		case err := <-ended:
			code, ok := ExitCode(err)
			if !ok {
				t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
			}
			return Result{cmd.Args, code, out.String(), errs.String()}
		case <-looks.C:
		}
		now := cpuTime(cmd.Process.Pid)
		if now-used < Patience/100 {
			_ = cmd.Process.Kill()
			<-ended
			testenv.Late(t, "%s computed for %v in %v, %v in all", strings.Join(cmd.Args, " "), now-used, Patience, now)
		}
		used = now
	}
}

// cpuTime is what a process has used (proc(5), stat: utime and stime, in hundredths of a second).
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// steps puts off the end of its command's time with each write. It has no other way in: io.Copy would take a buffer's
// ReadFrom.
type steps struct {
	text bytes.Buffer
	late *time.Timer
}

func (s *steps) Write(b []byte) (int, error) {
	if s.late.Stop() {
		s.late.Reset(Patience)
	}
	return s.text.Write(b)
}

// Await waits for a started command and returns its exit code; death by a signal
// is 128+n, as in a shell. A command that does not end fails the test.
func Await(t testing.TB, cmd *exec.Cmd) int {
	t.Helper()
	late := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		testenv.Late(t, "%s did not end within %v", strings.Join(cmd.Args, " "), Patience)
	}
	if code, ok := ExitCode(err); ok {
		return code
	}
	t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	return 0
}

// Fatal ends t for an error: as late where it is that a deadline has passed, which was made of Patience.
func Fatal(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		testenv.Late(t, "%v", err)
	}
	t.Fatal(err)
}

// AwaitEnd returns when a process has ended that was told to, or that nothing keeps: what says which. One that
// was killed must not outlive that, see Kill.
func AwaitEnd(t testing.TB, pid int, what string) {
	t.Helper()
	if !Ended(pid, Patience) {
		testenv.Late(t, "%s, process %d, does not end", what, pid)
	}
}

// ExitCode is the code of a command that ended with err, as a shell has it.
func ExitCode(err error) (int, bool) {
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

// Want fails the test unless the command ended with code.
func (r Result) Want(t testing.TB, code int) Result {
	t.Helper()
	if r.Code != code {
		t.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s",
			strings.Join(r.Args, " "), r.Code, code, Abridged(r.Stdout), Abridged(r.Stderr))
	}
	return r
}

// Says fails the test unless stderr holds every part.
func (r Result) Says(t testing.TB, parts ...string) Result {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(r.Stderr, part) {
			t.Fatalf("%s: stderr does not say %q:\n%s", strings.Join(r.Args, " "), part, Abridged(r.Stderr))
		}
	}
	return r
}

// SaysNot fails the test if stderr holds a part.
func (r Result) SaysNot(t testing.TB, part string) Result {
	t.Helper()
	if strings.Contains(r.Stderr, part) {
		t.Fatalf("%s: stderr says %q:\n%s", strings.Join(r.Args, " "), part, Abridged(r.Stderr))
	}
	return r
}

// Abridged is a text without the middle of what is too long to read.
func Abridged(s string) string {
	if len(s) > 4000 {
		return s[:2000] + "\n[...]\n" + s[len(s)-2000:]
	}
	return s
}

// OK runs hutch, which must succeed, and returns its stdout.
func (w *World) OK(t testing.TB, args ...string) string {
	t.Helper()
	return w.Run(t, args...).Want(t, 0).Stdout
}

// Inside runs a command in a new sandbox of the host image, which must succeed,
// and returns its stdout.
func (w *World) Inside(t testing.TB, argv ...string) string {
	t.Helper()
	return w.OK(t, append([]string{"run", "host", "--"}, argv...)...)
}

// Create makes a sandbox that stays, and returns its id.
func (w *World) Create(t testing.TB, args ...string) string {
	t.Helper()
	return strings.TrimSpace(w.OK(t, append([]string{"create"}, args...)...))
}

// Decode reads JSON that a command printed.
func Decode[T any](t testing.TB, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in:\n%s", err, Abridged(text))
	}
	return v
}

// End ends the daemon, if one runs, and checks that nothing is left.
func (w *World) End() {
	w.t.Helper()
	w.Shutdown()
	for _, what := range w.Left(Patience) {
		w.wrong("left behind: %s", what)
	}
	reap()
	w.checkLog()
	if err := os.RemoveAll(w.Dir); err != nil && !errors.Is(err, fs.ErrPermission) {
		// Layers hold files of subordinate ids, which only root can remove; the home
		// of a test user goes as a whole.
		w.wrong("remove the folder of the test: %v", err)
	}
	if w.late != nil { // behind all that may be wrong
		w.tooLate("shut the daemon down: %v", w.late)
	}
}

// tooLate ends the test as late (testenv.Late). Scripts are final in any case.
func (w *World) tooLate(format string, args ...any) {
	w.t.Helper()
	if t, ok := w.t.(testing.TB); ok {
		testenv.Late(t, format, args...)
	}
	w.t.Errorf(format, args...)
}

// wrong fails the test for good (testenv.Wrong). Scripts are final in any case.
func (w *World) wrong(format string, args ...any) {
	w.t.Helper()
	if t, ok := w.t.(testing.TB); ok {
		testenv.Wrong(t, format, args...)
		return
	}
	w.t.Errorf(format, args...)
}

// Shutdown asks a running daemon to remove everything and waits for its end.
func (w *World) Shutdown() {
	w.t.Helper()
	// A hutch-launch whose monitor was killed waits for the next.
	orphaned, _ := filepath.Glob(filepath.Join(w.Root(), "launch-*.sock"))
	if _, err := os.Stat(w.Socket()); len(orphaned) == 0 && (err != nil || !w.Answers()) {
		return
	}
	w.noteTrees()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.Bin, "hutch"), "rpc", "system.shutdown", `{"mode":"kill"}`)
	cmd.Env = w.Vars
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
	case ctx.Err() != nil: // the caller has to clean up yet
		w.late = fmt.Errorf("%w: %s", ctx.Err(), out)
	default:
		w.t.Errorf("shut the daemon down: %v: %s", err, out)
	}
}

// LogOnFailure shows the daemon's log when the test has failed.
func (w *World) LogOnFailure(t testing.TB) {
	t.Cleanup(func() {
		if text, err := os.ReadFile(w.log()); err == nil && t.Failed() {
			t.Logf("the daemon's log:\n%s", Abridged(string(text)))
		}
	})
}

// checkLog looks for errors that the daemon told nobody but its log.
func (w *World) checkLog() {
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
		if !strings.Contains(line, "level=ERROR") && !strings.Contains(line, "panic") &&
			!strings.Contains(line, "fatal error") && !strings.Contains(line, "DATA RACE") {
			continue
		}
		for _, part := range w.Tolerated {
			if strings.Contains(line, part) {
				continue lines
			}
		}
		w.wrong("the daemon's log: %s", line)
		if strings.HasPrefix(line, "panic") { // where
			w.t.Logf("%s", text[at:min(len(text), at+4<<10)])
		}
	}
}

// Needs skips t where the machine has not got a program.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			testenv.Require(t, probe.Check{Name: p, Status: probe.No, Detail: err.Error(), Remedy: "make deps"})
		}
	}
}

// NeedsPython skips t where the host image has no python3.
func NeedsPython(t testing.TB) { t.Helper(); NeedsInside(t, "/usr/bin/python3") }

// NeedsInside skips t where the host image, which shows the host's /usr, has no such
// program.
func NeedsInside(t testing.TB, program string) {
	t.Helper()
	if _, err := os.Stat(program); err != nil {
		testenv.Require(t, probe.Check{Name: filepath.Base(program), Status: probe.No, Detail: err.Error(),
			Remedy: "make deps, or install it for all users"})
	}
}
