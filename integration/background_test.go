package integration_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// chunk is exec.read's result, as the wire has it.
type chunk struct {
	Offset, Next int64
	Data         string
	EOF          bool
}

// started starts a command with more params and returns the exec.
func (c *rpcConn) started(sandbox, command string, more params) string {
	c.t.Helper()
	p := params{"sandbox": sandbox, "command": command}
	for k, v := range more {
		p[k] = v
	}
	var r struct {
		Exec string
		PID  int
	}
	c.call(&r, "exec.start", p)
	if !strings.HasPrefix(r.Exec, "ex_") || r.PID < 2 {
		c.t.Fatalf("exec.start: %+v", r)
	}
	return r.Exec
}

// readAll follows a stream from offset to its end.
func (c *rpcConn) readAll(exec, stream string, offset int64) string {
	c.t.Helper()
	var all strings.Builder
	for {
		var got chunk
		c.call(&got, "exec.read", params{"exec": exec, "stream": stream, "offset": offset, "wait_s": 30})
		if got.Offset != offset || got.Next != offset+int64(len(got.Data)) {
			c.t.Fatalf("read at %d: %d to %d with %d bytes", offset, got.Offset, got.Next, len(got.Data))
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
	w := newWorld(t)
	first := w.dial(t)
	sb := first.sandboxOf(nil)
	exec := first.started(sb, `echo one; echo err >&2; read line; echo "got $line"`, nil)
	var got chunk
	first.call(&got, "exec.read", params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	if got.Data != "one\n" || got.EOF {
		t.Errorf("while it runs: %+v", got)
	}
	first.close() // the caller goes, the command stays

	c := w.dial(t)
	c.refused("deadline_exceeded", "exec.wait", params{"exec": exec, "wait_s": 0})
	c.call(nil, "exec.write", params{"exec": exec, "data": "two\n"})
	if text := c.readAll(exec, "stdout", 0); text != "one\ngot two\n" {
		t.Errorf("stdout %q", text)
	}
	if text := c.readAll(exec, "stdout", 4); text != "got two\n" {
		t.Errorf("stdout from 4 %q", text)
	}
	if text := c.readAll(exec, "stderr", 0); text != "err\n" {
		t.Errorf("stderr %q", text)
	}
	var res execResult
	c.call(&res, "exec.wait", params{"exec": exec})
	if res.ExitCode != 0 || res.Stdout != "one\ngot two\n" || res.Stderr != "err\n" || res.Verdict != "ok" {
		t.Errorf("result %+v", res)
	}
	c.refused("failed_precondition", "exec.write", params{"exec": exec, "data": "late"})
	c.refused("failed_precondition", "exec.signal", params{"exec": exec, "signal": "TERM"})
	w.ok(t, "rm", "-f", sb)
	c.refused("not_found", "exec.wait", params{"exec": exec})
}

// TestExecKill: a kill ends the command and what it started, and says so.
func TestExecKill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	exec := c.started(sb, `sleep 1000 & echo up; wait`, params{"background": true})
	var got chunk
	c.call(&got, "exec.read", params{"exec": exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	c.refused("failed_precondition", "exec.write", params{"exec": exec, "data": "x"}) // background: no stdin
	var res execResult
	c.call(&res, "exec.kill", params{"exec": exec})
	if res.Verdict != "killed" || len(res.Killed) < 2 || res.ExitCode != 137 {
		t.Errorf("killed: %+v", res)
	}
	if left := c.exec(sb, `ps -e -o comm= | grep -c sleep`); strings.TrimSpace(left.Stdout) != "0" {
		t.Errorf("%s sleeps are left", left.Stdout)
	}
	var list struct {
		Execs []struct{ Exec, State, Verdict string }
	}
	c.call(&list, "exec.list", params{"sandbox": sb})
	if len(list.Execs) != 1 || list.Execs[0].State != "exited" || list.Execs[0].Verdict != "killed" {
		t.Errorf("list %+v", list)
	}
	w.ok(t, "rm", "-f", sb)
}

// TestLongOutput: the head and the tail of a stream that is longer than what is
// kept are right, and the gap between them is explicit.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	needsPython(t)
	w := newWorld(t)
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	const lines, width = 6 << 20, 16 // 96 MiB, more than the spool's 64
	exec := c.started(sb, fmt.Sprintf(`python3 -c '
import sys
for start in range(0, %d, 65536):
    sys.stdout.write("".join("%%015d\n" %% i for i in range(start, start + 65536)))'`, lines), params{"background": true})
	var res execResult
	c.call(&res, "exec.wait", params{"exec": exec})
	if res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	line := func(i int64) string { return fmt.Sprintf("%015d\n", i) }
	var got chunk
	c.call(&got, "exec.read", params{"exec": exec, "stream": "stdout", "offset": 5 * width, "limit": 3 * width})
	if got.Data != line(5)+line(6)+line(7) {
		t.Errorf("head %+v", got)
	}
	c.call(&got, "exec.read", params{"exec": exec, "stream": "stdout", "offset": -2 * width})
	if got.Data != line(lines-2)+line(lines-1) || !got.EOF || got.Next != lines*width {
		t.Errorf("tail %+v", got)
	}
	const asked = 20 << 20 // between what is kept
	c.call(&got, "exec.read", params{"exec": exec, "stream": "stdout", "offset": asked, "limit": 64})
	if got.Offset <= asked || got.Offset%width != 0 || !bytes.HasPrefix([]byte(got.Data), []byte(line(got.Offset/width))) {
		t.Errorf("behind the gap %+v", got)
	}
	w.ok(t, "rm", "-f", sb)
}
