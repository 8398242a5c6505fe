package files_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// movesBig renames a folder of the host's, for which PID 1 copies it, and says when that is under way and when it is
// over. With an argument the process is killed as soon as it is under way. A move that is over before it is seen is
// fine: there is nothing to wait for then.
const movesBig = `
import os, signal, sys
pid = os.fork()
if pid == 0:
    os.rename("big", "moved"); os._exit(0)
over = False
while not over and not any(n.startswith(".hutch-move-") for n in os.listdir(".")):
    over = os.waitpid(pid, os.WNOHANG)[0] != 0
if not over and len(sys.argv) > 1: os.kill(pid, signal.SIGKILL)
print("ready", flush=True)
if not over: os.waitpid(pid, 0)
print("over", flush=True)`

const bigFiles = 4000

// makeBig makes a workspace with a folder whose move takes a while.
func makeBig(t *testing.T, w *world.World) string {
	t.Helper()
	dir := w.Sub(t, "overlay-big")
	for i := range bigFiles {
		if i%1000 == 0 {
			if err := os.MkdirAll(filepath.Join(dir, "big", strconv.Itoa(i/1000)), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		world.Write(t, filepath.Join(dir, "big", strconv.Itoa(i/1000), strconv.Itoa(i)), "x")
	}
	return dir
}

// TestOverlayMoveHeld: who looks at a sandbox's files, or pauses it, while PID 1 moves a folder in it finds it where it
// was or where it goes, whole, also when who asked for the move is dead; and a paused sandbox uses no processor.
func TestOverlayMoveHeld(t *testing.T) {
	testenv.Axes(t, testenv.User)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	dir := makeBig(t, w)
	c := w.Connect(t)
	count := func(t *testing.T, sb string) {
		t.Helper()
		out := w.OK(t, "exec", sb, "sh", "-c",
			"ls -A; find big moved -type f 2>/dev/null | wc -l")
		if out != fmt.Sprintf("big\n%d\n", bigFiles) && out != fmt.Sprintf("moved\n%d\n", bigFiles) {
			testenv.Wrong(t, "half of a move is seen: %q", out)
		}
	}
	seen := 0 // of changes
	diff := func(t *testing.T, sb string) error {
		t.Helper()
		all, err := c.AllChanges(t.Context(),
			api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb}})
		if err != nil {
			return err
		}
		for _, ch := range all.Changes {
			if strings.Contains(ch.Path, "hutch-move") {
				testenv.Wrong(t, "half of a move is seen: %s", ch.Path)
				break
			}
		}
		seen = len(all.Changes)
		return nil
	}
	fork := func(t *testing.T, sb string) error {
		t.Helper()
		made, err := c.Fork(t.Context(), api.ForkParams{Sandbox: sb})
		if err != nil {
			return err
		}
		count(t, made.Sandboxes[0].ID)
		w.OK(t, "rm", "-f", made.Sandboxes[0].ID)
		return nil
	}
	pause := func(t *testing.T, sb string) error {
		t.Helper()
		p, err := c.Pause(t.Context(), sb)
		if err != nil {
			return err
		}
		before := cpuTicks(t, p.PID)
		if err := errors.Join(diff(t, sb), diff(t, sb)); err != nil {
			t.Fatal(err)
		}
		if used := cpuTicks(t, p.PID) - before; used > 2 {
			testenv.Wrong(t, "PID 1 of a paused sandbox has worked for %d ticks", used)
		}
		_, err = c.Resume(t.Context(), sb)
		return err
	}
	// Each try waits for the move itself. On a busy machine that takes longer than anybody is made to wait: then it is
	// refused by the folder's name.
	whole := func(t *testing.T, sb string, look func(*testing.T, string) error) {
		t.Helper()
		err := look(t, sb)
		for api.ErrorCode(err) == api.Unavailable &&
			strings.Contains(err.Error(), "is moving the folder /workspace/big") {
			err = look(t, sb)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		look func(*testing.T, string) error
		kill []string
	}{
		{"diff", diff, nil}, {"fork", fork, nil}, {"pause", pause, nil},
		{"diff, killed", diff, []string{"kill"}}, {"fork, killed", fork, []string{"kill"}},
		{"pause, killed", pause, []string{"kill"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sb := w.Create(t, "--workspace", dir+":overlay", "host")
			cmd := w.Start(t, append([]string{"exec", "-w", "/workspace", sb, "--", "python3", "-ISBc", movesBig},
				tt.kill...)...)
			seen = 0
			whole(t, sb, tt.look)
			first := seen
			cmd.Await(t, "over")
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, cmd.Errs.String())
			}
			count(t, sb)
			if whole(t, sb, diff); first != 0 && first != seen {
				testenv.Wrong(t, "half of a move is seen: %d changes of %d", first, seen)
			}
			w.OK(t, "rm", "-f", sb)
		})
	}
}

// cpuTicks is the processor time of a process, in ticks (proc_pid_stat(5)).
func cpuTicks(t *testing.T, pid int) (ticks int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	for _, i := range []int{11, 12} { // utime, stime
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// TestOverlayMoveReadOnly: a folder with folders that their owner may not write to is moved whole, as rename(2) does it
// elsewhere: none stays behind.
func TestOverlayMoveReadOnly(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	dir := w.Sub(t, "work")
	sub := filepath.Join(dir, "a", "sub")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	world.Write(t, filepath.Join(sub, "f"), "x")
	chmod(t, sub, 0o555)
	t.Cleanup(func() { chmod(t, sub, 0o755) }) // to be removed
	got := w.OK(t, "run", "--cap-drop", "DAC_OVERRIDE", "--workspace", dir+":overlay", "host", "--", "python3", "-ISBc",
		`import os; os.rename("a", "b"); print(os.listdir("."), os.listdir("b/sub"), oct(os.stat("b/sub").st_mode))`)
	if want := "['b'] ['f'] 0o40555\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
