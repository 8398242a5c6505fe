package integration_test

import (
	"os"
	"strings"
	"testing"
)

// configure writes the configuration file of the world's daemon, which must not
// have started yet.
func (w *world) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(w.path("home/config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// execOf runs a shell command with more params.
func (c *rpcConn) execOf(sandbox, command string, more params) execResult {
	c.t.Helper()
	p := params{"sandbox": sandbox, "command": command}
	for k, v := range more {
		p[k] = v
	}
	var res execResult
	c.call(&res, "exec.run", p)
	return res
}

// waited waits for the end of an exec.
func (c *rpcConn) waited(exec string) execResult {
	c.t.Helper()
	var res execResult
	c.call(&res, "exec.wait", params{"exec": exec})
	return res
}

// TestTimeouts: which commands have a timeout that did not ask for one, and what
// is the most that may be asked for.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(t, "exec: {timeout_s: 0.4, max_timeout_s: 60}\n")
	c := w.dial(t)
	var info struct {
		Exec struct {
			TimeoutS    float64 `json:"timeout_s"`
			MaxTimeoutS float64 `json:"max_timeout_s"`
		}
	}
	if c.call(&info, "system.info", params{}); info.Exec.TimeoutS != 0.4 || info.Exec.MaxTimeoutS != 60 {
		t.Errorf("%+v", info)
	}
	plain, own := c.sandboxOf(nil), c.sandboxOf(params{"limits": params{"timeout_s": 0.2}})

	// The daemon's default, of run and of start alike.
	if res := c.exec(plain, "sleep 4242"); res.Verdict != "timeout_wall" || !res.TimedOut || res.Signal != "SIGKILL" || res.DurationMS < 400 {
		t.Errorf("%+v", res)
	}
	if res := c.waited(c.started(plain, "sleep 4242", nil)); res.Verdict != "timeout_wall" {
		t.Errorf("%+v", res)
	}
	// The exec's own.
	if res := c.execOf(plain, "sleep 1", params{"timeout_s": 60}); res.Verdict != "ok" {
		t.Errorf("%+v", res)
	}
	// In the background there is none, unless the sandbox or the exec has one.
	free := c.started(plain, "sleep 1", params{"background": true})
	zero := c.started(own, "sleep 1", params{"background": true, "timeout_s": 0})
	long := c.started(own, "sleep 1", params{"background": true, "timeout_s": 7200})
	bound := c.started(own, "sleep 4242", params{"background": true})
	for exec, want := range map[string]string{free: "ok", zero: "ok", long: "ok", bound: "timeout_wall"} {
		if res := c.waited(exec); res.Verdict != want {
			t.Errorf("want %s: %+v", want, res)
		}
	}
	for _, bad := range []params{{"timeout_s": 0}, {"timeout_s": 60.5}} {
		bad["sandbox"], bad["command"] = plain, "true"
		for _, method := range []string{"exec.run", "exec.start"} {
			if e := c.refused("invalid_argument", method, bad); e.Data.Field != "timeout_s" {
				t.Errorf("%s %v: %+v", method, bad, e)
			}
		}
	}
	e := c.refused("invalid_argument", "sandbox.create", params{"image": "host", "limits": params{"timeout_s": 61}})
	if e.Data.Field != "limits.timeout_s" || !strings.Contains(e.Data.Hint, "60 seconds") || !strings.Contains(e.Data.Hint, "exec.max_timeout_s") {
		t.Errorf("%+v", e)
	}
	// A terminal's session outlives the default.
	p, cmd := w.terminal(t, "exec", "-it", plain, "sh", "-c", "sleep 1; echo lived")
	if code, shown := await(t, cmd), p.rest(); code != 0 || shown != "lived\r\n" {
		t.Errorf("terminal: %d, %q", code, shown)
	}
}

// TestConfigRefused: a configuration that is not understood is no daemon.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(t, "exec: {max_timeout: 60}\n")
	w.run(t, "run", "--", "true").want(t, 125).says(t, "read configuration", "max_timeout not found", "try: ", "exec.max_timeout_s")
}
