package integration_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// filled returns when so many wait in a pool.
func (w *world) filled(t testing.TB, pool string, n int) api.Pool {
	t.Helper()
	c := w.dial(t)
	defer c.close()
	c.call(nil, "events.subscribe", params{"kinds": []string{"sandbox.state"}})
	for {
		var p api.Pool
		if c.call(&p, "pool.status", params{"pool": pool}); p.Available == n {
			return p
		}
		if p.Error != "" {
			t.Fatalf("%+v", p)
		}
		c.note()
	}
}

func (w *world) acquire(t testing.TB, c *hutch.Client, p api.AcquireParams) *api.Sandbox {
	t.Helper()
	sb, err := c.Acquire(t.Context(), p)
	if err != nil || sb == nil {
		t.Fatalf("acquire: %+v, %v", sb, err)
	}
	return sb
}

// long is a time to wait for a sandbox, in milliseconds.
var long = float64(patience.Milliseconds())

// TestPool: what waits in a pool is nobody's until it is acquired, then one caller's, and never anybody else's.
func TestPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
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
			w.filled(t, name, 2)
			waiting := strings.Fields(w.ok(t, "ps", "-aq"))
			if len(waiting) != 2 || w.ok(t, "ps", "-q") != "" {
				t.Errorf("listed: %v, and without -a %q", waiting, w.ok(t, "ps", "-q"))
			}
			w.run(t, "exec", waiting[0], "true").want(t, 125).says(t, "waits in pool", "hutch pool acquire "+name)
			if _, err := c.Release(t.Context(), waiting[0]); api.ErrorCode(err) != api.FailedPrecondition {
				t.Errorf("release of one that waits: %v", err)
			}

			first := w.acquire(t, c, api.AcquireParams{Pool: name, Name: "first-" + name, Labels: map[string]string{"a": "b"}})
			if first.State != api.Running || first.Pool != name || first.Labels["a"] != "b" || first.Labels["of"] != sp.Labels["of"] || !slices.Contains(waiting, first.ID) {
				t.Errorf("%+v", first)
			}
			if got := w.ok(t, "exec", "first-"+name, "--", "sh", "-c", "echo mine >/tmp/x; cat /tmp/x"); got != "mine\n" {
				t.Errorf("%q", got)
			}
			second := w.acquire(t, c, api.AcquireParams{Pool: name, WaitMS: long})
			if _, err := c.Acquire(t.Context(), api.AcquireParams{Pool: name, WaitMS: long, Name: "first-" + name}); api.ErrorCode(err) != api.AlreadyExists {
				t.Errorf("a name that is taken: %v", err)
			}
			w.run(t, "exec", second.ID, "--", "cat", "/tmp/x").want(t, 1)

			p = w.filled(t, name, 2)
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
			w.ok(t, "exec", second.ID, "true")
			w.ok(t, "pool", "release", second.ID)
			w.awaitNoSandbox(t)
		})
	}
	own := w.create(t, "host")
	w.run(t, "pool", "release", own).want(t, 125).says(t, "is of no pool", "hutch rm")
}

// TestPoolEmpty: who asks an empty pool is told so at once, or waits in turn.
func TestPoolEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	never := false
	c.call(nil, "pool.create", params{"name": "p", "size": 2, "prewarm": never, "sandbox": params{"image": "host", "ttl_s": 3600}})
	if m := c.start("pool.acquire", params{"pool": "p"}).wait(); m.Error != nil || string(m.Result) != "null" {
		t.Errorf("%+v", m)
	}
	w.filled(t, "p", 2) // since somebody has asked

	const crowd = 12
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range crowd {
		wg.Go(func() {
			cl := w.connect(t)
			sb, err := cl.Acquire(t.Context(), api.AcquireParams{Pool: "p", WaitMS: long})
			if err != nil || sb == nil || sb.Expires == nil {
				t.Errorf("%+v, %v", sb, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[sb.ID] {
				t.Errorf("%s was given twice", sb.ID)
			}
			seen[sb.ID] = true
		})
	}
	wg.Wait()
	p := w.filled(t, "p", 2)
	if p.InUse != crowd {
		t.Errorf("%+v", p)
	}
	// One that gives up is not given one, and who is behind it is.
	gone := w.dial(t)
	w.ok(t, "pool", "resize", "p", "1")
	for range 2 {
		gone.start("pool.acquire", params{"pool": "p", "wait_ms": long, "owner": "connection"})
	}
	gone.close()
	w.acquire(t, w.connect(t), api.AcquireParams{Pool: "p", WaitMS: long})
	if p = w.filled(t, "p", 1); p.InUse > crowd+3 {
		t.Errorf("%+v", p)
	}
	w.run(t, "run", "--pool", "p", "--", "sh", "-c", "exit 7").want(t, 7)
	w.run(t, "run", "--pool", "p", "host", "--", "true").want(t, 125).says(t, "does not go with --pool")
	w.run(t, "run", "--pool", "p", "-m", "1g", "--", "true").want(t, 125).says(t, "--memory does not go with --pool")
	w.run(t, "run", "--pool", "none", "--", "true").want(t, 125).says(t, `no pool "none"`)
	box := strings.TrimSpace(w.ok(t, "run", "-d", "--pool", "p", "--", "sleep", "infinity"))
	w.ok(t, "rm", "-f", box)
	w.ok(t, "pool", "rm", "p")
	c.refused("not_found", "pool.acquire", params{"pool": "p", "wait_ms": long})
}

// TestPoolRefused: a pool that can not be is refused, with the field or the reason, and leaves nothing.
func TestPoolRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(t)
	for _, tt := range []struct {
		code, field string
		p           params
	}{
		{"invalid_argument", "name", params{"name": "-x", "size": 1, "sandbox": params{"image": "host"}}},
		{"invalid_argument", "size", params{"name": "x", "size": 0, "sandbox": params{"image": "host"}}},
		{"invalid_argument", "size", params{"name": "x", "size": 33, "sandbox": params{"image": "host"}}},
		{"invalid_argument", "image", params{"name": "x", "size": 1, "sandbox": params{}}},
		{"invalid_argument", "sandbox.name", params{"name": "x", "size": 1, "sandbox": params{"image": "host", "name": "y"}}},
		{"invalid_argument", "sandbox.owner", params{"name": "x", "size": 1, "sandbox": params{"image": "host", "owner": "connection"}}},
		{"invalid_argument", "sandbox.workspace", params{"name": "x", "size": 1, "sandbox": params{"image": "host", "workspace": params{"path": "/tmp", "mode": "ro"}}}},
		{"invalid_argument", "sandbox.mounts", params{"name": "x", "size": 1, "sandbox": params{"image": "host", "mounts": []params{{"source": "/usr", "target": "/u", "mode": "ro"}}}}},
		{"not_found", "", params{"name": "x", "size": 1, "sandbox": params{"image": "127.0.0.1:1/none:1", "pull": "never"}}},
	} {
		if e := c.refused(tt.code, "pool.create", tt.p); tt.field != "" && e.Data.Field != tt.field {
			t.Errorf("%v: field %q, want %q", tt.p, e.Data.Field, tt.field)
		}
	}
	var all api.Pools
	if c.call(&all, "pool.list", params{}); len(all.Pools) != 0 {
		t.Errorf("%+v", all)
	}
	c.call(nil, "pool.create", params{"name": "x", "size": 1, "sandbox": params{"image": "host"}})
	c.refused("already_exists", "pool.create", params{"name": "x", "size": 1, "sandbox": params{"image": "host"}})
	c.refused("invalid_argument", "pool.resize", params{"pool": "x", "size": 99})
	c.refused("invalid_argument", "pool.acquire", params{"pool": "x", "wait_ms": -1})
	c.refused("invalid_argument", "pool.acquire", params{"pool": "x", "name": "sb_x"})
	c.refused("invalid_argument", "pool.acquire", params{"pool": "x", "owner": "me"})
	for _, method := range []string{"pool.status", "pool.remove", "pool.acquire"} {
		c.refused("not_found", method, params{"pool": "y"})
	}
}

// TestPoolHealth: what ends while it waits is replaced, and never handed out.
func TestPoolHealth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect(t)
	if _, err := c.CreatePool(t.Context(), api.PoolSpec{Name: "p", Size: 2, Sandbox: api.Spec{Image: "host"}}, nil); err != nil {
		t.Fatal(err)
	}
	for round := range rounds(10) {
		w.filled(t, "p", 2)
		var dead []string
		for _, id := range strings.Fields(w.ok(t, "ps", "-aq")) {
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
		sb := w.acquire(t, c, api.AcquireParams{Pool: "p", WaitMS: long})
		if slices.Contains(dead, sb.ID) {
			// Nobody can know of a death of this moment; the sandbox says so itself.
			if round == 0 {
				t.Logf("%s was handed out as it died", sb.ID)
			}
			_, _ = c.Release(t.Context(), sb.ID)
			continue
		}
		w.ok(t, "exec", sb.ID, "true")
		w.ok(t, "pool", "release", sb.ID)
	}
}

// TestPoolDeath: pools outlive hutchd and the monitor, with what waits and what is used.
func TestPoolDeath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok(t, "pool", "create", "--size", "2", "--network", "open", "p", "host")
	used := w.acquire(t, w.connect(t), api.AcquireParams{Pool: "p", Name: "used"})
	// What was being made when hutchd was killed goes.
	w.tolerated = append(w.tolerated, "take over a sandbox; it is removed")
	for round := range rounds(6) {
		w.filled(t, "p", 2)
		before := strings.Fields(w.ok(t, "ps", "-aq"))
		slices.Sort(before)
		strike(t, victims[round%len(victims)].pids(w.daemon(t)))
		p := decode[[]api.Pool](t, w.ok(t, "pool", "ls", "--json"))
		if len(p) != 1 || p[0].Size != 2 || p[0].Available != 2 || p[0].InUse != 1 {
			t.Fatalf("round %d: %+v", round, p)
		}
		after := strings.Fields(w.ok(t, "ps", "-aq"))
		if slices.Sort(after); !slices.Equal(before, after) {
			t.Fatalf("round %d: %v, before %v", round, after, before)
		}
		w.ok(t, "exec", "used", "true")
		// With another one on its way.
		w.run(t, "run", "--pool", "p", "--", "true").want(t, 0)
	}
	w.ok(t, "pool", "release", used.ID)
}

// TestPoolConfigured: the pools of the configuration file are there when the daemon starts, and become what
// the file says when it is read again.
func TestPoolConfigured(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.configure(t, "pools:\n  py: {size: 2, image: host, limits: {memory_bytes: 256m, timeout_s: 1m, best_effort: true}, labels: {a: b}}\n  later: {image: host, prewarm: false}\n")
	w.ok(t, "config", "check")
	p := w.filled(t, "py", 2)
	if !p.Configured || p.Sandbox.Limits.MemoryBytes != 256<<20 || p.Sandbox.Limits.TimeoutS != 60 || p.Sandbox.Labels["a"] != "b" {
		t.Errorf("%+v", p)
	}
	w.ok(t, "pool", "create", "mine", "host")
	w.configure(t, "pools:\n  py: {size: 1, image: host, hostname: other}\n")
	w.ok(t, "config", "reload")
	w.filled(t, "py", 1)
	if got := w.ok(t, "run", "--pool", "py", "--", "hostname"); got != "other\n" {
		t.Errorf("host name %q", got)
	}
	if got := strings.Fields(w.ok(t, "pool", "ls", "-q")); !slices.Equal(got, []string{"mine", "py"}) {
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
		w.configure(t, text)
		w.run(t, "config", "reload").want(t, 125).says(t, want)
	}
	w.filled(t, "py", 1)
}

// TestPoolRemovedEarly: what a pool is just making when it is removed goes like all else that it has.
func TestPoolRemovedEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.logOnFailure(t) // an error in the daemon's log fails the test
	w.configure(t, noneAhead)
	c := w.connect(t)
	w.inside(t, "true")
	start := time.Now()
	w.inside(t, "true")
	took := time.Since(start)
	for i := range rounds(60) {
		made := make(chan error, 1)
		go func() {
			_, err := c.CreatePool(t.Context(), api.PoolSpec{Name: "p", Size: 2, Sandbox: api.Spec{Image: "host"}}, nil)
			made <- err
		}()
		<-time.After(time.Duration(i%30) * took / 20)
		_, err := w.connect(t).RemovePool(t.Context(), "p")
		if err != nil && api.ErrorCode(err) != api.NotFound {
			t.Fatal(err)
		}
		if merr := <-made; merr == nil && err != nil { // it came behind the removal
			if _, err := c.RemovePool(t.Context(), "p"); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.awaitNoSandbox(t)
}
