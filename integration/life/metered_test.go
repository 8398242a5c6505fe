package life_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// eaters are n processes that hold so many MiB each for as long as they are let.
func eaters(n, size int, then string) string {
	return strings.Repeat(fmt.Sprintf(`/usr/bin/python3 -c 'import time; b = bytearray(%d << 20); time.sleep(%s)' & `,
		size, then), n)
}

// TestMetered: where no cgroup does it, the meter holds a limit of memory that was asked
// for with best_effort, for all processes of the sandbox together.
func TestMetered(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	world.NeedsPython(t)
	w := world.New(t)
	c := w.Connect(t)
	l := api.Limits{MemoryBytes: 128 * world.MiB, BestEffort: true}
	sb, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host", Limits: l}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(sb.Unenforced) == 0 { // cgroups hold it: TestLimits
		w.OK(t, "rm", "-f", sb.ID)
		return
	}
	if u := sb.Unenforced[0]; len(sb.Unenforced) == 0 || !u.Metered ||
		u.Limit != "memory_bytes" || u.Value != 128*world.MiB {
		t.Errorf("%+v", sb.Unenforced)
	}
	events, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sb.ID, Kinds: []api.EventKind{api.EventLimitHit}})
	if err != nil {
		t.Fatal(err)
	}
	small := world.StartIn(t, c, sb.ID, "exec sleep 1000")
	isOOM(t, world.Ran(t, c, sb.ID, eaters(4, 50, "1000")+"wait"))
	if e := world.NextOf(t, events, api.EventLimitHit); !strings.Contains(string(e.Data), `"oom"`) {
		t.Errorf("event %s", e.Data)
	}
	if ex, err := c.GetExec(t.Context(), small); err != nil || ex.State != api.ExecRunning {
		t.Errorf("the small one: %+v %v", ex, err)
	}
	// What processes share counts once, and what there is in turn does not add up.
	for _, allowed := range []string{
		eaters(2, 40, "0.5") + "wait",
		`exec /usr/bin/python3 -c 'import os, time
b = bytearray(60 << 20)
for i in range(4):
    if os.fork() == 0:
        time.sleep(0.7)
        os._exit(0)
for i in range(4): os.wait()'`,
		strings.Repeat(`/usr/bin/python3 -c 'bytearray(60 << 20)' || exit; `, 4),
	} {
		if res := world.Ran(t, c, sb.ID, allowed); res.Verdict != api.VerdictOK {
			t.Errorf("%s: %+v", allowed, res)
		}
	}
	// The next hutchd goes on.
	ex := world.StartIn(t, c, sb.ID, "until [ -e /tmp/go ]; do sleep 0.01; done; "+eaters(4, 50, "1000")+"wait")
	world.Kill(t, w.Daemon(t).Hutchd)
	<-c.Done()
	c = w.Connect(t)
	world.Ran(t, c, sb.ID, "touch /tmp/go")
	res, err := c.ExecWait(t.Context(), api.WaitParams{Exec: ex})
	if err != nil {
		t.Fatal(err)
	}
	isOOM(t, res)
	checkLeftEaters(t, w, c, sb.ID, small)
	w.OK(t, "rm", "-f", sb.ID)
}

// checkLeftEaters: what is nobody's any more is ended with the sandbox.
func checkLeftEaters(t *testing.T, w *world.World, c *hutch.Client, sandbox, small string) {
	t.Helper()
	if _, err := c.ExecKill(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	events, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sandbox, Kinds: []api.EventKind{api.EventSandboxState}})
	if err != nil {
		t.Fatal(err)
	}
	left := "until [ -e /tmp/left ]; do sleep 0.01; done; " + strings.ReplaceAll(eaters(4, 50, "1000"), "'",
		`"`) + "wait"
	world.Ran(t, c, sandbox, "(setsid sh -c '"+left+"' >/dev/null 2>&1 &)")
	// no exec runs meanwhile
	w.OK(t, "rpc", "fs.write", fmt.Sprintf(`{"sandbox": %q, "path": "/tmp/left", "data": ""}`, sandbox))
	if end := world.StateOf(t, events); end.State != api.Stopped || !strings.Contains(end.Reason, "memory_bytes") {
		t.Errorf("%+v", end)
	}
}

// isOOM looks at the result of a command that the meter has ended.
func isOOM(t *testing.T, res api.ExecResult) {
	t.Helper()
	if l := res.Limit; res.Verdict != api.VerdictOOM || res.ExitCode != 137 || l == nil || l.Name != "memory_bytes" ||
		l.Of != "sandbox" ||
		l.Limit != 128*world.MiB || l.Peak <= l.Limit || l.Hint == "" || len(res.Killed) == 0 {
		t.Errorf("%+v, limit %+v, want oom", res, res.Limit)
	}
}
