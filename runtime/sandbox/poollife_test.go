package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/warm"
)

// pool makes one of plain sandboxes.
func (r *rig) pool(name string, size int, change ...func(*api.PoolSpec)) api.Pool {
	r.t.Helper()
	p := api.PoolSpec{Name: name, Size: size, Sandbox: api.Spec{Image: "tiny"}}
	for _, f := range change {
		f(&p)
	}
	st, err := r.m.Pools.Create(r.t.Context(), warm.Request{Spec: p, User: 1000, Progress: func(api.Progress) {}})
	if err != nil {
		r.t.Fatal(err)
	}
	return st
}

// acquire takes one out of a pool.
func (r *rig) acquire(pool string, change ...func(*api.AcquireParams)) *api.Sandbox {
	r.t.Helper()
	a := api.AcquireParams{Pool: pool}
	for _, f := range change {
		f(&a)
	}
	sb, err := r.m.Pools.Acquire(r.t.Context(), 1, a)
	if err != nil {
		r.t.Fatal(err)
	}
	return sb
}

// filled lets a pool be filled, and checks that.
func (r *rig) filled(name string, available, inUse int) {
	r.t.Helper()
	testenv.Elapse(time.Second)
	st, err := r.m.Pools.Status(api.PoolParams{Pool: name})
	if err != nil || st.Available != available || st.InUse != inUse || st.Total != available+inUse {
		r.t.Errorf("%+v, %v, want %d and %d", st, err, available, inUse)
	}
}

// TestPool: a pool is full when it is made and again after each acquire; what waits is nobody's, and what was acquired
// is one caller's and goes with its release.
func TestPool(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		if st := r.pool("p", 2); st.Available < 1 {
			t.Errorf("%+v", st)
		}
		r.filled("p", 2, 0)
		waits := r.list()[0]
		_, err := r.m.Execs.Start(t.Context(), exec.Request{Params: params(waits.ID, "true"),
			Started: func(string, int) {}})
		r.refused(api.FailedPrecondition, err)
		_, err = r.m.Pools.Release(t.Context(), waits.ID)
		r.refused(api.FailedPrecondition, err)
		sb := r.acquire("p", func(a *api.AcquireParams) { a.Name, a.Labels = "mine", map[string]string{"a": "b"} })
		if sb == nil || sb.State != api.Running || sb.Name != "mine" || sb.Labels["a"] != "b" || sb.Pool != "p" {
			t.Fatalf("%+v", sb)
		}
		_, err = r.m.Pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", Name: "mine"})
		r.refused(api.AlreadyExists, err)
		r.filled("p", 2, 1)
		if _, err := r.m.Pools.Release(t.Context(), "mine"); err != nil {
			t.Error(err)
		}
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		r.filled("p", 2, 0)
		own := r.create()
		_, err = r.m.Pools.Release(t.Context(), own.ID)
		r.refused(api.FailedPrecondition, err)
		r.remove(own.ID)
		if st, err := r.m.Pools.Resize(api.PoolResizeParams{Pool: "p", Size: 4}); err != nil || st.Size != 4 {
			t.Errorf("%+v, %v", st, err)
		}
		r.filled("p", 4, 0)
		if _, err := r.m.Pools.Resize(api.PoolResizeParams{Pool: "p", Size: 1}); err != nil {
			t.Error(err)
		}
		r.filled("p", 1, 0)
		kept := r.acquire("p")
		r.filled("p", 1, 1)
		gone, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"})
		if err != nil || gone.Removed != 1 || gone.InUse != 1 {
			t.Errorf("%+v, %v", gone, err)
		}
		r.settle()
		if list := r.list(); len(list) != 1 || list[0].ID != kept.ID {
			t.Errorf("%+v", list)
		}
		r.remove(kept.ID)
		r.empty()
	})
}

// TestPoolWait: who waits gets one in turn, each another; who gives up gets none, and what came for them is the next's.
func TestPoolWait(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		never := false
		r.pool("p", 1, func(p *api.PoolSpec) { p.Prewarm = &never })
		if n := r.points.count("Launcher.Create"); n != 0 {
			t.Errorf("%d were made before anybody asked", n)
		}
		if sb := r.acquire("p"); sb != nil { // nobody waits without a time
			t.Errorf("%+v", sb)
		}
		r.filled("p", 1, 0)
		var mu sync.Mutex
		var got []string
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				sb := r.acquire("p", func(a *api.AcquireParams) { a.WaitMS = 60000 })
				if sb == nil {
					t.Error("none")
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if slices.Contains(got, sb.ID) {
					t.Errorf("%s was given twice", sb.ID)
				}
				got = append(got, sb.ID)
			})
		}
		wg.Wait()
		r.filled("p", 1, 6)
		r.acquire("p")
		_, release := r.points.holding("Launcher.Create")
		start := time.Now()
		if sb := r.acquire("p", func(a *api.AcquireParams) { a.WaitMS = 250 }); sb != nil ||
			time.Since(start) != 250*time.Millisecond {
			t.Errorf("%+v after %v", sb, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context()) // one who goes, and one behind
		gone, next := make(chan error), make(chan *api.Sandbox)
		go func() {
			sb, err := r.m.Pools.Acquire(ctx, 1, api.AcquireParams{Pool: "p", WaitMS: 60000})
			if sb != nil {
				t.Errorf("%+v", sb)
			}
			gone <- err
		}()
		synctest.Wait()
		go func() { next <- r.acquire("p", func(a *api.AcquireParams) { a.WaitMS = 60000 }) }()
		synctest.Wait()
		cancel(errInjected)
		if err := <-gone; !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		release()
		if sb := <-next; sb == nil {
			t.Error("none")
		}
		r.filled("p", 1, 8)
		if _, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"}); err != nil {
			t.Error(err)
		}
		r.settle()
		for _, sb := range r.list() {
			r.remove(sb.ID)
		}
	})
}

// TestPoolFails: a pool that cannot be filled says why, does not spin, tells those who wait, and is full again when it
// can be; one that cannot be made at all is refused and leaves nothing.
func TestPoolFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.points.failing("Images.Resolve", errInjected)
		_, err := r.m.Pools.Create(t.Context(), warm.Request{Spec: api.PoolSpec{Name: "p", Size: 2,
			Sandbox: api.Spec{Image: "tiny"}}, User: 1000, Progress: func(api.Progress) {}})
		if !errors.Is(err, errInjected) || len(r.m.Pools.All()) != 0 {
			t.Errorf("%v, %+v", err, r.m.Pools.All())
		}
		r.points.failing("Images.Resolve", nil)
		r.pool("p", 2)
		r.filled("p", 2, 0)
		r.points.failing("Images.Resolve", errInjected)
		r.acquire("p")
		r.acquire("p")
		r.points.forget()
		testenv.Elapse(time.Hour)
		// at once, after 1, 2, 4 ... and then every 60 seconds
		if n := r.points.count("Images.Resolve"); n < 60 || n > 70 {
			t.Errorf("tried %d times in an hour", n)
		}
		if st, err := r.m.Pools.Status(api.PoolParams{Pool: "p"}); err != nil || st.Error == "" || st.Available != 0 {
			t.Errorf("%+v, %v", st, err)
		}
		_, err = r.m.Pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 120000})
		if !errors.Is(err, errInjected) {
			t.Errorf("%v", err)
		}
		r.points.failing("Images.Resolve", nil)
		testenv.Elapse(2 * time.Minute)
		if st, err := r.m.Pools.Status(api.PoolParams{Pool: "p"}); err != nil || st.Error != "" || st.Available != 2 {
			t.Errorf("%+v, %v", st, err)
		}
		if _, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"}); err != nil {
			t.Error(err)
		}
		r.settle()
		for _, sb := range r.list() {
			r.remove(sb.ID)
		}
	})
}

// TestPoolRefused: a pool that cannot be is refused, with the field or the reason, and leaves nothing.
func TestPoolRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for field, change := range map[string]func(*api.PoolSpec){
			"name":          func(p *api.PoolSpec) { p.Name = "-x" },
			"size":          func(p *api.PoolSpec) { p.Size = 33 },
			"image":         func(p *api.PoolSpec) { p.Sandbox.Image = "" },
			"sandbox.name":  func(p *api.PoolSpec) { p.Sandbox.Name = "y" },
			"sandbox.owner": func(p *api.PoolSpec) { p.Sandbox.Owner = api.OwnerConnection },
			"sandbox.workspace": func(p *api.PoolSpec) {
				p.Sandbox.Workspace = &api.Workspace{Path: "/tmp",
					Mode: api.ModeRO}
			},
			"sandbox.mounts": func(p *api.PoolSpec) {
				p.Sandbox.Mounts = []api.Mount{{Source: "/usr", Target: "/u", Mode: api.ModeRO}}
			},
		} {
			p := api.PoolSpec{Name: "x", Size: 1, Sandbox: api.Spec{Image: "tiny"}}
			change(&p)
			_, err := r.m.Pools.Create(t.Context(), warm.Request{Spec: p, User: 1000, Progress: func(api.Progress) {}})
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.InvalidArgument || e.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if list := r.m.Pools.All(); len(list) > 0 {
			t.Errorf("%+v", list)
		}
		r.pool("x", 1)
		_, err := r.m.Pools.Create(t.Context(), warm.Request{Spec: api.PoolSpec{Name: "x", Size: 1,
			Sandbox: api.Spec{Image: "tiny"}}, User: 1000, Progress: func(api.Progress) {}})
		r.refused(api.AlreadyExists, err)
		_, err = r.m.Pools.Resize(api.PoolResizeParams{Pool: "x", Size: 99})
		r.refused(api.InvalidArgument, err)
		for _, a := range []api.AcquireParams{{WaitMS: -1}, {Name: "sb_x"}, {Owner: "me"}} {
			a.Pool = "x"
			_, err := r.m.Pools.Acquire(t.Context(), 1, a)
			r.refused(api.InvalidArgument, err)
		}
		_, err = r.m.Pools.Status(api.PoolParams{Pool: "y"})
		r.refused(api.NotFound, err)
		_, err = r.m.Pools.Remove(api.PoolParams{Pool: "y"})
		r.refused(api.NotFound, err)
		_, err = r.m.Pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "y"})
		r.refused(api.NotFound, err)
	})
}

// TestPoolHealth: what ends while it waits is removed, replaced, and never handed out.
func TestPoolHealth(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pool("p", 2)
		r.filled("p", 2, 0)
		before := r.launcher.all()
		for _, p := range before {
			p.die(int(unix.SIGKILL))
		}
		sb := r.acquire("p", func(a *api.AcquireParams) { a.WaitMS = 10000 })
		for _, p := range before {
			if sb == nil || sb.ID == p.id {
				t.Errorf("%+v is dead", sb)
			}
		}
		testenv.Elapse(2 * time.Second)
		r.filled("p", 2, 1)
		if n := len(r.list()); n != 3 {
			t.Errorf("%d sandboxes", n)
		}
		if _, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"}); err != nil {
			t.Error(err)
		}
		r.settle()
		r.remove(sb.ID)
		r.empty()
	})
}

// TestPoolRemoved: what a pool is making when it is removed goes with it, who waits hears of it; so it is at the end of
// the daemon.
func TestPoolRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, how := range []string{"remove", "close"} {
			never := false
			r.pool("p", 2, func(p *api.PoolSpec) { p.Prewarm = &never })
			arrived, release := r.points.holding("Launcher.Create")
			waits := make(chan error)
			go func() {
				_, err := r.m.Pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 60000})
				waits <- err
			}()
			<-arrived
			if how == "remove" {
				if _, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"}); err != nil {
					t.Error(err)
				}
				r.refused(api.NotFound, <-waits)
				release()
			} else {
				closed := make(chan error)
				go func() { closed <- r.m.Close(t.Context()) }()
				r.refused(api.Unavailable, <-waits)
				release()
				if err := <-closed; err != nil {
					t.Error(err)
				}
			}
			synctest.Wait()
			r.empty()
		}
	})
}

// TestPoolOwner: what was acquired for a connection goes with it, also when that ends at that moment, and the time that
// a sandbox has to live counts from then on.
func TestPoolOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pool("p", 1, func(p *api.PoolSpec) { p.Sandbox.TTLS = 100 })
		testenv.Elapse(time.Hour)
		r.filled("p", 1, 0)
		sb := r.acquire("p", func(a *api.AcquireParams) { a.Owner = api.OwnerConnection })
		if sb == nil || sb.Expires == nil || time.Until(*sb.Expires) > 100*time.Second ||
			time.Until(*sb.Expires) < 99*time.Second {
			t.Fatalf("%+v", sb)
		}
		r.m.Disconnected(1)
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		r.filled("p", 1, 0)
		sb = r.acquire("p")
		testenv.Elapse(101 * time.Second)
		r.settle()
		if st := r.state(sb.ID); st != api.StateRemoved {
			t.Errorf("%s", st)
		}
		if _, err := r.m.Pools.Remove(api.PoolParams{Pool: "p"}); err != nil {
			t.Error(err)
		}
	})
}

// TestPoolsConfigured: the pools of the configuration become what it says when it is read again; those that calls have
// made stay.
func TestPoolsConfigured(t *testing.T) {
	py := api.PoolSpec{Name: "py", Size: 1, Sandbox: api.Spec{Image: "tiny"}}
	inBubble(t, func(t *testing.T, r *rig) {
		r.filled("py", 1, 0)
		r.pool("mine", 1)
		r.filled("mine", 1, 0)
		first := r.list()
		set := r.cfg.Settings
		set.Pools = []api.PoolSpec{py}
		set.Pools[0].Size = 2
		r.m.Configure(set)
		r.filled("py", 2, 0)
		set.Pools = []api.PoolSpec{{Name: "py", Size: 1, Sandbox: api.Spec{Image: "tiny", Hostname: "other"}}}
		r.m.Configure(set)
		r.filled("py", 1, 0)
		if sb := r.acquire("py"); sb.Hostname != "other" {
			t.Errorf("%+v", sb)
		}
		set.Pools = nil
		r.m.Configure(set)
		r.settle()
		if list := r.m.Pools.All(); len(list) != 1 || list[0].Name != "mine" || list[0].Configured {
			t.Errorf("%+v", list)
		}
		for _, sb := range first {
			st := r.state(sb.ID)
			if sb.Pool == "py" && st != api.StateRemoved || sb.Pool == "mine" && st != api.Waiting {
				t.Errorf("%s of %s is %s", sb.ID, sb.Pool, st)
			}
		}
	}, func(c *Config) { c.Settings.Pools = []api.PoolSpec{py} })
}
