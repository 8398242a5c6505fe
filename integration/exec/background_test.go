package exec_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// chunk is exec.read's result, as the wire has it.
type chunk struct {
	Offset, Next int64
	Data         string
	EOF          bool
}

// readAll follows a stream from offset to its end.
func readAll(c *world.Conn, exec, stream string, offset int64) string {
	c.T.Helper()
	var all strings.Builder
	for {
		var got chunk
		c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": stream, "offset": offset, "wait_s": 30})
		if got.Offset != offset || got.Next != offset+int64(len(got.Data)) {
			c.T.Fatalf("read at %d: %d to %d with %d bytes", offset, got.Offset, got.Next, len(got.Data))
		}
		all.WriteString(got.Data)
		if got.EOF {
			return all.String()
		}
		offset = got.Next
	}
}

// TestExecStart: a command that is started lives on without its caller, and what it
// writes can be read from any offset, while it runs and afterwards.
func TestExecStart(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	first := w.Dial(t)
	sb := first.SandboxOf(nil)
	exec := first.Started(sb, `echo one; echo err >&2; read line; echo "got $line"`, nil)
	var got chunk
	first.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	if got.Data != "one\n" || got.EOF {
		t.Errorf("while it runs: %+v", got)
	}
	first.Close() // the caller goes, the command stays

	c := w.Dial(t)
	c.Refused("deadline_exceeded", "exec.wait", world.Params{"exec": exec, "wait_s": 0})
	c.Call(nil, "exec.write", world.Params{"exec": exec, "data": "two\n"})
	if text := readAll(c, exec, "stdout", 0); text != "one\ngot two\n" {
		t.Errorf("stdout %q", text)
	}
	if text := readAll(c, exec, "stdout", 4); text != "got two\n" {
		t.Errorf("stdout from 4 %q", text)
	}
	if text := readAll(c, exec, "stderr", 0); text != "err\n" {
		t.Errorf("stderr %q", text)
	}
	var res world.ExecResult
	c.Call(&res, "exec.wait", world.Params{"exec": exec})
	if res.ExitCode != 0 || res.Stdout != "one\ngot two\n" || res.Stderr != "err\n" || res.Verdict != "ok" {
		t.Errorf("result %+v", res)
	}
	c.Refused("failed_precondition", "exec.write", world.Params{"exec": exec, "data": "late"})
	c.Refused("failed_precondition", "exec.signal", world.Params{"exec": exec, "signal": "TERM"})
	w.OK(t, "rm", "-f", sb)
	c.Refused("not_found", "exec.wait", world.Params{"exec": exec})
}

// TestExecKill: a kill ends the command and what it started, and says so.
func TestExecKill(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	exec := c.Started(sb, `sleep 1000 & echo up; wait`, world.Params{"background": true})
	var got chunk
	c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	c.Refused("failed_precondition", "exec.write", world.Params{"exec": exec, "data": "x"}) // background: no stdin
	var res world.ExecResult
	c.Call(&res, "exec.kill", world.Params{"exec": exec})
	if res.Verdict != "killed" || len(res.Killed) < 2 || res.ExitCode != 137 {
		t.Errorf("killed: %+v", res)
	}
	if left := c.Exec(sb, `ps -e -o comm= | grep -c sleep`); strings.TrimSpace(left.Stdout) != "0" {
		t.Errorf("%s sleeps are left", left.Stdout)
	}
	var list struct {
		Execs []struct{ Exec, State, Verdict string }
	}
	c.Call(&list, "exec.list", world.Params{"sandbox": sb})
	if len(list.Execs) != 1 || list.Execs[0].State != "exited" || list.Execs[0].Verdict != "killed" {
		t.Errorf("list %+v", list)
	}
	w.OK(t, "rm", "-f", sb)
}

// TestLongOutput: the head and the tail of a stream that is longer than what is
// kept are right, and the gap between them is explicit.
func TestLongOutput(t *testing.T) {
	testenv.Suite(t, "slow")
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	const lines, width = 6 << 20, 16 // 96 MiB, more than the spool's 64
	exec := c.Started(sb, fmt.Sprintf(`python3 -c '
import sys
for start in range(0, %d, 65536):
    sys.stdout.write("".join("%%015d\n" %% i for i in range(start, start + 65536)))'`, lines), world.Params{"background": true})
	var res world.ExecResult
	c.Call(&res, "exec.wait", world.Params{"exec": exec})
	if res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	line := func(i int64) string { return fmt.Sprintf("%015d\n", i) }
	var got chunk
	c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": 5 * width, "limit": 3 * width})
	if got.Data != line(5)+line(6)+line(7) {
		t.Errorf("head %+v", got)
	}
	c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": -2 * width})
	if got.Data != line(lines-2)+line(lines-1) || !got.EOF || got.Next != lines*width {
		t.Errorf("tail %+v", got)
	}
	const asked = 20 << 20 // between what is kept
	c.Call(&got, "exec.read", world.Params{"exec": exec, "stream": "stdout", "offset": asked, "limit": 64})
	if got.Offset <= asked || got.Offset%width != 0 ||
		!bytes.HasPrefix([]byte(got.Data), []byte(line(got.Offset/width))) {
		t.Errorf("behind the gap %+v", got)
	}
	w.OK(t, "rm", "-f", sb)
}
