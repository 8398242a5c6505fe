package death_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestDaemonDeathTerminal: a terminal goes on under its user's fingers.
func TestDaemonDeathTerminal(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	w := world.New(t)
	for _, victim := range world.Victims {
		t.Run(victim.Name, func(t *testing.T) {
			p, cmd := w.Terminal(t, "run", "-it", "host", "--", "sh")
			p.Write("echo one-$((1+1))\n")
			p.Sees("one-2")
			for _, pid := range victim.PIDs(w.Daemon(t)) {
				world.Kill(t, pid)
			}
			p.Write("echo two-$((2+2))\n")
			p.Sees("two-4")
			p.Write("exit 6\n")
			p.Rest()
			if code := world.Await(t, cmd); code != 6 {
				t.Errorf("exit code %d, want 6", code)
			}
			w.AwaitNoSandbox(t)
		})
	}
}

// TestDaemonDeathStdin: stdin that exec.write feeds stays open, with what was written, and
// ends when it is closed.
func TestDaemonDeathStdin(t *testing.T) {
	w := world.New(t)
	sb := strings.TrimSpace(w.Create(t, "host"))
	for _, victim := range world.Victims {
		started := w.OK(t, "rpc", "exec.start", fmt.Sprintf(`{"sandbox":%q,"argv":["cat"]}`, sb))
		start := world.Decode[api.StartResult](t, started)
		var want string
		for i := range 3 {
			line := fmt.Sprintf("line %d\n", i)
			want += line
			data, err := json.Marshal(api.WriteParams{Exec: start.Exec, Data: line})
			if err != nil {
				t.Fatal(err)
			}
			w.OK(t, "rpc", "exec.write", string(data))
			for _, pid := range victim.PIDs(w.Daemon(t)) {
				world.Kill(t, pid)
			}
		}
		w.OK(t, "rpc", "exec.close_stdin", fmt.Sprintf(`{"exec":%q}`, start.Exec))
		res := world.Decode[api.ExecResult](t, w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, start.Exec)))
		if res.Stdout != want || res.ExitCode != 0 {
			t.Errorf("%s: cat says %q and ends with %d, want %q", victim.Name, res.Stdout, res.ExitCode, want)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathReader: a caller that does not read holds nobody up but itself: not the next
// hutchd, not the end of its command, and not the end of the daemon.
func TestDaemonDeathReader(t *testing.T) {
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
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
	for _, victim := range world.Victims {
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		w.OK(t, "exec", sb, "--", "true")
	}
	for i, ex := range execs {
		res := world.Decode[api.ExecResult](t, w.OK(t, "rpc", "exec.kill", fmt.Sprintf(`{"exec":%q}`, ex)))
		if res.Verdict != api.VerdictKilled && (i == 0 || res.Verdict != api.VerdictOK) {
			t.Errorf("command %d, killed, has the verdict %s", i, res.Verdict)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathUnread: the output of a command whose result was on its way when hutchd was
// killed is with the next one.
func TestDaemonDeathUnread(t *testing.T) {
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
	conn := w.Dial(t).Conn
	const n = 1 << 20 // more than a socket takes
	for i, victim := range world.Victims {
		own, err := net.DialUnix("unix", nil, conn.RemoteAddr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		ex := fmt.Sprintf("ex_aaaaaaaaaaa%c", 'a'+i)
		if _, err := fmt.Fprintf(own,
			`{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"sandbox":%q,"exec":%q,"command":"head -c %d /dev/zero | tr '\\0' x","output_bytes":%d}}`+"\n",
			sb, ex, n, n); err != nil {
			t.Fatal(err)
		}
		if _, err := own.Read(make([]byte, 1)); err != nil { // it is on its way
			t.Fatal(err)
		}
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		ended := w.OK(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q,"output_bytes":%d}`, ex, n))
		res := world.Decode[api.ExecResult](t, ended)
		if len(res.Stdout) != n || res.Verdict != api.VerdictOK {
			t.Errorf("%d bytes, verdict %s", len(res.Stdout), res.Verdict)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathLogs: whoever follows a command's output gets all of it once.
func TestDaemonDeathLogs(t *testing.T) {
	w := world.New(t)
	sb := strings.TrimSpace(w.Create(t, "host"))
	const n = 20000
	for i := range world.Rounds(9) {
		victim := world.Victims[i%len(world.Victims)]
		ex := strings.TrimSpace(w.OK(t, "exec", "-d", sb, "--", "sh", "-c", counter(n)))
		logs := w.Command("logs", "-f", ex)
		var out, errs bytes.Buffer
		logs.Stdout, logs.Stderr = &out, &errs
		if err := logs.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(world.RunTime)
		for _, pid := range victim.PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		if code := world.Await(t, logs); code != 0 || out.String() != counted(n) {
			t.Fatalf("round %d, %s: hutch logs ended with %d after %d bytes, want %d: %s", i, victim.Name, code,
				out.Len(), len(counted(n)), &errs)
		}
	}
	w.OK(t, "rm", "-f", sb)
}

// TestDaemonDeathRelay: what passes between the caller's own files and the command, where
// they may not cross, does not pass through hutchd.
func TestDaemonDeathRelay(t *testing.T) {
	w := world.New(t)
	c := w.Connect(t)
	sb := world.Box(t, c)
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
	start, err := c.ExecStart(t.Context(), api.ExecParams{Sandbox: sb, User: "0", Argv: []string{"cat"}},
		&hutch.Stdio{Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	buf := make([]byte, 100)
	for i := range 3 {
		if err := unix.Kill(w.Daemon(t).Hutchd, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("line %d\n", i)
		if _, err := feed.WriteString(line); err != nil {
			t.Fatalf("%v: %s", err, w.Run(t, "rpc", "exec.wait", fmt.Sprintf(`{"exec":%q}`, start.Exec)).Stdout)
		}
		if n, err := read.Read(buf); err != nil || string(buf[:n]) != line {
			t.Fatalf("cat says %q, %v; want %q", buf[:n], err, line)
		}
		w.OK(t, "ps")
	}
	feed.Close()
	if n, err := read.Read(buf); n != 0 {
		t.Errorf("behind the end: %q, %v", buf[:n], err)
	}
	w.OK(t, "rm", "-f", sb)
}
