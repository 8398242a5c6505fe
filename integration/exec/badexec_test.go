package exec_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestWireBadExec: what no exec can be made of, or done with, is an error that says what to
// do, and a command of another client's goes on.
func TestWireBadExec(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c, bystander := w.Dial(t), w.Dial(t)
	sb := bystander.SandboxOf(nil)
	running := bystander.Start("exec.run", world.Params{"sandbox": sb, "command": "sleep infinity",
		"exec": "ex_taken1234567", "progress": true})
	bystander.Note()

	for _, method := range []string{"exec.wait", "exec.close_stdin", "exec.kill", "exec.get"} {
		c.Refused("not_found", method, world.Params{"exec": "ex_nobody"})
	}
	c.Refused("not_found", "exec.read", world.Params{"exec": "ex_nobody", "stream": "stdout", "offset": 0})
	c.Refused("not_found", "exec.write", world.Params{"exec": "ex_nobody", "data": "x"})
	c.Refused("not_found", "exec.attach", world.Params{"exec": "ex_nobody"})
	c.Refused("not_found", "exec.resize", world.Params{"exec": "ex_nobody", "rows": 1, "cols": 1})
	c.Refused("not_found", "exec.list", world.Params{"sandbox": "nobody"})
	c.Refused("already_exists", "exec.run", world.Params{"sandbox": sb, "command": "true", "exec": "ex_taken1234567"})
	c.Refused("failed_precondition", "exec.write", world.Params{"exec": "ex_taken1234567", "data": "x"})
	for _, pty := range []world.Params{{}, {"rows": 24}, {"rows": 0, "cols": 80}, {"rows": -1, "cols": 80},
		{"rows": 1 << 17, "cols": 80}} {
		if m := c.Start("exec.start", world.Params{"sandbox": sb, "command": "true", "pty": pty}).
			Wait(); m.Error == nil || m.Error.Data.Hint == "" {
			t.Errorf("pty %v: %s %v", pty, m.Result, m.Error)
		}
	}
	// The kernel takes 128 KiB a string (MAX_ARG_STRLEN), and a quarter of the stack in all.
	long := strings.Repeat("x", 200<<10)
	for _, p := range []world.Params{
		{"argv": []string{"true", long}},
		{"argv": append([]string{"true"}, strings.Split(strings.Repeat("x ", 300_000), " ")...)},
		{"argv": []string{"true"}, "env": world.Params{"LONG": long}},
	} {
		p["sandbox"] = sb
		c.Refused("invalid_argument", "exec.run", p)
	}

	// fds that may not cross, beside one that may.
	dir, file := world.Open(t, w.Dir, os.O_RDONLY), world.Open(t, world.Write(t, w.Path("file"), "text"), os.O_RDWR)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	sock, other := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer sock.Close()
	defer other.Close()
	for _, f := range []*os.File{dir, file, sock} {
		e := c.Refused("invalid_argument", "exec.run", world.Params{"sandbox": sb, "argv": []string{"true"}, "fds": 1,
			"stdio": world.Params{"stdout": 0}}, f)
		if e.Data.Field != "stdio.stdout" {
			t.Errorf("%s: field %q", f.Name(), e.Data.Field)
		}
	}
	null := world.Open(t, os.DevNull, os.O_RDWR)
	c.Call(nil, "exec.run", world.Params{
		"sandbox": sb, "argv": []string{"true"}, "fds": 1, "stdio": world.Params{"stdout": 0},
	}, null)

	// Clients that vanish in the middle of a line, with and without an fd on the way.
	for range 20 {
		nc, err := net.Dial("unix", w.Socket())
		if err != nil {
			t.Fatal(err)
		}
		half := []byte(`{"jsonrpc":"2.0","id":1,"method":"exec.run","params":{"sandbox":"` + sb)
		if _, _, err := nc.(*net.UnixConn).WriteMsgUnix(half, unix.UnixRights(int(null.Fd())), nil); err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}

	dead := c.SandboxOf(nil)
	c.Call(nil, "sandbox.kill", world.Params{"sandbox": dead})
	for _, method := range []string{"exec.run", "exec.start"} {
		c.Refused("failed_precondition", method, world.Params{"sandbox": dead, "command": "true"})
	}
	running.Cancel()
	if m := running.Wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("the bystander's exec: %s", m.Result)
	}
	if res := bystander.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

// TestStdinLarge: 100 MB of stdin through a pipe, which the command reads or does not.
func TestStdinLarge(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	const size = 100_000_000
	for command, want := range map[string]string{"wc -c": "100000000\n", "head -c 3 | wc -c": "3\n",
		"echo none": "none\n"} {
		cmd := w.Command("run", "host", "--", "sh", "-c", command)
		cmd.Stdin = strings.NewReader(strings.Repeat("0123456789", size/10))
		if got := w.Finish(t, cmd).Want(t, 0).Stdout; got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}
