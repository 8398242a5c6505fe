package alone_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// A crowd is many clients of one daemon at once. Nothing here asserts a time: `make bench`
// measures how long it takes.
const (
	crowdClients   = 50
	crowdSandboxes = 200
	crowdExecs     = 1000

	// What hutchd may take of memory, in MB: at the peak, and of its own with nothing but idle sandboxes, once it has
	// given back what making them took. How many pages of the binary are mapped on top of that is the kernel's to say:
	// 20 to 25 MB. `make bench` measures both together.
	crowdMemory = 300
	idleMemory  = 40
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
func crowd(t testing.TB, w *world.World) []*world.Conn {
	t.Helper()
	clients := make([]*world.Conn, fewer(crowdClients))
	for i := range clients {
		clients[i] = w.Dial(t)
	}
	return clients
}

// each calls a method n times at once, spread over the clients, and returns the answers
// in order.
func each(t testing.TB, clients []*world.Conn, n int, method string, p func(i int) world.Params) []world.Message {
	t.Helper()
	calls := make([]*world.Pending, n)
	for i := range calls {
		calls[i] = clients[i%len(clients)].Start(method, p(i))
	}
	answers := make([]world.Message, n)
	for i, c := range calls {
		if answers[i] = c.Wait(); answers[i].Error != nil {
			t.Fatalf("%s %v: %s", method, p(i), answers[i].Error)
		}
	}
	return answers
}

// sandboxesOf creates n sandboxes at once.
func sandboxesOf(t testing.TB, clients []*world.Conn, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i, m := range each(t, clients, n, "sandbox.create", func(int) world.Params {
		return world.Params{"image": "host"}
	}) {
		ids[i] = world.Decode[struct{ ID string }](t, string(m.Result)).ID
	}
	return ids
}

// TestCrowd: 50 clients, 200 sandboxes and 1000 commands that all run at the same moment,
// with open stdin and captured output: every one gets its own input and gives its own
// output and status, hutchd stays small, and holds nothing afterwards.
func TestCrowd(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "many")
	w := world.New(t)
	w.LogOnFailure(t)
	w.Configure(t, world.NoneAhead)
	clients := crowd(t, w)
	w.Inside(t, "true")
	w.AwaitNoSandbox(t)
	before := w.Resources(t)
	hutchd := w.Daemon(t).Hutchd

	boxes := sandboxesOf(t, clients, fewer(crowdSandboxes))
	made, idle := world.Memory(t, hutchd, "RssAnon"), awaitMemory(t, hutchd, idleMemory)
	t.Logf("hutchd: %d MB with %d sandboxes just made, %d MB when nobody uses them", made, len(boxes), idle)

	execs := make([]string, fewer(crowdExecs))
	for i, m := range each(t, clients, fewer(crowdExecs), "exec.start", func(i int) world.Params {
		return world.Params{"sandbox": boxes[i%len(boxes)],
			"command": fmt.Sprintf(`read x; echo "$x-%d"; echo "%d-$x" >&2; exit %d`, i, i, i%100)}
	}) {
		execs[i] = world.Decode[struct{ Exec string }](t, string(m.Result)).Exec
	}
	var info counts
	if clients[0].Call(&info, "system.info", world.Params{}); info.Counts.Execs != fewer(crowdExecs) ||
		info.Counts.Sandboxes != fewer(crowdSandboxes) {
		t.Errorf("%+v at once, want %d execs in %d sandboxes", info.Counts, fewer(crowdExecs), fewer(crowdSandboxes))
	}
	waits := make([]*world.Pending, fewer(crowdExecs))
	for i, ex := range execs {
		waits[i] = clients[(i+1)%fewer(crowdClients)].Start("exec.wait", world.Params{"exec": ex})
	}
	each(t, clients, fewer(crowdExecs), "exec.write", func(i int) world.Params {
		return world.Params{"exec": execs[i], "data": fmt.Sprintf("word%d\n", i)}
	})
	for i, c := range waits {
		m := c.Wait()
		if m.Error != nil {
			t.Fatalf("exec.wait %d: %s", i, m.Error)
		}
		res := world.Decode[world.ExecResult](t, string(m.Result))
		if out, errs := fmt.Sprintf("word%d-%d\n", i, i), fmt.Sprintf("%d-word%d\n", i, i); res.Stdout != out ||
			res.Stderr != errs || res.ExitCode != i%100 || res.Truncated {
			t.Errorf("exec %d: %+v", i, res)
		}
	}

	// As many that nobody holds up, each a call of its own.
	for i, m := range each(t, clients, fewer(crowdExecs), "exec.run", func(i int) world.Params {
		command := fmt.Sprintf("cat; exit %d", i%100)
		return world.Params{"sandbox": boxes[i%len(boxes)], "command": command, "stdin": fmt.Sprint(i)}
	}) {
		if res := world.Decode[world.ExecResult](t, string(m.Result)); res.Stdout != fmt.Sprint(i) ||
			res.ExitCode != i%100 {
			t.Errorf("exec.run %d: %+v", i, res)
		}
	}

	each(t, clients, len(boxes), "sandbox.remove",
		func(i int) world.Params { return world.Params{"sandbox": boxes[i]} })
	w.AwaitNoSandbox(t)
	if d := w.Daemon(t).Hutchd; d != hutchd {
		t.Errorf("hutchd %d was replaced by %d", hutchd, d)
	}
	peak := world.Memory(t, hutchd, "VmHWM")
	t.Logf("hutchd: %d MB at the peak", peak)
	if peak > crowdMemory {
		t.Errorf("hutchd took %d MB, more than %d", peak, crowdMemory)
	}
	if after := w.Resources(t); after.Hutchd > before.Hutchd || after.Launch > before.Launch ||
		after.Mounts > before.Mounts || after.Cgroups > before.Cgroups {
		t.Errorf("held before: %+v, after: %+v", before, after)
	}
}

// awaitMemory returns the anonymous memory of a process, in MB, once it is at most max: a daemon gives memory back some
// seconds after the last create, of which nothing tells.
func awaitMemory(t testing.TB, pid, max int) int {
	t.Helper()
	mb := 0
	defer func() {
		if mb > max {
			t.Logf("it takes %d MB", mb)
		}
	}()
	testenv.Poll(t, world.Limit, fmt.Sprintf("process %d still takes over %d MB of its own", pid, max), func() bool {
		mb = world.Memory(t, pid, "RssAnon")
		return mb <= max
	})
	return mb
}

// TestCrowdDeath kills parts of the daemon with 50 sandboxes and 500 commands at work (fewer with -short), again and
// again: all of them are taken over each time, and neither hutchd nor hutch-launch holds more files than after the
// first time.
func TestCrowdDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "many")
	w := world.New(t)
	w.LogOnFailure(t)
	w.Configure(t, world.NoneAhead)
	commands := world.Rounds(500)
	sandboxes := commands / 10
	first := w.Dial(t)
	boxes := sandboxesOf(t, []*world.Conn{first}, sandboxes)
	execs := make([]string, commands)
	for i := range 5 { // as many as one connection may have under way
		n := commands / 5
		for k, m := range each(t, []*world.Conn{first}, n, "exec.start", func(k int) world.Params {
			return world.Params{"sandbox": boxes[k%sandboxes],
				"command": fmt.Sprintf(`echo up; read x; echo "$x-%d"; exit %d`, i*n+k, k)}
		}) {
			execs[i*n+k] = world.Decode[struct{ Exec string }](t, string(m.Result)).Exec
		}
	}
	var held world.Resources
	for round := range world.Rounds(20) {
		// In turn, because a hutchd that dies too often ends its daemon.
		victim := world.Victims[round%len(world.Victims)]
		world.KillNow(t, victim.PIDs(w.Daemon(t)))
		// The command line goes on with the next hutchd when it meets the end of the last.
		start := time.Now()
		info := world.Decode[counts](t, w.OK(t, "rpc", "system.info"))
		t.Logf("round %d, %s: taken over and answered in %v", round, victim.Name, time.Since(start).
			Round(time.Millisecond))
		if info.Counts.Sandboxes != sandboxes || info.Counts.Execs != commands {
			t.Fatalf("round %d, %s: taken over: %+v; want %d sandboxes with %d execs", round, victim.Name, info.Counts,
				sandboxes, commands)
		}
		now := w.Resources(t)
		if round == 0 {
			held = now
		}
		// hutchd may still serve the last client's connection, of which there is one.
		if now.Hutchd > held.Hutchd+2 || now.Launch > held.Launch || now.Mounts > held.Mounts ||
			now.Cgroups > held.Cgroups {
			t.Fatalf("round %d: held %+v, now %+v", round, held, now)
		}
	}
	c := w.Dial(t)
	for i, ex := range execs {
		c.Call(nil, "exec.write", world.Params{"exec": ex, "data": "word\n"})
		var res world.ExecResult
		c.Call(&res, "exec.wait", world.Params{"exec": ex})
		if res.Stdout != fmt.Sprintf("up\nword-%d\n", i) || res.ExitCode != i%(commands/5) || res.Verdict == "lost" {
			t.Fatalf("exec %d: %+v", i, res)
		}
	}
	each(t, []*world.Conn{c}, sandboxes, "sandbox.remove", func(i int) world.Params {
		return world.Params{"sandbox": boxes[i]}
	})
}
