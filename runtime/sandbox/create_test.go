package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// rich asks for as much as a sandbox may have that no mount of the host's is needed for.
func rich(req *CreateRequest) {
	req.Spec.Name, req.Spec.TTLS, req.Spec.IdleS = "rich", 3600, 600
	req.Spec.Network = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"example.com"}}
	req.Spec.Limits = api.Limits{MemoryBytes: 1 << 30, CPUs: 1.5, PIDs: 100}
	req.Spec.Mounts = []api.Mount{{Target: "/scratch", Mode: api.ModeTmpfs}}
	req.Spec.Owner = api.OwnerConnection
}

// kinds are sandboxes whose creations take different ways.
var kinds = map[string]func(*CreateRequest){
	"plain": func(*CreateRequest) {},
	"rich":  rich,
	"custom": func(req *CreateRequest) {
		req.Spec.Seccomp, req.Spec.SeccompProfile = api.SeccompCustom, `{"defaultAction":"SCMP_ACT_ALLOW"}`
		req.Spec.Limits.DiskBytes = 1 << 20
	},
}

// optional are calls whose failure a creation survives.
var optional = []string{"Cgroups.Watch"}

// TestCreateFails: whichever call of a creation fails, its caller hears of that, and nothing of it is left: no file,
// fd, mount, process, cgroup, network, lease, name or quota. The next creation is well.
func TestCreateFails(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.remove(r.create(kind).ID)
			r.points.forget()
			sb := r.create(kind)
			calls := r.points.names()
			r.remove(sb.ID)
			if len(calls) < 8 {
				t.Fatalf("a creation made the calls %q alone", calls)
			}
			fds := openFDs(t)
			for _, call := range calls {
				r.points.failing(call, errInjected)
				_, err := r.m.Create(t.Context(), request(kind))
				r.points.failing(call, nil)
				if slices.Contains(optional, call) {
					if err != nil {
						t.Errorf("%s: %v", call, err)
					}
					for _, sb := range r.list() {
						r.remove(sb.ID)
					}
				} else if !errors.Is(err, errInjected) {
					t.Errorf("%s failed, and the creation says %v", call, err)
				}
				r.empty()
				if n := openFDs(t); n > fds {
					t.Errorf("%s: %d files are open, before %d", call, n, fds)
				}
			}
			r.remove(r.create(kind).ID)
		})
	}
}

// TestCreateCanceled: at whichever call of a creation its caller goes, nothing is left, and the error is the caller's
// cause.
func TestCreateCanceled(t *testing.T) {
	r := newRig(t)
	r.remove(r.create(rich).ID)
	r.points.forget()
	r.remove(r.create(rich).ID)
	gone := errors.New("gone")
	for _, call := range r.points.names() {
		ctx, cancel := context.WithCancelCause(t.Context())
		r.points.mu.Lock()
		r.points.fail[call] = func() error { cancel(gone); return nil }
		r.points.mu.Unlock()
		sb, err := r.m.Create(ctx, request(rich))
		r.points.failing(call, nil)
		if err == nil { // the last step had begun, or it is one of a removal
			r.remove(sb.ID)
		} else if !errors.Is(err, gone) {
			t.Errorf("%s: %v", call, err)
		}
		r.empty()
		cancel(nil)
	}
}

// TestCreateWalls: a PID 1 without one of the walls that each sandbox has does not become a sandbox.
func TestCreateWalls(t *testing.T) {
	r := newRig(t)
	for what, spoil := range map[string]func(*fakeInit){
		"seccomp":    func(p *fakeInit) { p.tell("status", "CapBnd:\t0\nNoNewPrivs:\t1\nSeccomp:\t0\n") },
		"privileges": func(p *fakeInit) { p.tell("status", "CapBnd:\t0\nNoNewPrivs:\t0\nSeccomp:\t2\n") },
		"bounding":   func(p *fakeInit) { p.tell("status", "CapBnd:\t200000\nNoNewPrivs:\t1\nSeccomp:\t2\n") },
		"network":    func(p *fakeInit) { p.link("ns/net", "/dev/null") },
		"pid":        func(p *fakeInit) { p.link("ns/pid", ownNamespace(t, "pid")) },
		"user":       func(p *fakeInit) { p.link("ns/user", ownNamespace(t, "user")) },
	} {
		r.points.mu.Lock()
		r.points.fail["Init.setup"] = func() error {
			for _, p := range r.launcher.all() {
				spoil(p)
			}
			return nil
		}
		r.points.mu.Unlock()
		if _, err := r.m.Create(t.Context(), request()); err == nil {
			t.Errorf("%s: made", what)
		}
		r.points.failing("Init.setup", nil)
		r.empty()
	}
	r.remove(r.create().ID)
}

// TestRemoveFails: a removal in which something cannot be given back gives the rest back all the same, says so, and the
// name is free.
func TestRemoveFails(t *testing.T) {
	for _, what := range []string{"networks", "enforced policies", "ports"} {
		t.Run(what, func(t *testing.T) {
			call := "Networks.Close " + what
			r := newRig(t)
			sb := r.create(rich)
			if _, err := r.m.Ports.Expose(t.Context(), api.PortExposeParams{Sandbox: sb.ID, Port: 80},
				nil); err != nil {
				t.Fatal(err)
			}
			r.points.failing(call, errInjected)
			_, err := r.m.Remove(t.Context(), sb.ID)
			r.points.failing(call, nil)
			r.refused(api.Internal, err)
			if !errors.Is(err, errInjected) {
				t.Errorf("%v", err)
			}
			r.empty()
			r.remove(r.create(rich).ID)
		})
	}
}

// TestRemoveTwice: of removals at the same time one does it and the others come back when it is done.
func TestRemoveTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		sb := r.create(named("a"))
		done := make(chan error)
		for range 5 {
			go func() {
				_, err := r.m.Remove(t.Context(), "a")
				done <- err
			}()
		}
		for range 5 {
			if err := <-done; err != nil && api.ErrorCode(err) != api.NotFound {
				t.Error(err)
			}
		}
		if states := r.events.states(sb.ID); !slices.Equal(states, []string{"running", "stopped: removed", "removed"}) {
			t.Errorf("%q", states)
		}
	})
}

// TestCloseWhileCreating: the end of the daemon ends creations that are under way, waits for them, and takes every
// sandbox with it; nothing is made after.
func TestCloseWhileCreating(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.create()
		arrived, release := r.points.holding("Launcher.Create")
		errs := make(chan error)
		for range 3 {
			go func() {
				_, err := r.m.Create(t.Context(), request())
				errs <- err
			}()
		}
		<-arrived
		closed := make(chan error)
		go func() { closed <- r.m.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("closed while a creation was under way: %v", err)
		default:
		}
		_, err := r.m.Create(t.Context(), request())
		r.refused(api.Unavailable, err)
		release()
		for range 3 {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("%v", err)
			}
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		r.empty()
	})
}

// TestCreateDebug: a creation that is looked at says what each step took, in order.
func TestCreateDebug(t *testing.T) {
	r := newRig(t)
	sb := r.create(func(req *CreateRequest) { req.Debug = true })
	var names []string
	for _, st := range sb.Debug.Steps {
		names = append(names, st.Name)
	}
	if !slices.Equal(names, api.DebugPhases) {
		t.Errorf("%q", names)
	}
	if again, err := r.m.Get(sb.ID); err != nil || again.Debug != nil {
		t.Errorf("kept: %+v, %v", again.Debug, err)
	}
	r.remove(sb.ID)
}

// TestNames: a name belongs to one sandbox, also while it is being made, and is free when that has failed or was
// removed.
func TestNames(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		arrived, release := r.points.holding("Launcher.Create")
		r.points.failing("Launcher.Create", errInjected)
		first := make(chan error)
		go func() {
			_, err := r.m.Create(t.Context(), request(named("a")))
			first <- err
		}()
		<-arrived
		_, err := r.m.Create(t.Context(), request(named("a")))
		r.refused(api.AlreadyExists, err)
		release()
		if err := <-first; !errors.Is(err, errInjected) {
			t.Error(err)
		}
		r.points.failing("Launcher.Create", nil)
		sb := r.create(named("a"))
		if got, err := r.m.Get("a"); err != nil || got.ID != sb.ID {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := r.m.Remove(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		r.remove(r.create(named("a")).ID)
	})
}

// TestQuotas: each of a user's quotas is kept, whatever fails or is under way, of each user alone, and what is given
// back is free at once.
func TestQuotas(t *testing.T) {
	for name, tt := range map[string]struct {
		quotas api.Quotas
		limits api.Limits
	}{
		"count":  {quotas: api.Quotas{Sandboxes: 2}},
		"memory": {api.Quotas{MemoryBytes: 2 << 30}, api.Limits{MemoryBytes: 1 << 30}},
		"cpus":   {api.Quotas{CPUs: 3}, api.Limits{CPUs: 1.5}},
		"all":    {quotas: api.Quotas{MemoryBytes: 16 << 30, CPUs: 100}}, // who has no limit may use all that there is
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Settings.Quotas = tt.quotas })
			one := func(req *CreateRequest) { req.Spec.Limits = tt.limits }
			a := r.create(one)
			r.points.failing("Networks.Enforce", errInjected)
			for range 3 {
				if _, err := r.m.Create(t.Context(), request(one)); !errors.Is(err, errInjected) {
					t.Errorf("%v", err) // and does not count
				}
			}
			r.points.failing("Networks.Enforce", nil)
			b := r.create(one)
			_, err := r.m.Create(t.Context(), request(one))
			r.refused(api.ResourceExhausted, err)
			other := r.create(one, func(req *CreateRequest) { req.User = 2000 })
			r.remove(other.ID)
			r.remove(a.ID)
			c := r.create(one)
			_, err = r.m.Create(t.Context(), request(one))
			r.refused(api.ResourceExhausted, err)
			r.remove(b.ID)
			r.remove(c.ID)
		})
	}
}

// TestQuotaUnderWay: creations at the same time count before any of them is done.
func TestQuotaUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, release := r.points.holding("Launcher.Create")
		errs := make(chan error)
		for range 10 {
			go func() {
				_, err := r.m.Create(t.Context(), request())
				errs <- err
			}()
		}
		for range 7 {
			r.refused(api.ResourceExhausted, <-errs)
		}
		release()
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n, _, _ := r.m.Counts(); n != 3 {
			t.Errorf("%d sandboxes", n)
		}
	}, func(c *Config) { c.Settings.Quotas = api.Quotas{Sandboxes: 3} })
}

// TestQuotaEnded: one that has ended counts as a sandbox and not for what it used.
func TestQuotaEnded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Settings.Quotas = api.Quotas{Sandboxes: 2, MemoryBytes: 1 << 30} })
	one := func(req *CreateRequest) { req.Spec.Limits.MemoryBytes = 1 << 30 }
	a := r.create(one)
	if _, err := r.m.Kill(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	b := r.create(one)
	if _, err := r.m.Keep.Stop(t.Context(), api.StopParams{Sandbox: b.ID}); err != nil {
		t.Fatal(err)
	}
	_, err := r.m.Create(t.Context(), request(one))
	r.refused(api.ResourceExhausted, err)
	r.remove(a.ID)
	c := r.create(one)
	// both would use too much
	_, err = r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: b.ID})
	r.refused(api.ResourceExhausted, err)
	if st := r.state(b.ID); st != api.Stopped {
		t.Errorf("after a start that was refused it is %s", st)
	}
	r.remove(c.ID)
	if _, err := r.m.Keep.Start(t.Context(), keep.Caller{Conn: 1}, api.StartParams{Sandbox: b.ID}); err != nil {
		t.Error(err)
	}
	r.remove(b.ID)
}

// TestOwner: a sandbox that is tied to a connection goes with it, also when that ends while it is being made, and no
// other does.
func TestOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		owned := func(conn uint64) func(*CreateRequest) {
			return func(req *CreateRequest) { req.Conn, req.Spec.Owner = conn, api.OwnerConnection }
		}
		mine, other, free := r.create(owned(1)), r.create(owned(2)), r.create()
		arrived, release := r.points.holding("Launcher.Create")
		made := make(chan api.Sandbox)
		go func() {
			sb, err := r.m.Create(t.Context(), request(owned(1)))
			if err != nil {
				t.Error(err)
			}
			made <- sb
		}()
		<-arrived
		r.m.Disconnected(1)
		release()
		late := <-made
		synctest.Wait()
		r.m.Settle(t.Context())
		for id, want := range map[string]api.State{mine.ID: api.StateRemoved, late.ID: api.StateRemoved,
			other.ID: api.Running, free.ID: api.Running} {
			if st := r.state(id); st != want {
				t.Errorf("%s is %s, want %s", id, st, want)
			}
		}
		if states := r.events.states(late.ID); !slices.Contains(states, "stopped: its owner's connection ended") {
			t.Errorf("%q", states)
		}
		r.m.Disconnected(2)
		synctest.Wait()
		if st := r.state(other.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		r.remove(free.ID)
		r.empty()
	})
}

// TestCreateMuted: a PID 1 that does not answer ends its creation after a while, which leaves nothing.
func TestCreateMuted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.points.failing("Init.setup", fs.ErrInvalid) // not one of the channel's
		_, err := r.m.Create(t.Context(), request())
		r.refused(api.Internal, err)
		r.points.failing("Init.setup", nil)
		r.launcher.mute = true
		start := time.Now()
		_, err = r.m.Create(t.Context(), request())
		r.refused(api.Internal, err)
		if took := time.Since(start); took != guestTimeout {
			t.Errorf("after %v", took)
		}
		r.launcher.mute = false
		r.empty()
	})
}
