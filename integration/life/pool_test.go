package life_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

func acquire(t testing.TB, w *world.World, c *hutch.Client, p api.AcquireParams) *api.Sandbox {
	t.Helper()
	sb, err := c.Acquire(t.Context(), p)
	if err == nil && sb == nil && p.WaitMS > 0 {
		testenv.Late(t, "pool %s has no sandbox ready", p.Pool)
	}
	if err != nil || sb == nil {
		t.Fatalf("acquire: %+v, %v", sb, err)
	}
	return sb
}

// long is a time to wait for a sandbox, in milliseconds.
var long = float64(world.Patience.Milliseconds())

// TestPool: what waits in a pool is nobody's until it is acquired, then one caller's, and never anybody else's.
func TestPool(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	for name, sp := range map[string]api.Spec{
		"plain":   {Labels: map[string]string{"of": "pool"}},
		"network": {Network: api.NetPolicy{Mode: api.NetAllow, Allow: []string{"a.test"}}, Seccomp: api.SeccompBuild},
	} {
		t.Run(name, func(t *testing.T) {
			sp.Image = "host"
			p, err := c.CreatePool(t.Context(), api.PoolSpec{Name: name, Size: 2, Sandbox: sp}, nil)
			if err != nil || p.Available == 0 || p.InUse != 0 || p.Total != p.Available || p.Size != 2 {
				t.Fatalf("%+v, %v", p, err)
			}
			w.Filled(t, name, 2)
			waiting := strings.Fields(w.OK(t, "ps", "-aq"))
			if len(waiting) != 2 || w.OK(t, "ps", "-q") != "" {
				t.Errorf("listed: %v, and without -a %q", waiting, w.OK(t, "ps", "-q"))
			}
			w.Run(t, "exec", waiting[0], "true").Want(t, 125).Says(t, "waits in pool", "hutch pool acquire "+name)
			if _, err := c.Release(t.Context(), waiting[0]); api.ErrorCode(err) != api.FailedPrecondition {
				t.Errorf("release of one that waits: %v", err)
			}

			first := acquire(t, w, c, api.AcquireParams{Pool: name, Name: "first-" + name,
				Labels: map[string]string{"a": "b"}})
			if first.State != api.Running || first.Pool != name || first.Labels["a"] != "b" ||
				first.Labels["of"] != sp.Labels["of"] || !slices.Contains(waiting, first.ID) {
				t.Errorf("%+v", first)
			}
			if got := w.OK(t, "exec", "first-"+name, "--", "sh", "-c",
				"echo mine >/tmp/x; cat /tmp/x"); got != "mine\n" {
				t.Errorf("%q", got)
			}
			second := acquire(t, w, c, api.AcquireParams{Pool: name, WaitMS: long})
			if _, err := c.Acquire(t.Context(), api.AcquireParams{Pool: name, WaitMS: long, Name: "first-" +
				name}); api.ErrorCode(err) != api.AlreadyExists {
				t.Errorf("a name that is taken: %v", err)
			}
			w.Run(t, "exec", second.ID, "--", "cat", "/tmp/x").Want(t, 1)

			p = w.Filled(t, name, 2)
			if p.InUse != 2 || p.Total != 4 {
				t.Errorf("%+v", p)
			}
			if _, err := c.Release(t.Context(), first.ID); err != nil {
				t.Error(err)
			}
			if _, err := c.GetSandbox(t.Context(), first.ID); api.ErrorCode(err) != api.NotFound {
				t.Errorf("after its release: %v", err)
			}
			if p, err = c.ResizePool(t.Context(), name, 1); err != nil || p.Available != 1 || p.InUse != 1 {
				t.Errorf("resized: %+v, %v", p, err)
			}
			r, err := c.RemovePool(t.Context(), name)
			if err != nil || r.InUse != 1 || r.Removed != 1 {
				t.Errorf("removed: %+v, %v", r, err)
			}
			w.OK(t, "exec", second.ID, "true")
			w.OK(t, "pool", "release", second.ID)
			w.AwaitNoSandbox(t)
		})
	}
	own := w.Create(t, "host")
	w.Run(t, "pool", "release", own).Want(t, 125).Says(t, "is of no pool", "hutch rm")
}

// TestPoolHealth: what ends while it waits is replaced, and never handed out.
func TestPoolHealth(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	c := w.Connect(t)
	if _, err := c.CreatePool(t.Context(), api.PoolSpec{Name: "p", Size: 2, Sandbox: api.Spec{Image: "host"}},
		nil); err != nil {
		t.Fatal(err)
	}
	for round := range world.Rounds(10) {
		w.Filled(t, "p", 2)
		var dead []string
		for _, id := range strings.Fields(w.OK(t, "ps", "-aq")) {
			sb, err := c.GetSandbox(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if sb.State != api.Waiting {
				continue
			}
			if err := unix.Kill(sb.PID, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			dead = append(dead, id)
		}
		sb := acquire(t, w, c, api.AcquireParams{Pool: "p", WaitMS: long})
		if slices.Contains(dead, sb.ID) {
			// Nobody can know of a death of this moment; the sandbox says so itself.
			if round == 0 {
				t.Logf("%s was handed out as it died", sb.ID)
			}
			_, _ = c.Release(t.Context(), sb.ID)
			continue
		}
		w.OK(t, "exec", sb.ID, "true")
		w.OK(t, "pool", "release", sb.ID)
	}
}

// TestPoolDeath: pools outlive hutchd and the monitor, with what waits and what is used.
func TestPoolDeath(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	w.OK(t, "pool", "create", "--size", "2", "--network", "open", "p", "host")
	used := acquire(t, w, w.Connect(t), api.AcquireParams{Pool: "p", Name: "used"})
	// What was being made when hutchd was killed goes.
	w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
	for round := range world.Rounds(6) {
		w.Filled(t, "p", 2)
		before := strings.Fields(w.OK(t, "ps", "-aq"))
		slices.Sort(before)
		world.KillNow(t, world.Victims[round%len(world.Victims)].PIDs(w.Daemon(t)))
		p := world.Decode[[]api.Pool](t, w.OK(t, "pool", "ls", "--json"))
		if len(p) != 1 || p[0].Size != 2 || p[0].Available != 2 || p[0].InUse != 1 {
			t.Fatalf("round %d: %+v", round, p)
		}
		after := strings.Fields(w.OK(t, "ps", "-aq"))
		if slices.Sort(after); !slices.Equal(before, after) {
			t.Fatalf("round %d: %v, before %v", round, after, before)
		}
		w.OK(t, "exec", "used", "true")
		// With another one on its way.
		w.Run(t, "run", "--pool", "p", "--", "true").Want(t, 0)
	}
	w.OK(t, "pool", "release", used.ID)
}

// TestPoolConfigured: the pools of the configuration file are there when the daemon starts, and become what
// the file says when it is read again.
func TestPoolConfigured(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	w.Configure(t, "pools:\n  py: {size: 2, image: host, limits: {memory_bytes: 256m, timeout_s: 1m, best_effort: true}, labels: {a: b}}\n  later: {image: host, prewarm: false}\n")
	w.OK(t, "config", "check")
	p := w.Filled(t, "py", 2)
	if !p.Configured || p.Sandbox.Limits.MemoryBytes != 256<<20 || p.Sandbox.Limits.TimeoutS != 60 ||
		p.Sandbox.Labels["a"] != "b" {
		t.Errorf("%+v", p)
	}
	w.OK(t, "pool", "create", "mine", "host")
	w.Configure(t, "pools:\n  py: {size: 1, image: host, hostname: other}\n")
	w.OK(t, "config", "reload")
	w.Filled(t, "py", 1)
	if got := w.OK(t, "run", "--pool", "py", "--", "hostname"); got != "other\n" {
		t.Errorf("host name %q", got)
	}
	w.Run(t, "run", "--pool", "py", "--", "sh", "-c", "exit 7").Want(t, 7)
	w.Run(t, "run", "--pool", "py", "host", "--", "true").Want(t, 125).Says(t, "does not go with --pool")
	w.Run(t, "run", "--pool", "py", "-m", "1g", "--", "true").Want(t, 125).Says(t, "--memory does not go with --pool")
	w.Run(t, "run", "--pool", "none", "--", "true").Want(t, 125).Says(t, `no pool "none"`)
	w.OK(t, "rm", "-f", strings.TrimSpace(w.OK(t, "run", "-d", "--pool", "py", "--", "sleep", "infinity")))
	if got := strings.Fields(w.OK(t, "pool", "ls", "-q")); !slices.Equal(got, []string{"mine", "py"}) {
		t.Errorf("pools %v", got)
	}
	for text, want := range map[string]string{
		"pools: [py]\n": "expected names with pools",
		"pools:\n  py: {size: 40, image: host}\n":                        "line 2: py: size: 40 sandboxes",
		"pools:\n  py: {size: 2}\n":                                      "line 2: py: image: missing",
		"pools:\n  py: {image: host, sice: 3}\n":                         "sice",
		"pools:\n  py: {image: host, limits: {memory_bytes: much}}\n":    "memory_bytes",
		"pools:\n  py: {image: host}\n  py: {image: host}\n":             "already",
		"pools:\n  py: {image: host, workspace: {path: /, mode: ro}}\n":  "one user of a sandbox",
		"pools:\n  py: {image: host, network: {mode: open, mode: none}}": "already",
	} {
		w.Configure(t, text)
		w.Run(t, "config", "reload").Want(t, 125).Says(t, want)
	}
	w.Filled(t, "py", 1)
}
