package integration_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestWireSystem: what a daemon says about itself.
func TestWireSystem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
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
	c.call(&info, "system.info", params{})
	if info.APIVersion < 1 || info.BuildID == "" || info.PID != w.daemon(t).monitor || info.Paths.Socket != w.socket() || info.Paths.State != w.root() {
		t.Errorf("%+v", info)
	}
	if os.Geteuid() != 0 && info.IDBase != os.Geteuid() || os.Geteuid() == 0 && info.IDBase == 0 {
		t.Errorf("uid 0 of sandboxes is the kernel's uid %d", info.IDBase)
	}
	var doctor struct {
		Checks []struct{ Name, Status, Detail, Remedy string }
	}
	c.call(&doctor, "system.doctor", params{})
	if len(doctor.Checks) < 5 {
		t.Errorf("doctor: %+v", doctor)
	}
	for _, check := range doctor.Checks {
		if !slices.Contains([]string{"yes", "no", "inconclusive"}, check.Status) || check.Detail == "" {
			t.Errorf("doctor: %+v", check)
		}
	}
	// kill ends the sandboxes; what keep does TestStopKeep sees.
	c.sandboxOf(nil)
	c.refused("invalid_argument", "system.shutdown", params{"mode": "other"})
	d := w.daemon(t)
	c.call(nil, "system.shutdown", params{"mode": "kill"})
	if !ended(d.monitor, patience) {
		t.Error("the daemon does not end")
	}
}

// TestWireSandbox: the life of a sandbox through the socket.
func TestWireSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	type record struct {
		ID, Name, State, Image, Hostname, Reason string
		Created                                  string
		PID                                      int
		Labels                                   map[string]string
		PhasesMS                                 map[string]float64 `json:"phases_ms"`
	}
	var sb, again record
	c.call(&sb, "sandbox.create", params{"image": "host", "name": "box", "labels": params{"a": "1"}, "env": params{"X": "y"}, "workdir": "/etc"})
	if sb.State != "running" || !strings.HasPrefix(sb.ID, "sb_") || !strings.HasSuffix(sb.Created, "Z") || sb.PhasesMS["launch"] <= 0 {
		t.Errorf("%+v", sb)
	}
	for _, ref := range []string{sb.ID, "box"} {
		if c.call(&again, "sandbox.get", params{"sandbox": ref}); again.ID != sb.ID {
			t.Errorf("get %s: %+v", ref, again)
		}
	}
	if res := c.exec("box", "echo $X; pwd"); res.Stdout != "y\n/etc\n" {
		t.Errorf("%+v", res)
	}
	var list struct{ Sandboxes []record }
	c.call(&list, "sandbox.list", params{"labels": params{"a": "2"}})
	if len(list.Sandboxes) != 0 {
		t.Errorf("%+v", list)
	}
	if c.call(&list, "sandbox.list", params{"labels": params{"a": "1"}}); len(list.Sandboxes) != 1 {
		t.Errorf("%+v", list)
	}
	e := c.refused("already_exists", "sandbox.create", params{"image": "host", "name": "box"})
	if e.Data.Field != "name" {
		t.Errorf("field %q", e.Data.Field)
	}
	c.refused("not_found", "sandbox.get", params{"sandbox": "nobody"})
	c.refused("not_found", "exec.run", params{"sandbox": "nobody", "argv": []string{"true"}})

	// kill lists what it killed, the exec that ran hears of it.
	call := c.start("exec.run", params{"sandbox": "box", "argv": []string{"sleep", "infinity"}, "progress": true})
	c.note()
	other := w.dial(t)
	var killed struct{ Killed []int }
	other.call(&killed, "sandbox.kill", params{"sandbox": "box"})
	if len(killed.Killed) < 2 || !slices.Contains(killed.Killed, sb.PID) {
		t.Errorf("killed %v, PID 1 is %d", killed.Killed, sb.PID)
	}
	for _, pid := range killed.Killed {
		if !ended(pid, 0) {
			t.Errorf("process %d is alive", pid)
		}
	}
	if m := call.wait(); m.Error == nil {
		if res := decode[execResult](t, string(m.Result)); res.ExitCode != 137 || res.Verdict != "sandbox" && res.Verdict != "killed" {
			t.Errorf("%+v", res)
		}
	}
	if c.call(&again, "sandbox.get", params{"sandbox": "box"}); again.State != "stopped" {
		t.Errorf("%+v", again)
	}
	c.refused("failed_precondition", "exec.run", params{"sandbox": "box", "argv": []string{"true"}})
	c.call(nil, "sandbox.remove", params{"sandbox": "box"})
	c.refused("not_found", "sandbox.remove", params{"sandbox": "box"})

	// ttl_s and idle_s end a sandbox without anybody asking.
	ttl := c.sandboxOf(params{"ttl_s": 0.3})
	idle := c.sandboxOf(params{"idle_s": 1}) // longer than it takes to begin with the command
	c.exec(idle, "true")
	w.awaitNoSandbox(t)
	c.refused("not_found", "sandbox.get", params{"sandbox": ttl})

	// The owner's connection takes its sandbox along.
	other.sandboxOf(params{"owner": "connection"})
	other.close()
	w.awaitNoSandbox(t)
}

// countSleeps prints how many sleep(1) run in a sandbox, with nothing but a shell.
const countSleeps = `n=0; for f in /proc/[0-9]*/comm; do read -r name <$f && [ "$name" = sleep ] && n=$((n+1)); done 2>/dev/null; echo $n`

// TestWireExec: exec.run with captured output.
func TestWireExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	run := func(p params) execResult {
		t.Helper()
		p["sandbox"] = sb
		var res execResult
		c.call(&res, "exec.run", p)
		return res
	}
	if res := run(params{"argv": []string{"sh", "-c", "cat; echo e >&2"}, "stdin": "in\n"}); res.Stdout != "in\n" || res.Stderr != "e\n" || res.Verdict != "ok" || res.Exec == "" {
		t.Errorf("%+v", res)
	}
	raw := base64.StdEncoding.EncodeToString([]byte{0, 255, 'a'})
	if res := run(params{"argv": []string{"cat"}, "stdin": raw, "encoding": "base64"}); res.Stdout != raw || res.StdoutEncoding != "base64" {
		t.Errorf("%+v", res)
	}
	if res := run(params{"command": "printf '\\377'"}); res.StdoutEncoding != "base64" || res.StderrEncoding != "utf-8" {
		t.Errorf("%+v", res)
	}
	if res := run(params{"argv": []string{"env"}, "env": params{"K": "v"}, "cwd": "/usr", "user": "0"}); !strings.Contains(res.Stdout, "K=v\n") {
		t.Errorf("%+v", res)
	}
	// The head and the tail of too much.
	res := run(params{"command": "echo first; seq 1000000; echo last", "output_bytes": 4096})
	if !res.Truncated || !strings.HasPrefix(res.Stdout, "first\n") || !strings.HasSuffix(res.Stdout, "last\n") || len(res.Stdout) > 5000 {
		t.Errorf("truncated %v, %d bytes: %s", res.Truncated, len(res.Stdout), abridged(res.Stdout))
	}
	if res := run(params{"command": "seq 300000"}); !res.Truncated || len(res.Stdout) > 1<<20+200 {
		t.Errorf("by default %d bytes", len(res.Stdout))
	}
	if res := run(params{"command": "head -c 20000 /dev/zero", "output_bytes": 100}); len(res.Stdout) > 400 {
		t.Errorf("%d bytes of 100", len(res.Stdout))
	}
	// A timeout takes everything that the command started.
	res = run(params{"command": "(setsid sleep 4242 &) ; sleep 4242", "timeout_s": testenv.Patience(300 * time.Millisecond).Seconds()})
	if !res.TimedOut || res.Verdict != "timeout_wall" || len(res.Killed) < 2 {
		t.Errorf("%+v", res)
	}
	if res := run(params{"command": countSleeps}); res.Stdout != "0\n" {
		t.Errorf("still there: %+v", res)
	}
	if res := run(params{"command": "kill -SEGV $$"}); res.Signal != "SIGSEGV" || res.ExitCode != 139 || res.Verdict != "signal" {
		t.Errorf("%+v", res)
	}
	if res := run(params{"argv": []string{"no-such-program"}}); res.ExitCode != 127 || res.Verdict != "not_run" || res.Error == "" {
		t.Errorf("%+v", res)
	}
	for _, bad := range []params{
		{}, {"argv": []string{}}, {"argv": []string{"a"}, "command": "b"}, {"argv": []string{"true"}, "cwd": "relative"},
		{"argv": []string{"true"}, "stdin": "%%%", "encoding": "base64"}, {"argv": []string{"true"}, "encoding": "latin1"},
		{"argv": []string{"true"}, "timeout_s": -1}, {"argv": []string{"a\x00b"}}, {"argv": []string{"true"}, "env": params{"A=B": "c"}},
		{"argv": []string{"true"}, "user": "no-such-user"}, {"argv": []string{"true"}, "output_bytes": -1},
		{"argv": []string{"true"}, "stdio": params{"stdin": 0}}, {"argv": []string{"true"}, "cwd": "/no/such/folder"},
	} {
		bad["sandbox"] = sb
		c.refused("invalid_argument", "exec.run", bad)
	}
	for _, unavailable := range []params{
		{"argv": []string{"true"}, "limits": params{"pids": 5}},
	} {
		if unavailable["limits"] != nil && pureV2() {
			continue // TestExecLimits
		}
		unavailable["sandbox"] = sb
		c.refused("unavailable", "exec.run", unavailable)
	}
	for _, mode := range []string{"none", "allow"} {
		c.refused("invalid_argument", "exec.run", params{"sandbox": sb, "argv": []string{"true"}, "network": params{"mode": mode, "ask": true}})
	}
	if res := c.exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

// TestWireCancel: rpc.cancel and a lost connection end what runs; closing only
// the sending half does not.
func TestWireCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, keeper := w.dial(t), w.dial(t)
	sb := keeper.sandboxOf(nil)
	sleep := params{"sandbox": sb, "command": "(setsid sleep infinity &); echo up; sleep infinity", "progress": true}
	gone := func() {
		t.Helper()
		// Only PID 1 and the shell of this very command are left.
		if res := keeper.exec(sb, countSleeps); strings.TrimSpace(res.Stdout) != "0" {
			t.Errorf("left: %+v", res)
		}
	}
	call := c.start("exec.run", sleep)
	if m := c.note(); m.Method != "progress" || !strings.Contains(string(m.Params), "exec.started") {
		t.Errorf("notification %s %s", m.Method, m.Params)
	}
	call.cancel()
	if m := call.wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("canceled: %+v", m)
	}
	gone()

	lost := w.dial(t)
	lost.start("exec.run", sleep)
	var begun struct{ Exec string }
	if err := json.Unmarshal(lost.note().Params, &begun); err != nil {
		t.Fatal(err)
	}
	// What hides in a session of its own is older than the next command, or it might
	// be taken for that one's.
	var up chunk
	keeper.call(&up, "exec.read", params{"exec": begun.Exec, "stream": "stdout", "offset": 0, "wait_s": 30})
	if up.Data != "up\n" {
		t.Errorf("%+v", up)
	}
	lost.close()
	// Nobody is told, so it is waited for inside.
	keeper.exec(sb, "until [ $("+countSleeps+") = 0 ]; do :; done")

	half := w.dial(t)
	call = half.start("exec.run", params{"sandbox": sb, "command": "read x; echo got $x", "stdin": "it\n"})
	if err := half.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if m := call.wait(); m.Error != nil {
		t.Errorf("half-closed: %s", m.Error)
	}
}

// TestWireSignals: exec.signal reaches the leader.
func TestWireSignals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	sb := c.sandboxOf(nil)
	for _, name := range []string{"SIGTERM", "TERM", "15"} {
		call := c.start("exec.run", params{"sandbox": sb, "argv": []string{"sleep", "infinity"}, "progress": true})
		var p struct{ Exec string }
		if err := json.Unmarshal(c.note().Params, &p); err != nil {
			t.Fatal(err)
		}
		c.refused("invalid_argument", "exec.signal", params{"exec": p.Exec, "signal": "SIGNOTHING"})
		c.refused("failed_precondition", "exec.resize", params{"exec": p.Exec, "rows": 1, "cols": 1})
		c.call(nil, "exec.signal", params{"exec": p.Exec, "signal": name})
		if res := decode[execResult](t, string(call.wait().Result)); res.Signal != "SIGTERM" {
			t.Errorf("%s: %+v", name, res)
		}
		c.refused("not_found", "exec.signal", params{"exec": p.Exec, "signal": name})
	}
}

// TestWireDiscover: rpc.discover lists exactly what works.
func TestWireDiscover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	var doc struct {
		OpenRPC string
		Methods []struct {
			Name, Summary string
			Params        []struct{ Name string }
		}
	}
	c.call(&doc, "rpc.discover", params{})
	var names []string
	for _, m := range doc.Methods {
		names = append(names, m.Name)
		if m.Summary == "" {
			t.Errorf("%s has no summary", m.Name)
		}
		if m.Name == "system.shutdown" {
			continue
		}
		// No method may answer that it does not exist or is not implemented.
		if answer := c.start(m.Name, params{}).wait(); answer.Error != nil && (answer.Error.Code == -32601 || answer.Error.Data.Code == "unimplemented") {
			t.Errorf("%s: %s", m.Name, answer.Error)
		}
	}
	for _, want := range []string{
		"system.info", "system.doctor", "system.shutdown", "sandbox.create", "sandbox.get", "sandbox.list", "sandbox.kill", "sandbox.remove",
		"exec.run", "image.pull", "image.list", "image.inspect", "image.remove", "rpc.discover",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, other := range []string{"exec.start", "snapshot.create", "network.update", "shell.open", "rpc.serverInfo", "no.such"} {
		if slices.Contains(names, other) {
			continue // built meanwhile
		}
		if e := c.refused("-32601", other, params{}); !strings.Contains(e.Data.Hint, "rpc.discover") {
			t.Errorf("%s", e)
		}
	}
}

// TestWireBadInput: what is no request gets its error, and neither the
// connection of others nor the daemon suffers.
func TestWireBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bystander := w.dial(t)
	sb := bystander.sandboxOf(nil)
	running := bystander.start("exec.run", params{"sandbox": sb, "argv": []string{"sleep", "infinity"}, "progress": true})
	bystander.note()
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
			c := w.dial(t)
			c.t = t
			go c.sendQuietly([]byte(tt.line)) // the daemon may close before it has all
			m, open := <-c.notify
			if !open && tt.code == "" {
				return
			}
			if m.Error == nil || tt.code != "" && fmt.Sprint(m.Error.Code) != tt.code {
				t.Fatalf("answer %+v %s, want error %s", m, m.Params, tt.code)
			}
		})
	}
	c := w.dial(t)
	for _, tt := range []struct {
		method string
		params params
		field  string
	}{
		{"sandbox.create", params{"image": "host", "colour": "red"}, "colour"},
		{"sandbox.create", params{"image": "host", "limits": params{"cpu_cores": 1}}, "limits.cpu_cores"},
		{"sandbox.create", params{"image": "host", "mounts": []params{{"src": "/x"}}}, "mounts[0].src"},
		{"sandbox.create", params{"image": 5}, "image"},
		{"sandbox.create", params{"image": "host", "Name": "x"}, "Name"},
		{"sandbox.get", params{"sandbox": []int{1}}, "sandbox"},
		{"system.info", params{"x": 1}, "x"},
	} {
		e := c.refused("-32602", tt.method, tt.params)
		if e.Data.Field != tt.field {
			t.Errorf("%s %v: field %q, want %q", tt.method, tt.params, e.Data.Field, tt.field)
		}
	}
	for _, p := range []params{
		{}, {"image": "host", "template": "x"}, {"image": ""}, {"image": "host", "name": "a/b"}, {"image": "host", "workdir": "x"},
		{"image": "host", "hostname": "-"}, {"image": "host", "limits": params{"memory_bytes": 1}}, {"image": "host", "ttl_s": -1},
		{"image": "UPPER/Case"}, {"image": "host", "workspace": params{"path": "relative", "mode": "rw"}},
		{"image": "host", "workspace": params{"path": "/tmp", "mode": "rwx"}},
		{"image": "host", "scope": params{"kind": "house", "key": "k"}}, {"image": "host", "scope": params{"kind": "agent"}},
		{"image": "host", "uploads": []params{{"name": "../x", "data": ""}}},
	} {
		if m := c.start("sandbox.create", p).wait(); m.Error == nil || m.Error.Data.Hint == "" {
			t.Errorf("%v: %+v", p, m)
		}
	}
	c.refused("not_found", "sandbox.create", params{"template": "x"})
	c.refused("invalid_argument", "sandbox.create", params{"image": "host", "network": params{"mode": "open", "ask": true}})
	c.refused("invalid_argument", "sandbox.create", params{"image": "host", "seccomp": "unconfined"})
	running.cancel()
	if m := running.wait(); m.Error == nil || m.Error.Data.Code != "canceled" {
		t.Errorf("the bystander's exec: %+v", m)
	}
	if res := bystander.exec(sb, "echo fine"); res.Stdout != "fine\n" {
		t.Errorf("%+v", res)
	}
}

func (c *rpcConn) sendQuietly(line []byte) { _, _ = c.conn.Write(line) }

// TestWireBatch: batches work; with fds they are refused, because nobody could
// say whose fds they are.
func TestWireBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(t, noneAhead)
	c := w.dial(t)
	batch := []byte(`[{"jsonrpc":"2.0","id":"a","method":"system.info","params":{}},{"jsonrpc":"2.0","id":"b","method":"no.such","params":{}}]` + "\n")
	c.sendRaw(batch)
	got := string(c.note().Params)
	if !strings.HasPrefix(got, "[") || !strings.Contains(got, `"build_id"`) || !strings.Contains(got, "-32601") {
		t.Errorf("answer %s", got)
	}
	sb := c.sandboxOf(nil)
	null := open(t, os.DevNull, os.O_RDWR)
	c.sendRaw(fmt.Appendf(nil, `[{"jsonrpc":"2.0","id":"a","method":"exec.run","params":{"sandbox":%q,"argv":["true"],"fds":1,"stdio":{"stdin":0}}}]`+"\n", sb), null)
	if m := c.note(); m.Error == nil && !strings.Contains(string(m.Params), `"error"`) {
		t.Errorf("a batch with fds: %+v %s", m, m.Params)
	}
	// fds that nobody announced, and announced ones that do not come.
	for _, call := range []*pending{
		c.start("exec.run", params{"sandbox": sb, "argv": []string{"true"}}, null),
		c.start("exec.run", params{"sandbox": sb, "argv": []string{"true"}, "fds": 1}),
		c.start("exec.run", params{"sandbox": sb, "argv": []string{"true"}, "fds": 1, "stdio": params{"stdin": 3}}, null),
		c.start("system.info", params{}, null),
	} {
		if m := call.wait(); m.Error == nil {
			t.Errorf("call %d succeeded: %s", call.id, m.Result)
		}
	}
	before := w.resources(t)
	before.hutchd += networksAhead - before.networks // which it may still be making
	before.launch += 2 * heldTries                   // what each exec has written is kept there
	w.heldAgain(t, "nine fds", before, func() {
		many := slices.Repeat([]*os.File{null}, 9)
		nine := w.dial(t)
		nine.sendRaw([]byte(`{"jsonrpc":"2.0","id":1,"method":"system.info","params":{"fds":9}}`+"\n"), many...)
		<-nine.notify // an error, or the end of the connection
		nine.close()
		if res := c.exec(sb, "echo fine"); res.Stdout != "fine\n" {
			t.Errorf("%+v", res)
		}
	})
}
