package warm

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestPoolFill: a pool is filled one after the other when it is made, and 30 ms after the last acquire; the newest is
// given first.
func TestPoolFill(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 3)
		if h.now().n < 1 {
			t.Error("none is there when the call returns")
		}
		synctest.Wait()
		h.status("p", 3, 0)
		if h.now().most != 1 {
			t.Errorf("%d were made at once", h.now().most)
		}
		if id := h.acquire("p", 0); id != "3" {
			t.Errorf("got %s", id)
		}
		testenv.Elapse(20 * time.Millisecond)
		h.acquire("p", 0)
		start := time.Now()
		testenv.Elapse(time.Hour)
		h.status("p", 3, 2)
		if took := h.now().times[3].Sub(start); took != 30*time.Millisecond || h.now().n != 5 {
			t.Errorf("the next after %v, %d in all", took, h.now().n)
		}
		if _, err := h.pools.Release(t.Context(), "3"); err != nil {
			t.Error(err)
		}
		for _, ref := range []string{"1", "9"} { // waits, is not there
			if _, err := h.pools.Release(t.Context(), ref); err == nil {
				t.Errorf("%s is released", ref)
			}
		}
		h.with(func() { h.boxes["own"] = &box{h: h, id: "own"} })
		if _, err := h.pools.Release(t.Context(), "own"); api.ErrorCode(err) != api.FailedPrecondition {
			t.Errorf("%v", err)
		}
		h.status("p", 3, 1)
	})
}

// TestPoolTurns: those who wait are served in turn, and as many are made at once as there are cores; who gives up gets
// none.
func TestPoolTurns(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 1, lazy)
		testenv.Elapse(time.Hour)
		if h.now().n != 0 {
			t.Errorf("%d were made before anybody asked", h.now().n)
		}
		h.with(func() { h.holds = make(chan struct{}) })
		if r, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p"}); r != nil || err != nil {
			t.Errorf("%v, %v without a wait", r, err)
		}
		got := make(chan string, 10)
		for range 5 {
			go func() { got <- h.acquire("p", time.Hour) }()
			synctest.Wait() // one comes after the other
		}
		start := time.Now()
		if r, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 250}); r != nil ||
			err != nil ||
			time.Since(start) != 250*time.Millisecond {
			t.Errorf("%v, %v after %v", r, err, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := h.pools.Acquire(ctx, 1, api.AcquireParams{Pool: "p", WaitMS: 60000})
			if !errors.Is(err, errBroken) {
				t.Errorf("%v", err)
			}
		}()
		synctest.Wait()
		cancel(errBroken)
		synctest.Wait()
		if h.now().making != 3 {
			t.Errorf("%d are being made", h.now().making)
		}
		for range 5 {
			h.holds <- struct{}{}
			synctest.Wait()
		}
		var ids []string
		for range 5 {
			ids = append(ids, <-got)
		}
		slices.Sort(ids)
		if len(slices.Compact(ids)) != 5 {
			t.Errorf("%q", ids)
		}
		close(h.holds)
		synctest.Wait()
		h.status("p", 1, 5)
		if h.now().most != 3 || h.now().n != 6 {
			t.Errorf("%d at once, %d in all", h.now().most, h.now().n)
		}
	})
}

// TestTurns: the first is the first, and who has left is passed over.
func TestTurns(t *testing.T) {
	var ts turns
	a, b, c := ts.join(), ts.join(), ts.join()
	if !ts.leave(b) || ts.leave(b) {
		t.Error("left twice, or not at all")
	}
	if !ts.hand(&box{id: "1"}) || (<-a).s.ID() != "1" || ts.leave(a) {
		t.Error("not the first")
	}
	ts.fail(errBroken)
	if h := <-c; h.err != errBroken {
		t.Errorf("%v", h)
	}
	if ts.hand(&box{}) {
		t.Error("somebody waits")
	}
}

// TestPoolBackoff: what cannot be made is tried after 1, 2, 4 and at most 60 seconds; who waits hears why at once, and
// the first success ends that.
func TestPoolBackoff(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.with(func() { h.fails = errBroken })
		_, err := h.pools.Create(t.Context(), Request{Spec: api.PoolSpec{Name: "p", Size: 1,
			Sandbox: api.Spec{Image: "tiny"}}, Progress: func(api.Progress) {}})
		if !errors.Is(err, errBroken) || len(h.pools.All()) > 0 {
			t.Errorf("%v, %+v", err, h.pools.All())
		}
		h.pool("p", 1, lazy)
		h.with(func() { h.times = nil })
		if _, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 9000}); !errors.Is(err,
			errBroken) {
			t.Errorf("%v", err)
		}
		testenv.Elapse(5 * time.Minute)
		var pauses []time.Duration
		for i := range len(h.now().times) - 1 {
			pauses = append(pauses, h.now().times[i+1].Sub(h.now().times[i])/time.Second)
		}
		if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60}; !slices.Equal(pauses, want) {
			t.Errorf("pauses of %d seconds, want %d", pauses, want)
		}
		if st := h.status("p", 0, 0); st.Error != errBroken.Error() {
			t.Errorf("%+v", st)
		}
		h.with(func() { h.fails = nil })
		testenv.Elapse(time.Minute)
		if st := h.status("p", 1, 0); st.Error != "" {
			t.Errorf("%+v", st)
		}
		h.with(func() { h.fails, h.times = errBroken, nil })
		h.acquire("p", 0)
		testenv.Elapse(2 * time.Second)
		if len(h.now().times) != 2 || h.now().times[1].Sub(h.now().times[0]) != time.Second {
			t.Errorf("%v", h.now().times)
		}
	})
}

// TestPoolLost: one that ends is replaced a second later, also at the moment in which it comes into the pool; none that
// has ended is handed out.
func TestPoolLost(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 2)
		synctest.Wait()
		died := time.Now()
		h.die("1")
		testenv.Elapse(time.Minute)
		h.status("p", 2, 0)
		if took := h.now().times[2].Sub(died); took != time.Second {
			t.Errorf("replaced after %v", took)
		}
		h.with(func() { h.boxes["3"].dead = true }) // not heard of yet
		if id := h.acquire("p", 0); id != "2" {
			t.Errorf("got %s", id)
		}
		testenv.Elapse(time.Minute)
		h.status("p", 2, 1)
		h.with(func() {
			h.young = func(b *box) { // ends before it is in the pool, where nobody finds it
				b.dead = true
				h.young = nil
			}
		})
		h.acquire("p", 0)
		before := h.now().n
		testenv.Elapse(500 * time.Millisecond)
		h.status("p", 1, 2)
		testenv.Elapse(time.Minute)
		h.status("p", 2, 2)
		if h.now().n != before+2 || h.left() != 4 {
			t.Errorf("%d were made, %d are there", h.now().n-before, h.left())
		}
	})
}

// TestPoolHand: one that cannot be given to a caller goes back, unless it has ended: then the caller gets another, a
// few times. A caller whose connection is gone gets none.
func TestPoolHand(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 1)
		synctest.Wait()
		h.with(func() { h.boxes["1"].refuses = errBroken })
		if _, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p"}); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
		h.status("p", 1, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.pools.Acquire(ctx, 1, api.AcquireParams{Pool: "p"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		h.with(func() { h.boxes["1"].refuses = ErrEnded })
		if id := h.acquire("p", time.Second); id != "2" {
			t.Errorf("got %s", id)
		}
		synctest.Wait()
		h.with(func() { h.young = func(b *box) { b.breaks = ErrEnded } })
		h.with(func() { h.boxes["3"].breaks = ErrEnded })
		h.with(func() { h.begun = 0 })
		_, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 10000})
		if api.ErrorCode(err) != api.Unavailable || !errors.Is(err, ErrEnded) || h.now().begun != 1+acquireTries {
			t.Errorf("%v, %d were tried", err, h.now().begun)
		}
		h.with(func() { h.young = nil })
		testenv.Elapse(time.Second)
		h.with(func() {
			for _, b := range h.boxes {
				if b.rec.State == api.Waiting {
					b.breaks = errBroken
				}
			}
		})
		if _, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p"}); !errors.Is(err, errBroken) {
			t.Errorf("%v", err)
		}
		testenv.Elapse(time.Second)
		h.with(func() { h.gone[4] = true })
		r, err := h.pools.Acquire(t.Context(), 4, api.AcquireParams{Pool: "p"})
		if err != nil || h.box(r.ID) != nil {
			t.Errorf("%v, %v", r, err)
		}
	})
}

// TestPoolSize: what is too many goes, the oldest first; what a pool is making when it is removed goes with it, and who
// waits hears of it.
func TestPoolSize(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 3)
		synctest.Wait()
		if st, err := h.pools.Resize(api.PoolResizeParams{Pool: "p", Size: 1}); err != nil || st.Available != 1 ||
			st.Size != 1 || h.box("3") == nil || h.left() != 1 {
			t.Errorf("%+v, %v, %v", st, err, h.boxes)
		}
		h.with(func() { h.holds = make(chan struct{}) })
		h.acquire("p", 0)
		if _, err := h.pools.Resize(api.PoolResizeParams{Pool: "p", Size: 2}); err != nil {
			t.Error(err)
		}
		waits := make(chan error)
		go func() {
			_, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p", WaitMS: 60000})
			waits <- err
		}()
		synctest.Wait()
		if gone, err := h.pools.Remove(api.PoolParams{Pool: "p"}); err != nil || gone.InUse != 1 || gone.Removed != 0 {
			t.Errorf("%+v, %v", gone, err)
		}
		if err := <-waits; api.ErrorCode(err) != api.NotFound {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		if h.left() != 1 || len(h.written) != 0 {
			t.Errorf("%v, %v", h.boxes, h.written)
		}
		for what, f := range map[string]func() error{
			"remove": func() error { _, err := h.pools.Remove(api.PoolParams{Pool: "p"}); return err },
			"resize": func() error { _, err := h.pools.Resize(api.PoolResizeParams{Pool: "p", Size: 1}); return err },
			"status": func() error { _, err := h.pools.Status(api.PoolParams{Pool: "p"}); return err },
			"acquire": func() error {
				_,
					err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "p"})
				return err
			},
		} {
			if err := f(); api.ErrorCode(err) != api.NotFound {
				t.Errorf("%s: %v", what, err)
			}
		}
		h.pools.Shut()
		if _, err := h.pools.Status(api.PoolParams{Pool: "p"}); !errors.Is(err, h.cfg.Closed) {
			t.Errorf("%v", err)
		}
		_, err := h.pools.Create(t.Context(), Request{Spec: api.PoolSpec{Name: "p", Size: 1,
			Sandbox: api.Spec{Image: "tiny"}}, Progress: func(api.Progress) {}})
		if !errors.Is(err, h.cfg.Closed) {
			t.Errorf("%v", err)
		}
	})
}

// TestPoolClosed: the end of the daemon is what who waits hears, and what is ready is not removed by its pool.
func TestPoolClosed(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 1)
		h.pool("q", 1, lazy)
		h.with(func() { h.holds = make(chan struct{}) })
		waits := make(chan error)
		go func() {
			_, err := h.pools.Acquire(t.Context(), 1, api.AcquireParams{Pool: "q", WaitMS: 60000})
			waits <- err
		}()
		synctest.Wait()
		h.pools.Close()
		if err := <-waits; !errors.Is(err, h.cfg.Closed) {
			t.Errorf("%v", err)
		}
		h.pools.Wait()
		if h.left() != 1 || len(h.written) != 2 {
			t.Errorf("%v, %v", h.boxes, h.written)
		}
	})
}

// TestPoolsConfigured: the pools of the configuration become what it says, those that calls made stay; nothing happens
// before what a hutchd before has left is taken over.
func TestPoolsConfigured(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		py := api.PoolSpec{Name: "py", Size: 1, Sandbox: api.Spec{Image: "tiny"}}
		h.pool("mine", 1)
		h.pools.Configure([]api.PoolSpec{py})
		synctest.Wait()
		h.status("py", 1, 0)
		if b := h.box("2"); b.rec.User != "7" {
			t.Errorf("user %s", b.rec.User)
		}
		py.Size = 2
		h.pools.Configure([]api.PoolSpec{py})
		synctest.Wait()
		h.status("py", 2, 0)
		py.Sandbox.Image = "other"
		h.pools.Configure([]api.PoolSpec{py})
		synctest.Wait()
		h.status("py", 2, 0)
		if h.now().n != 5 || h.box("2") != nil || h.box("3") != nil {
			t.Errorf("%d were made, %v are there", h.now().n, h.boxes)
		}
		h.pools.Configure(nil)
		if list := h.pools.All(); len(list) != 1 || list[0].Name != "mine" || list[0].Configured {
			t.Errorf("%+v", list)
		}
		other := NewPools(t.Context(), h.cfg)
		other.Configure([]api.PoolSpec{py})
		if list := other.All(); len(list) > 0 {
			t.Errorf("%+v", list)
		}
	})
}

// TestPoolsAdopted: the next hutchd has the same pools with what waits in them; what waits in none is removed, and one
// that has ended is replaced.
func TestPoolsAdopted(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		h.pool("p", 2)
		h.pool("lazy", 1, lazy)
		synctest.Wait()
		list, err := json.Marshal(h.written)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(h.written, func(s saved) bool { return s.Spec.Name == "p" && s.User == 1 }) {
			t.Errorf("%s", list)
		}
		h.close()
		if err := os.WriteFile(h.cfg.File, list, 0o600); err != nil {
			t.Fatal(err)
		}
		h.open()
		h.with(func() { h.boxes["2"].dead = true })
		lost := &box{h: h, id: "x", rec: api.Sandbox{Pool: "gone"}}
		h.pools.Adopt([]Sandbox{h.box("1"), h.box("2"), lost})
		if lost.why != "its pool is gone" || h.box("2") != nil {
			t.Errorf("%q, %v", lost.why, h.boxes)
		}
		h.status("p", 1, 0)
		h.status("lazy", 0, 0)
		testenv.Elapse(time.Minute)
		h.status("p", 2, 0)
		h.status("lazy", 0, 0)
		h.close()
		if err := os.WriteFile(h.cfg.File, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.open()
		h.pools.Adopt(nil)
		if list := h.pools.All(); len(list) > 0 {
			t.Errorf("%+v", list)
		}
	})
}

// TestPoolOfTemplate: the pool of a template is what that says; when the template is another, what waits goes, and what
// is being made, too.
func TestPoolOfTemplate(t *testing.T) {
	inPools(t, func(t *testing.T, h *host) {
		spec := api.PoolSpec{Name: "t", Size: 1, Sandbox: api.Spec{Template: "t"}}
		keep := func(size int) {
			t.Helper()
			spec.Size = size
			if err := h.pools.KeepTemplate(spec, 1); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		keep(0)
		keep(1)
		h.status("t", 1, 0)
		keep(2)
		h.status("t", 2, 0)
		h.with(func() { h.holds = make(chan struct{}) })
		h.acquire("t", 0)
		testenv.Elapse(time.Second) // 3 is being made
		h.pools.RenewTemplate("other")
		h.status("t", 1, 1)
		h.pools.RenewTemplate("t")
		h.status("t", 0, 1)
		close(h.holds)
		synctest.Wait()
		h.status("t", 2, 1)
		if h.box("1") != nil || h.box("3") != nil {
			t.Errorf("%v", h.boxes)
		}
		h.pool("mine", 1)
		spec.Name, spec.Size = "mine", 1
		if err := h.pools.KeepTemplate(spec, 1); api.ErrorCode(err) != api.AlreadyExists {
			t.Errorf("%v", err)
		}
		spec.Size = 0
		if err := h.pools.KeepTemplate(spec, 1); err != nil || len(h.pools.All()) != 2 {
			t.Errorf("%v", err)
		}
		spec.Name = "t"
		keep(0)
		if list := h.pools.All(); len(list) != 1 {
			t.Errorf("%+v", list)
		}
	})
}

// TestGolden: what the build of 3f74611 has written of a pool is read whole.
func TestGolden(t *testing.T) {
	if p := testenv.Golden[[]saved](t, "testdata/golden/pools.json"); len(p) != 1 || p[0].Spec.Name != "py" {
		t.Errorf("%+v", p)
	}
}
