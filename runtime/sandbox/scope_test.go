package sandbox

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hutch-sh/hutch/runtime/api"
)

// scoped asks for the sandbox of a scope, on a connection.
func scoped(scope string, conn uint64) func(*CreateRequest) {
	sc, err := api.ParseScope(scope)
	if err != nil {
		panic(err)
	}
	return func(req *CreateRequest) { req.Spec.Scope, req.Conn = &sc, conn }
}

// TestScope: who names a scope gets the one sandbox of it, by whatever way and at whatever moment, each user their own
// but of shared ones; one that asks for something else is refused.
func TestScope(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ids := make(chan string)
		for range 8 {
			go func() { ids <- r.create(scoped("agent:a", 1)).ID }()
		}
		first := <-ids
		for range 7 {
			if id := <-ids; id != first {
				t.Errorf("%s and %s", id, first)
			}
		}
		if n := r.points.count("Launcher.Create"); n != 1 {
			t.Errorf("%d were launched", n)
		}
		if sb := r.create(scoped("agent:a", 2)); sb.ID != first || !sb.Existing {
			t.Errorf("%+v", sb)
		}
		theirs := func(req *CreateRequest) { req.User = 2000 }
		if sb := r.create(scoped("agent:a", 1), theirs); sb.ID == first {
			t.Error("another user's")
		}
		shared := r.create(scoped("shared:a", 1))
		if sb := r.create(scoped("shared:a", 1), theirs); sb.ID != shared.ID {
			t.Error("not shared")
		}
		for what, change := range map[string]func(*CreateRequest){
			"image":   func(req *CreateRequest) { req.Spec.Image = "other" },
			"env":     func(req *CreateRequest) { req.Spec.Env = map[string]string{"A": "b"} },
			"network": func(req *CreateRequest) { req.Spec.Network = api.NetPolicy{Mode: api.NetOpen} },
		} {
			_, err := r.m.Create(t.Context(), request(scoped("agent:a", 1), change))
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.FailedPrecondition || e.Field != what {
				t.Errorf("%s: %v", what, err)
			}
		}
		if list := r.scopes(); len(list) != 3 || !slices.ContainsFunc(list, func(s api.ScopeInfo) bool {
			return s.Sandbox == first && s.Connections == 2
		}) {
			t.Errorf("%+v", list)
		}
		for _, sb := range r.list() {
			r.remove(sb.ID)
		}
		r.empty()
	})
}

// TestScopeFails: a creation that fails leaves no scope, and who has waited for it makes the next try.
func TestScopeFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		arrived, release := r.points.holding("Launcher.Create")
		r.points.failing("Launcher.Create", errInjected)
		first, second := make(chan error), make(chan error)
		go func() {
			_, err := r.m.Create(t.Context(), request(scoped("agent:a", 1)))
			first <- err
		}()
		<-arrived
		go func() {
			_, err := r.m.Create(t.Context(), request(scoped("agent:a", 2)))
			second <- err
		}()
		synctest.Wait()
		release()
		if err := <-first; !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		if err := <-second; !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		r.empty()
		r.points.failing("Launcher.Create", nil)
		r.remove(r.create(scoped("agent:a", 1)).ID)
		r.empty()
	})
}

// TestScopeSession: a session's sandbox ends with the last connection that has asked for it, also when that ends while
// it is being made; an agent's stays.
func TestScopeSession(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		session, agent := r.create(scoped("session:a", 1)), r.create(scoped("agent:a", 1))
		r.create(scoped("session:a", 2))
		r.m.Disconnected(1)
		r.settle()
		if st := r.state(session.ID); st != api.Running {
			t.Errorf("%s with a connection left", st)
		}
		r.m.Disconnected(2)
		r.settle()
		if a, b := r.state(session.ID), r.state(agent.ID); a != api.StateRemoved || b != api.Running {
			t.Errorf("%s and %s", a, b)
		}
		arrived, release := r.points.holding("Launcher.Create")
		made := make(chan string)
		go func() { made <- r.create(scoped("session:b", 3)).ID }()
		<-arrived
		r.m.Disconnected(3)
		release()
		late := <-made
		r.settle()
		if st := r.state(late); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		r.remove(agent.ID)
		r.empty()
	})
}

// TestScopeEnded: a scope's sandbox that was stopped goes on, one that has ended otherwise is an error, and a reset or
// an end makes room for another.
func TestScopeEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(scoped("agent:a", 1))
		r.write(sb.ID, "tmp/file", "kept")
		r.stop(sb.ID)
		again := r.create(scoped("agent:a", 1))
		if again.ID != sb.ID || again.State != api.Running || !again.Existing || r.read(sb.ID, "tmp/file") != "kept" {
			t.Errorf("%+v", again)
		}
		if _, err := r.m.Kill(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		_, err := r.m.Create(t.Context(), request(scoped("agent:a", 1)))
		r.refused(api.FailedPrecondition, err)
		scope := api.Scope{Kind: api.ScopeAgent, Key: "a"}
		fresh, err := r.m.Scopes.Reset(t.Context(), Caller{User: 1000, Conn: 1}, api.ScopeParams{Scope: scope})
		if err != nil || fresh.ID == sb.ID || r.read(fresh.ID, "tmp/file") != "" {
			t.Errorf("%+v, %v", fresh, err)
		}
		if sb := r.create(scoped("agent:a", 1)); sb.ID != fresh.ID {
			t.Errorf("%s, want %s", sb.ID, fresh.ID)
		}
		if _, err := r.m.Scopes.End(t.Context(), Caller{User: 1000}, api.ScopeParams{Scope: scope}); err != nil {
			t.Error(err)
		}
		_, err = r.m.Scopes.Reset(t.Context(), Caller{User: 1000, Conn: 1}, api.ScopeParams{Scope: scope})
		r.refused(api.NotFound, err)
		r.settle()
		r.empty()
	})
}

// TestUpdate: an update is made whole or not at all: what the kernel, a quota or the use refuses changes no limit, and
// the cgroup has the old ones.
func TestUpdate(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(func(req *CreateRequest) {
			req.Spec.Limits = api.Limits{MemoryBytes: 1 << 30, PIDs: 100, TimeoutS: 5}
		})
		update := func(l api.Limits) error {
			_, err := r.m.Meters.Update(t.Context(), api.UpdateParams{Sandbox: sb.ID, Limits: l})
			return err
		}
		limits := func() api.Limits {
			got, err := r.m.Get(sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			return got.Limits
		}
		if err := update(api.Limits{MemoryBytes: 2 << 30, TimeoutS: 9}); err != nil {
			t.Fatal(err)
		}
		want := sb.Limits
		want.MemoryBytes, want.TimeoutS = 2<<30, 9
		if got := limits(); got != want {
			t.Errorf("%+v", got)
		}
		calls := 0
		r.points.mu.Lock()
		r.points.fail["Cgroups.Limit"] = func() error { // the first alone
			if calls++; calls == 1 {
				return errInjected
			}
			return nil
		}
		r.points.mu.Unlock()
		if err := update(api.Limits{CPUs: 2, MemoryBytes: 3 << 30}); !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		if got := limits(); got != want {
			t.Errorf("%+v", got)
		}
		r.cgroups.with(func(c *fakeCgroups) {
			last := c.limits[len(c.limits)-1]
			if calls != 2 || last.MemoryBytes != 2<<30 || last.CPUs != api.Unlimited {
				t.Errorf("after %d calls the cgroup has %+v", calls, last)
			}
			c.stats.Memory = &api.MemoryStats{AnonBytes: 1 << 29}
		})
		r.refused(api.FailedPrecondition, update(api.Limits{MemoryBytes: 1 << 28, PIDs: 7}))
		r.refused(api.InvalidArgument, update(api.Limits{CPUs: 99}))
		r.refused(api.InvalidArgument, update(api.Limits{ShmBytes: 1 << 20}))
		r.m.Configure(Settings{Exec: r.cfg.Settings.Exec, Quotas: api.Quotas{MemoryBytes: 3 << 30}})
		r.refused(api.ResourceExhausted, update(api.Limits{MemoryBytes: 4 << 30, PIDs: 7}))
		if got := limits(); got != want {
			t.Errorf("%+v", got)
		}
		other := r.create(func(req *CreateRequest) { req.Spec.Limits.MemoryBytes = 1 << 30 }) // what is left of it
		if err := update(api.Limits{MemoryBytes: 1 << 30}); err != nil {
			t.Error(err)
		}
		r.remove(r.create(func(req *CreateRequest) { req.Spec.Limits.MemoryBytes = 1 << 30 }).ID)
		r.remove(other.ID)
		if _, audits := r.events.of(string(api.AuditUpdated), sb.ID); len(audits) != 2 {
			t.Errorf("%d are on record", len(audits))
		}
		r.remove(sb.ID)
	})
}

// TestPorts: what is exposed is listed, noted for the next daemon and closed, by its port or its address.
func TestPorts(t *testing.T) {
	r := newRig(t)
	sb := r.create(rich)
	for _, port := range []int{80, 443} {
		if _, err := r.m.Ports.Expose(t.Context(), api.PortExposeParams{Sandbox: sb.ID, Port: port}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.points.failing("Ports.Expose", errInjected)
	_, err := r.m.Ports.Expose(t.Context(), api.PortExposeParams{Sandbox: sb.ID, Port: 81}, nil)
	if !errors.Is(err, errInjected) {
		t.Errorf("%v", err)
	}
	ports := func() (list []int) {
		all, err := r.ports("")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			list = append(list, p.Port)
		}
		return list
	}
	if got := ports(); !slices.Equal(got, []int{80, 443}) {
		t.Errorf("%v", got)
	}
	_, err = r.m.Ports.Close(t.Context(), api.PortCloseParams{Sandbox: sb.ID, Port: 81})
	r.refused(api.NotFound, err)
	ended, err := r.m.Ports.Close(t.Context(), api.PortCloseParams{Sandbox: sb.ID, Port: 80})
	closed := ended.Ports
	if err != nil || len(closed) != 1 || !slices.Equal(ports(), []int{443}) {
		t.Errorf("%v, %v, left %v", closed, err, ports())
	}
	r.remove(sb.ID)
	r.empty()
}
