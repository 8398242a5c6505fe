package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestDaemonDeathTerminal: a terminal goes on under its user's fingers.
func TestDaemonDeathTerminal(t *testing.T) {
	w := newWorld(t)
	for _, victim := range victims {
		t.Run(victim.name, func(t *testing.T) {
			p, cmd := w.terminal(t, "run", "-it", "host", "--", "sh")
			p.write("echo one-$((1+1))\n")
			p.sees("one-2")
			for _, pid := range victim.pids(w.daemon(t)) {
				kill(t, pid)
			}
			p.write("echo two-$((2+2))\n")
			p.sees("two-4")
			p.write("exit 6\n")
			p.rest()
			if code := await(t, cmd); code != 6 {
				t.Errorf("exit code %d, want 6", code)
			}
			w.awaitNoSandbox(t)
		})
	}
}

// TestDaemonDeathStdin: stdin that exec.write feeds stays open, with what was written, and
// ends when it is closed.
func TestDaemonDeathStdin(t *testing.T) {
	w := newWorld(t)
	sb := strings.TrimSpace(w.create(t, "host"))
	for _, victim := range victims {
		start := decode[api.StartResult](t, w.ok(t, "rpc", "exec.start", fmt.Sprintf(`{"sandbox":%q,"argv":["cat"]}`, sb)))
		var want string
		for i := range 3 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			data, err := json.Marshal(api.WriteParams{Exec: start.Exec, Data: line})
			if err != nil {
				t.Fatal(err)
			}
			w.ok(t, "rpc", "exec.write", string(data))
			for _, pid := range victim.pids(w.daemon(t)) {
				kill(t, pid)
			}
		}
		w.ok(t, "rpc", "exec.close_stdin", fmt.Sprintf(`{"exec":%q}`, start.Exec))
		res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, start.Exec)))
		if res.Stdout != want || res.ExitCode != 0 {
			t.Errorf("%s: cat says %q and ends with %d, want %q", victim.name, res.Stdout, res.ExitCode, want)
		}
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDaemonDeathReader: a caller that does not read holds nobody up but itself: not the next
// hutchd, not the end of its command, and not the end of the daemon.
func TestDaemonDeathReader(t *testing.T) {
	w := newWorld(t)
	c := w.connect(t)
	sb := box(t, c)
	var execs []string
	for _, p := range []api.ExecParams{
		{Pty: &api.Pty{Rows: 24, Cols: 80}, Command: "head -c 300000 /dev/zero | tr '\\0' x"},
		{Command: "head -c 110000 /dev/zero"}, // ends where hutch-launch relays: two pipes take it
	} {
		in, feed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		read, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		defer feed.Close()
		p.Sandbox = sb
		start, err := c.ExecStart(t.Context(), p, &hutch.Stdio{Stdin: in, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		execs = append(execs, start.Exec)
		in.Close()
		out.Close()
	}
	for _, victim := range victims {
		for _, pid := range victim.pids(w.daemon(t)) {
			kill(t, pid)
		}
		w.ok(t, "exec", sb, "--", "true")
	}
	for i, ex := range execs {
		res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.kill", fmt.Sprintf(`{"exec":%q}`, ex)))
		if res.Verdict != api.VerdictKilled && (i == 0 || res.Verdict != api.VerdictOK) {
			t.Errorf("command %d, killed, has the verdict %s", i, res.Verdict)
		}
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDaemonDeathUnread: the output of a command whose result was on its way when hutchd was
// killed is with the next one.
func TestDaemonDeathUnread(t *testing.T) {
	w := newWorld(t)
	c := w.connect(t)
	sb := box(t, c)
	conn := w.dial(t).conn
	const n = 1 << 20 // more than a socket takes
	for i, victim := range victims {
		own, err := net.DialUnix("unix", nil, conn.RemoteAddr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		ex := fmt.Sprintf("ex_aaaaaaaaaaa%c", 'a'+i)
		if _, err := fmt.Fprintf(own, `{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"sandbox":%q,"exec":%q,"command":"head -c %d /dev/zero | tr '\\0' x","output_bytes":%d}}`+"\n",
			sb, ex, n, n); err != nil {
			t.Fatal(err)
		}
		if _, err := own.Read(make([]byte, 1)); err != nil { // it is on its way
			t.Fatal(err)
		}
		for _, pid := range victim.pids(w.daemon(t)) {
			kill(t, pid)
		}
		res := decode[api.ExecResult](t, w.ok(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q,"output_bytes":%d}`, ex, n)))
		if len(res.Stdout) != n || res.Verdict != api.VerdictOK {
			t.Errorf("%d bytes, verdict %s", len(res.Stdout), res.Verdict)
		}
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDaemonDeathLogs: whoever follows a command's output gets all of it once.
func TestDaemonDeathLogs(t *testing.T) {
	w := newWorld(t)
	sb := strings.TrimSpace(w.create(t, "host"))
	const n = 20000
	for i := range rounds(9) {
		victim := victims[i%len(victims)]
		ex := strings.TrimSpace(w.ok(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
		logs := w.command("logs", "-f", ex)
		var out, errs bytes.Buffer
		logs.Stdout, logs.Stderr = &out, &errs
		if err := logs.Start(); err != nil {
			t.Fatal(err)
		}
		after(i)
		for _, pid := range victim.pids(w.daemon(t)) {
			kill(t, pid)
		}
		if code := await(t, logs); code != 0 || out.String() != counted(n) {
			t.Fatalf("round %d, %s: hutch logs ended with %d after %d bytes, want %d: %s", i, victim.name, code, out.Len(), len(counted(n)), &errs)
		}
	}
	w.ok(t, "rm", "-f", sb)
}

// TestDaemonDeathRelay: what passes between the caller's own files and the command, where
// they may not cross, does not pass through hutchd.
func TestDaemonDeathRelay(t *testing.T) {
	w := newWorld(t)
	c := w.connect(t)
	sb := box(t, c)
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	// For a user other than root inside, pipes of the caller are relayed.
	start, err := c.ExecStart(t.Context(), api.ExecParams{Sandbox: sb, User: "0", Argv: []string{"cat"}}, &hutch.Stdio{Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	buf := make([]byte, 100)
	for i := range 3 {
		if err := unix.Kill(w.daemon(t).hutchd, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("line %d\n", i)
		if _, err := feed.WriteString(line); err != nil {
			t.Fatalf("%v: %s", err, w.run(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, start.Exec)).stdout)
		}
		if n, err := read.Read(buf); err != nil || string(buf[:n]) != line {
			t.Fatalf("cat says %q, %v; want %q", buf[:n], err, line)
		}
		w.ok(t, "ps")
	}
	feed.Close()
	if n, err := read.Read(buf); n != 0 {
		t.Errorf("behind the end: %q, %v", buf[:n], err)
	}
	w.ok(t, "rm", "-f", sb)
}
