package exec_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestWireSystem: what a daemon says about itself.
func TestWireSystem(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	var info struct {
		APIVersion int    `json:"api_version"`
		BuildID    string `json:"build_id"`
		Version    string
		PID        int
		IDBase     int `json:"id_base"`
		Counts     struct{ Sandboxes, Execs, Images int }
		Paths      struct{ Socket, State, Log string }
		Isolation  struct {
			Walls   []struct{ Name, Status, Detail string }
			UserMap string `json:"user_map"`
		}
	}
	c.Call(&info, "system.info", world.Params{})
	if info.APIVersion < 1 || info.BuildID == "" || info.PID != w.Daemon(t).
		Monitor || info.Paths.Socket != w.Socket() || info.Paths.State != w.Root() {
		t.Errorf("%+v", info)
	}
	if os.Geteuid() != 0 && info.IDBase != os.Geteuid() || os.Geteuid() == 0 && info.IDBase == 0 {
		t.Errorf("uid 0 of sandboxes is the kernel's uid %d", info.IDBase)
	}
	var doctor struct {
		Checks []struct{ Name, Status, Detail, Remedy string }
	}
	c.Call(&doctor, "system.doctor", world.Params{})
	if len(doctor.Checks) < 5 {
		t.Errorf("doctor: %+v", doctor)
	}
	for _, check := range doctor.Checks {
		if !slices.Contains([]string{"yes", "no", "inconclusive"}, check.Status) || check.Detail == "" {
			t.Errorf("doctor: %+v", check)
		}
	}
	// kill ends the sandboxes; what keep does TestStopKeep sees.
	c.SandboxOf(nil)
	c.Refused("invalid_argument", "system.shutdown", world.Params{"mode": "other"})
	d := w.Daemon(t)
	c.Call(nil, "system.shutdown", world.Params{"mode": "kill"})
	world.AwaitEnd(t, d.Monitor, "the daemon")
}

// TestWireSandbox: the life of a sandbox through the socket.
func TestWireSandbox(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	type record struct {
		ID, Name, State, Image, Hostname, Reason string
		Created                                  string
		PID                                      int
		Labels                                   map[string]string
		PhasesMS                                 map[string]float64 `json:"phases_ms"`
	}
	var sb, again record
	c.Call(&sb, "sandbox.create", world.Params{"image": "host", "name": "box", "labels": world.Params{"a": "1"},
		"env": world.Params{"X": "y"}, "workdir": "/etc"})
	if sb.State != "running" || !strings.HasPrefix(sb.ID, "sb_") || !strings.HasSuffix(sb.Created, "Z") ||
		sb.PhasesMS["launch"] <= 0 {
		t.Errorf("%+v", sb)
	}
	for _, ref := range []string{sb.ID, "box"} {
		if c.Call(&again, "sandbox.get", world.Params{"sandbox": ref}); again.ID != sb.ID {
			t.Errorf("get %s: %+v", ref, again)
		}
	}
	if res := c.Exec("box", "echo $X; pwd"); res.Stdout != "y\n/etc\n" {
		t.Errorf("%+v", res)
	}
	var list struct{ Sandboxes []record }
	c.Call(&list, "sandbox.list", world.Params{"labels": world.Params{"a": "2"}})
	if len(list.Sandboxes) != 0 {
		t.Errorf("%+v", list)
	}
	if c.Call(&list, "sandbox.list", world.Params{"labels": world.Params{"a": "1"}}); len(list.Sandboxes) != 1 {
		t.Errorf("%+v", list)
	}
	e := c.Refused("already_exists", "sandbox.create", world.Params{"image": "host", "name": "box"})
	if e.Data.Field != "name" {
		t.Errorf("field %q", e.Data.Field)
	}
	c.Refused("not_found", "sandbox.get", world.Params{"sandbox": "nobody"})
	c.Refused("not_found", "exec.run", world.Params{"sandbox": "nobody", "argv": []string{"true"}})

	// kill lists what it killed, the exec that ran hears of it.
	call := c.Start("exec.run", world.Params{"sandbox": "box", "argv": []string{"sleep", "infinity"}, "progress": true})
	c.Note()
	other := w.Dial(t)
	var killed struct{ Killed []int }
	other.Call(&killed, "sandbox.kill", world.Params{"sandbox": "box"})
	if len(killed.Killed) < 2 || !slices.Contains(killed.Killed, sb.PID) {
		t.Errorf("killed %v, PID 1 is %d", killed.Killed, sb.PID)
	}
	for _, pid := range killed.Killed {
		if !world.Ended(pid, 0) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if m := call.Wait(); m.Error == nil {
		if res := world.Decode[world.ExecResult](t, string(m.Result)); res.ExitCode != 137 ||
			res.Verdict != "sandbox" && res.Verdict != "killed" {
			t.Errorf("%+v", res)
		}
	}
	if c.Call(&again, "sandbox.get", world.Params{"sandbox": "box"}); again.State != "stopped" {
		t.Errorf("%+v", again)
	}
	c.Refused("failed_precondition", "exec.run", world.Params{"sandbox": "box", "argv": []string{"true"}})
	c.Call(nil, "sandbox.remove", world.Params{"sandbox": "box"})
	c.Refused("not_found", "sandbox.remove", world.Params{"sandbox": "box"})

	// ttl_s and idle_s end a sandbox without anybody asking.
	ttl := c.SandboxOf(world.Params{"ttl_s": 0.3})
	idle := c.SandboxOf(world.Params{"idle_s": 1}) // longer than it takes to begin with the command
	c.Exec(idle, "true")
	w.AwaitNoSandbox(t)
	c.Refused("not_found", "sandbox.get", world.Params{"sandbox": ttl})

	// The owner's connection takes its sandbox along.
	other.SandboxOf(world.Params{"owner": "connection"})
	other.Close()
	w.AwaitNoSandbox(t)
}

// countSleeps prints how many sleep(1) run in a sandbox, with nothing but a shell.
const countSleeps = `n=0; for f in /proc/[0-9]*/comm; do read -r name <$f && [ "$name" = sleep ] && n=$((n+1)); done 2>/dev/null; echo $n`

// TestWireExec: exec.run with captured output.
func TestWireExec(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	run := func(p world.Params) world.ExecResult {
		t.Helper()
		p["sandbox"] = sb
		var res world.ExecResult
		c.Call(&res, "exec.run", p)
		return res
	}
	if res := run(world.Params{"argv": []string{"sh", "-c", "cat; echo e >&2"},
		"stdin": "in\n"}); res.Stdout != "in\n" || res.Stderr != "e\n" || res.Verdict != "ok" || res.Exec == "" {
		t.Errorf("%+v", res)
	}
	raw := base64.StdEncoding.EncodeToString([]byte{0, 255, 'a'})
	if res := run(world.Params{"argv": []string{"cat"}, "stdin": raw, "encoding": "base64"}); res.Stdout != raw ||
		res.StdoutEncoding != "base64" {
		t.Errorf("%+v", res)
	}
	res := run(world.Params{"command": "printf '\\377'"})
	if res.StdoutEncoding != "base64" || res.StderrEncoding != "utf-8" {
		t.Errorf("%+v", res)
	}
	if res := run(world.Params{"argv": []string{"env"}, "env": world.Params{"K": "v"}, "cwd": "/usr",
		"user": "0"}); !strings.Contains(res.Stdout, "K=v\n") {
		t.Errorf("%+v", res)
	}
	// The head and the tail of too much.
	res = run(world.Params{"command": "echo first; seq 1000000; echo last", "output_bytes": 4096})
	if !res.Truncated || !strings.HasPrefix(res.Stdout, "first\n") || !strings.HasSuffix(res.Stdout, "last\n") ||
		len(res.Stdout) > 5000 {
		t.Errorf("truncated %v, %d bytes: %s", res.Truncated, len(res.Stdout), world.Abridged(res.Stdout))
	}
	if res := run(world.Params{"command": "seq 300000"}); !res.Truncated || len(res.Stdout) > 1<<20+200 {
		t.Errorf("by default %d bytes", len(res.Stdout))
	}
	if res := run(world.Params{"command": "head -c 20000 /dev/zero", "output_bytes": 100}); len(res.Stdout) > 400 {
		t.Errorf("%d bytes of 100", len(res.Stdout))
	}
	// A timeout takes everything that the command started.
	res = run(world.Params{"command": "(setsid sleep 4242 &) ; sleep 4242",
		"timeout_s": testenv.Patience(300 * time.Millisecond).Seconds()})
	if !res.TimedOut || res.Verdict != "timeout_wall" || len(res.Killed) < 2 {
		t.Errorf("%+v", res)
	}
	if res := run(world.Params{"command": countSleeps}); res.Stdout != "0\n" {
		t.Errorf("still there: %+v", res)
	}
	if res := run(world.Params{"command": "kill -SEGV $$"}); res.Signal != "SIGSEGV" || res.ExitCode != 139 ||
		res.Verdict != "signal" {
		t.Errorf("%+v", res)
	}
	if res := run(world.Params{"argv": []string{"no-such-program"}}); res.ExitCode != 127 || res.Verdict != "not_run" ||
		res.Error == "" {
		t.Errorf("%+v", res)
	}
	for _, bad := range []world.Params{
		{}, {"argv": []string{}}, {"argv": []string{"a"}, "command": "b"},
		{"argv": []string{"true"}, "cwd": "relative"},
		{"argv": []string{"true"}, "stdin": "%%%", "encoding": "base64"},
		{"argv": []string{"true"}, "encoding": "latin1"},
		{"argv": []string{"true"}, "timeout_s": -1}, {"argv": []string{"a\x00b"}},
		{"argv": []string{"true"}, "env": world.Params{"A=B": "c"}},
		{"argv": []string{"true"}, "user": "no-such-user"}, {"argv": []string{"true"}, "output_bytes": -1},
		{"argv": []string{"true"}, "stdio": world.Params{"stdin": 0}},
		{"argv": []string{"true"}, "cwd": "/no/such/folder"},
	} {
		bad["sandbox"] = sb
		c.Refused("invalid_argument", "exec.run", bad)
	}
	for _, unavailable := range []world.Params{
		{"argv": []string{"true"}, "limits": world.Params{"pids": 5}},
	} {
		if unavailable["limits"] != nil && pureV2() {
			continue // TestExecLimits
		}
		unavailable["sandbox"] = sb
		c.Refused("unavailable", "exec.run", unavailable)
	}
	for _, mode := range []string{"none", "allow"} {
		c.Refused("invalid_argument", "exec.run", world.Params{"sandbox": sb, "argv": []string{"true"},
			"network": world.Params{"mode": mode, "ask": true}})
	}
	if res := c.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

// TestWireCancel: rpc.cancel and a lost connection end what runs; closing only
// the sending half does not.
func TestWireCancel(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c, keeper := w.Dial(t), w.Dial(t)
	sb := keeper.SandboxOf(nil)
	sleep := world.Params{"sandbox": sb, "command": "(setsid sleep infinity &); echo up; sleep infinity",
		"progress": true}
	gone := func() {
		t.Helper()
		// Only PID 1 and the shell of this very command are left.
		if res := keeper.Exec(sb, countSleeps); strings.TrimSpace(res.Stdout) != "0" {
			t.Errorf("left: %+v", res)
		}
	}
	call := c.Start("exec.run", sleep)
	if m := c.Note(); m.Method != "progress" || !strings.Contains(string(m.Params), "exec.started") {
		t.Errorf("notification %s %s", m.Method, m.Params)
	}
	call.Cancel()
	if m := call.Wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("canceled: %+v", m)
	}
	gone()

	lost := w.Dial(t)
	lost.Start("exec.run", sleep)
	var begun struct{ Exec string }
	if err := json.Unmarshal(lost.Note().Params, &begun); err != nil {
		t.Fatal(err)
	}
	// What hides in a session of its own is older than the next command, or it might
	// be taken for that one's.
	var up chunk
	keeper.Call(&up, "exec.read", world.Params{"exec": begun.Exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	if up.Data != "up\n" {
		t.Errorf("%+v", up)
	}
	lost.Close()
	// Nobody is told, so it is waited for inside.
	keeper.Exec(sb, "until [ $("+countSleeps+") = 0 ]; do :; done")

	half := w.Dial(t)
	call = half.Start("exec.run", world.Params{"sandbox": sb, "command": "read x; echo got $x", "stdin": "it\n"})
	if err := half.Conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if m := call.Wait(); m.Error != nil {
		t.Errorf("half-closed: %s", m.Error)
	}
}

// TestWireSignals: exec.signal reaches the leader.
func TestWireSignals(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Dial(t)
	sb := c.SandboxOf(nil)
	for _, name := range []string{"SIGTERM", "TERM", "15"} {
		call := c.Start("exec.run", world.Params{"sandbox": sb, "argv": []string{"sleep", "infinity"},
			"progress": true})
		var p struct{ Exec string }
		if err := json.Unmarshal(c.Note().Params, &p); err != nil {
			t.Fatal(err)
		}
		c.Refused("invalid_argument", "exec.signal", world.Params{"exec": p.Exec, "signal": "SIGNOTHING"})
		c.Refused("failed_precondition", "exec.resize", world.Params{"exec": p.Exec, "rows": 1, "cols": 1})
		c.Call(nil, "exec.signal", world.Params{"exec": p.Exec, "signal": name})
		if res := world.Decode[world.ExecResult](t, string(call.Wait().Result)); res.Signal != "SIGTERM" {
			t.Errorf("%s: %+v", name, res)
		}
		c.Refused("not_found", "exec.signal", world.Params{"exec": p.Exec, "signal": name})
	}
}

// TestWireBadInput: what is no request gets its error, and neither the
// connection of others nor the daemon suffers.
func TestWireBadInput(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	bystander := w.Dial(t)
	sb := bystander.SandboxOf(nil)
	running := bystander.Start("exec.run", world.Params{
		"sandbox": sb, "argv": []string{"sleep", "infinity"}, "progress": true,
	})
	bystander.Note()
	for _, tt := range []struct{ name, line, code string }{
		{"not JSON", "hello\n", "-32700"},
		{"half JSON", `{"jsonrpc":"2.0",` + "\n", "-32700"},
		{"a number", "42\n", "-32600"},
		{"no version", `{"id":1,"method":"system.info"}` + "\n", "-32600"},
		{"empty batch", "[]\n", "-32600"},
		{"params by position", `{"jsonrpc":"2.0","id":7,"method":"sandbox.get","params":["x"]}` + "\n", "-32602"},
		{"binary", "\x00\xff\xfe\n", "-32700"},
		{"deep", strings.Repeat("[", 100000) + "\n", "-32700"},
		{"too long", `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("x", 5<<20) + `"}` + "\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := w.Dial(t)
			c.T = t
			go sendQuietly(c, []byte(tt.line)) // the daemon may close before it has all
			m, open := <-c.Notify
			if !open && tt.code == "" {
				return
			}
			if m.Error == nil || tt.code != "" && fmt.Sprint(m.Error.Code) != tt.code {
				t.Fatalf("answer %+v %s, want error %s", m, m.Params, tt.code)
			}
		})
	}
	c := w.Dial(t)
	for _, tt := range []struct {
		method string
		params world.Params
		field  string
	}{
		{"sandbox.create", world.Params{"image": "host", "colour": "red"}, "colour"},
		{"sandbox.create", world.Params{"image": "host", "limits": world.Params{"cpu_cores": 1}}, "limits.cpu_cores"},
		{"sandbox.create", world.Params{"image": "host", "mounts": []world.Params{{"src": "/x"}}}, "mounts[0].src"},
		{"sandbox.create", world.Params{"image": 5}, "image"},
		{"sandbox.create", world.Params{"image": "host", "Name": "x"}, "Name"},
		{"sandbox.get", world.Params{"sandbox": []int{1}}, "sandbox"},
		{"system.info", world.Params{"x": 1}, "x"},
	} {
		e := c.Refused("-32602", tt.method, tt.params)
		if e.Data.Field != tt.field {
			t.Errorf("%s %v: field %q, want %q", tt.method, tt.params, e.Data.Field, tt.field)
		}
	}
	for _, p := range []world.Params{
		{}, {"image": "host", "template": "x"}, {"image": ""}, {"image": "host", "name": "a/b"},
		{"image": "host", "workdir": "x"},
		{"image": "host", "hostname": "-"}, {"image": "host", "limits": world.Params{"memory_bytes": 1}},
		{"image": "host", "ttl_s": -1},
		{"image": "UPPER/Case"}, {"image": "host", "workspace": world.Params{"path": "relative", "mode": "rw"}},
		{"image": "host", "workspace": world.Params{"path": "/tmp", "mode": "rwx"}},
		{"image": "host", "scope": world.Params{"kind": "house", "key": "k"}},
		{"image": "host", "scope": world.Params{"kind": "agent"}},
		{"image": "host", "uploads": []world.Params{{"name": "../x", "data": ""}}},
	} {
		if m := c.Start("sandbox.create", p).Wait(); m.Error == nil || m.Error.Data.Hint == "" {
			t.Errorf("%v: %+v", p, m)
		}
	}
	c.Refused("not_found", "sandbox.create", world.Params{"template": "x"})
	c.Refused("invalid_argument", "sandbox.create",
		world.Params{"image": "host", "network": world.Params{"mode": "open", "ask": true}})
	c.Refused("invalid_argument", "sandbox.create", world.Params{"image": "host", "seccomp": "unconfined"})
	running.Cancel()
	if m := running.Wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("the bystander's exec: %+v", m)
	}
	if res := bystander.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

func sendQuietly(c *world.Conn, line []byte) { _, _ = c.Conn.Write(line) }

// TestWireBatch: batches work; with fds they are refused, because nobody could
// say whose fds they are.
func TestWireBatch(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Configure(t, world.NoneAhead)
	c := w.Dial(t)
	batch := []byte(`[{"jsonrpc":"2.0","id":"a","method":"system.info","params":{}},{"jsonrpc":"2.0","id":"b","method":"no.such","params":{}}]` + "\n")
	c.SendRaw(batch)
	got := string(c.Note().Params)
	if !strings.HasPrefix(got, "[") || !strings.Contains(got, `"build_id"`) || !strings.Contains(got, "-32601") {
		t.Errorf("answer %s", got)
	}
	sb := c.SandboxOf(nil)
	null := world.Open(t, os.DevNull, os.O_RDWR)
	c.SendRaw(fmt.Appendf(nil,
		`[{"jsonrpc":"2.0","id":"a","method":"exec.run","params":{"sandbox":%q,"argv":["true"],"fds":1,"stdio":{"stdin":0}}}]`+"\n", sb), null)
	if m := c.Note(); m.Error == nil && !strings.Contains(string(m.Params), `"error"`) {
		t.Errorf("a batch with fds: %+v %s", m, m.Params)
	}
	// fds that nobody announced, and announced ones that do not come.
	for _, call := range []*world.Pending{
		c.Start("exec.run", world.Params{"sandbox": sb, "argv": []string{"true"}}, null),
		c.Start("exec.run", world.Params{"sandbox": sb, "argv": []string{"true"}, "fds": 1}),
		c.Start("exec.run", world.Params{
			"sandbox": sb, "argv": []string{"true"}, "fds": 1, "stdio": world.Params{"stdin": 3},
		}, null),
		c.Start("system.info", world.Params{}, null),
	} {
		if m := call.Wait(); m.Error == nil {
			t.Errorf("call %d succeeded: %s", call.ID, m.Result)
		}
	}
	before := w.Resources(t)
	before.Hutchd += world.NetworksAhead - before.Networks // which it may still be making
	before.Launch += 2 * world.HeldTries                   // what each exec has written is kept there
	w.HeldAgain(t, "nine fds", before, func() {
		many := slices.Repeat([]*os.File{null}, 9)
		nine := w.Dial(t)
		nine.SendRaw([]byte(`{"jsonrpc":"2.0","id":1,"method":"system.info","params":{"fds":9}}`+"\n"), many...)
		<-nine.Notify // an error, or the end of the connection
		nine.Close()
		if res := c.Exec(sb, "echo fine"); res.Stdout != "fine\n" {
			t.Errorf("%+v", res)
		}
	})
}
