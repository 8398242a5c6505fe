package integration_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// A crowd is many clients of one daemon at once. Nothing here asserts a time: `make bench`
// measures how long it takes.
const (
	crowdClients   = 50
	crowdSandboxes = 200
	crowdExecs     = 1000

	// What hutchd may take of memory, in MB: at the peak, and with nothing but idle
	// sandboxes, once it has given back what making them took. The promise for those is
	// 40, which `make bench` measures; it depends on how many were made at once.
	crowdMemory = 300
	idleMemory  = 50
)

// fewer is n, or a tenth of it in short mode, which is for emulated machines.
func fewer(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

// counts are those of system.info.
type counts struct {
	Counts struct{ Sandboxes, Execs int }
}

// crowd connects the clients.
func (w *world) crowd(t testing.TB) []*rpcConn {
	t.Helper()
	clients := make([]*rpcConn, fewer(crowdClients))
	for i := range clients {
		clients[i] = w.dial(t)
	}
	return clients
}

// each calls a method n times at once, spread over the clients, and returns the answers
// in order.
func each(t testing.TB, clients []*rpcConn, n int, method string, p func(i int) params) []message {
	t.Helper()
	calls := make([]*pending, n)
	for i := range calls {
		calls[i] = clients[i%len(clients)].start(method, p(i))
	}
	answers := make([]message, n)
	for i, c := range calls {
		if answers[i] = c.wait(); answers[i].Error != nil {
			t.Fatalf("%s %v: %s", method, p(i), answers[i].Error)
		}
	}
	return answers
}

// sandboxesOf creates n sandboxes at once.
func sandboxesOf(t testing.TB, clients []*rpcConn, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i, m := range each(t, clients, n, "sandbox.create", func(int) params { return params{"image": "host"} }) {
		ids[i] = decode[struct{ ID string }](t, string(m.Result)).ID
	}
	return ids
}

// TestCrowd: 50 clients, 200 sandboxes and 1000 commands that all run at the same moment,
// with open stdin and captured output: every one gets its own input and gives its own
// output and status, hutchd stays small, and holds nothing afterwards.
func TestCrowd(t *testing.T) {
	w := newWorld(t)
	w.logOnFailure(t)
	w.configure(t, noneAhead)
	clients := w.crowd(t)
	w.inside(t, "true")
	w.awaitNoSandbox(t)
	before := w.resources(t)
	hutchd := w.daemon(t).hutchd

	boxes := sandboxesOf(t, clients, fewer(crowdSandboxes))
	made, idle := memory(t, hutchd, "VmRSS"), awaitMemory(t, hutchd, idleMemory)
	t.Logf("hutchd: %d MB with %d sandboxes just made, %d MB when nobody uses them", made, len(boxes), idle)

	execs := make([]string, fewer(crowdExecs))
	for i, m := range each(t, clients, fewer(crowdExecs), "exec.start", func(i int) params {
		return params{"sandbox": boxes[i%len(boxes)], "command": fmt.Sprintf(`read x; echo "$x-%d"; echo "%d-$x" >&2; exit %d`, i, i, i%100)}
	}) {
		execs[i] = decode[struct{ Exec string }](t, string(m.Result)).Exec
	}
	var info counts
	if clients[0].call(&info, "system.info", params{}); info.Counts.Execs != fewer(crowdExecs) || info.Counts.Sandboxes != fewer(crowdSandboxes) {
		t.Errorf("%+v at once, want %d execs in %d sandboxes", info.Counts, fewer(crowdExecs), fewer(crowdSandboxes))
	}
	waits := make([]*pending, fewer(crowdExecs))
	for i, ex := range execs {
		waits[i] = clients[(i+1)%fewer(crowdClients)].start("exec.wait", params{"exec": ex})
	}
	each(t, clients, fewer(crowdExecs), "exec.write", func(i int) params {
		return params{"exec": execs[i], "data": fmt.Sprintf("word%d\n", i)}
	})
	for i, c := range waits {
		m := c.wait()
		if m.Error != nil {
			t.Fatalf("exec.wait %d: %s", i, m.Error)
		}
		res := decode[execResult](t, string(m.Result))
		if out, errs := fmt.Sprintf("word%d-%d\n", i, i), fmt.Sprintf("%d-word%d\n", i, i); res.Stdout != out || res.Stderr != errs || res.ExitCode != i%100 || res.Truncated {
			t.Errorf("exec %d: %+v", i, res)
		}
	}

	// As many that nobody holds up, each a call of its own.
	for i, m := range each(t, clients, fewer(crowdExecs), "exec.run", func(i int) params {
		return params{"sandbox": boxes[i%len(boxes)], "command": fmt.Sprintf("cat; exit %d", i%100), "stdin": fmt.Sprint(i)}
	}) {
		if res := decode[execResult](t, string(m.Result)); res.Stdout != fmt.Sprint(i) || res.ExitCode != i%100 {
			t.Errorf("exec.run %d: %+v", i, res)
		}
	}

	each(t, clients, len(boxes), "sandbox.remove", func(i int) params { return params{"sandbox": boxes[i]} })
	w.awaitNoSandbox(t)
	if d := w.daemon(t).hutchd; d != hutchd {
		t.Errorf("hutchd %d was replaced by %d", hutchd, d)
	}
	peak := memory(t, hutchd, "VmHWM")
	t.Logf("hutchd: %d MB at the peak", peak)
	if peak > crowdMemory {
		t.Errorf("hutchd took %d MB, more than %d", peak, crowdMemory)
	}
	if after := w.resources(t); after.hutchd > before.hutchd || after.launch > before.launch || after.mounts > before.mounts || after.cgroups > before.cgroups {
		t.Errorf("held before: %+v, after: %+v", before, after)
	}
}

// awaitMemory returns the resident memory of a process, in MB, once it is at most max: a
// daemon gives memory back some seconds after the last create, of which nothing tells.
func awaitMemory(t testing.TB, pid, max int) int {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		mb := memory(t, pid, "VmRSS")
		if mb <= max {
			return mb
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d still takes %d MB, more than %d", pid, mb, max)
		}
	}
}

// memory is a field of /proc/PID/status, in MB.
func memory(t testing.TB, pid int, field string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if kb, found := bytes.CutPrefix(line, []byte(field+":")); found {
			n, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(kb), []byte("kB")))))
			if err != nil {
				t.Fatal(err)
			}
			return n / 1000
		}
	}
	t.Fatalf("no %s of process %d", field, pid)
	return 0
}

// TestCrowdDeath kills parts of the daemon with 50 sandboxes and 500 commands at work (fewer with -short), again and again:
// all of them are taken over each time, and neither hutchd nor hutch-launch holds more
// files than after the first time.
func TestCrowdDeath(t *testing.T) {
	w := newWorld(t)
	w.logOnFailure(t)
	w.configure(t, noneAhead)
	commands := rounds(500)
	sandboxes := commands / 10
	first := w.dial(t)
	boxes := sandboxesOf(t, []*rpcConn{first}, sandboxes)
	execs := make([]string, commands)
	for i := range 5 { // as many as one connection may have under way
		n := commands / 5
		for k, m := range each(t, []*rpcConn{first}, n, "exec.start", func(k int) params {
			return params{"sandbox": boxes[k%sandboxes], "command": fmt.Sprintf(`echo up; read x; echo "$x-%d"; exit %d`, i*n+k, k)}
		}) {
			execs[i*n+k] = decode[struct{ Exec string }](t, string(m.Result)).Exec
		}
	}
	var held resources
	for round := range rounds(20) {
		// In turn, because a hutchd that dies too often ends its daemon.
		victim := victims[round%len(victims)]
		strike(t, victim.pids(w.daemon(t)))
		// The command line goes on with the next hutchd when it meets the end of the last.
		start := time.Now()
		info := decode[counts](t, w.ok(t, "rpc", "system.info"))
		t.Logf("round %d, %s: taken over and answered in %v", round, victim.name, time.Since(start).Round(time.Millisecond))
		if info.Counts.Sandboxes != sandboxes || info.Counts.Execs != commands {
			t.Fatalf("round %d, %s: taken over: %+v; want %d sandboxes with %d execs", round, victim.name, info.Counts, sandboxes, commands)
		}
		now := w.resources(t)
		if round == 0 {
			held = now
		}
		// hutchd may still serve the last client's connection, of which there is one.
		if now.hutchd > held.hutchd+2 || now.launch > held.launch || now.mounts > held.mounts || now.cgroups > held.cgroups {
			t.Fatalf("round %d: held %+v, now %+v", round, held, now)
		}
	}
	c := w.dial(t)
	for i, ex := range execs {
		c.call(nil, "exec.write", params{"exec": ex, "data": "word\n"})
		var res execResult
		c.call(&res, "exec.wait", params{"exec": ex})
		if res.Stdout != fmt.Sprintf("up\nword-%d\n", i) || res.ExitCode != i%(commands/5) || res.Verdict == "lost" {
			t.Fatalf("exec %d: %+v", i, res)
		}
	}
	each(t, []*rpcConn{c}, sandboxes, "sandbox.remove", func(i int) params { return params{"sandbox": boxes[i]} })
}
