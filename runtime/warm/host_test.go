package warm

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// host is a daemon whose sandboxes are records.
type host struct {
	t     *testing.T
	cfg   Config
	pools *Pools
	end   context.CancelFunc

	mu sync.Mutex // guards what follows, and all boxes
	counts
	boxes   map[string]*box
	fails   error         // what making one fails with
	holds   chan struct{} // where not nil, making one waits for it
	gone    map[uint64]bool
	written []saved
	young   func(b *box) // called when one waits
}

// counts are of the sandboxes that were made.
type counts struct {
	n      int
	making int
	most   int         // at once
	times  []time.Time // of each
	begun  int         // that somebody was given
}

// box is a sandbox.
type box struct {
	h       *host
	id      string
	rec     api.Sandbox
	dead    bool
	conn    uint64
	why     string // it was removed
	refuses error  // to be assigned
	breaks  error  // when it begins
}

// inPools runs a test in a bubble. In the end there are no pools, and nothing waits.
func inPools(t *testing.T, f func(t *testing.T, h *host)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		h := &host{t: t, boxes: map[string]*box{}, gone: map[uint64]bool{}}
		h.cfg = Config{Sandboxes: h, File: filepath.Join(dir, "pools.json"), Owner: 7, CPUs: 3,
			Closed: api.Errorf(api.Unavailable, "closed"), Logger: slog.New(slog.DiscardHandler),
			Write: func(_ string, v any) error { h.written = v.([]saved); return nil }}
		h.open()
		h.pools.Adopt(nil)
		f(t, h)
		h.close()
	})
}

// open begins a daemon.
func (h *host) open() {
	ctx, end := context.WithCancel(context.Background())
	h.pools, h.end = NewPools(ctx, h.cfg), end
}

func (h *host) close() {
	h.pools.Close()
	h.end()
	h.pools.Wait()
	made := h.now().n
	testenv.Elapse(time.Hour)
	if list := h.pools.All(); h.now().n != made || len(list) > 0 {
		h.t.Errorf("after the end %d were made; there are %+v", h.now().n-made, list)
	}
}

// with changes it.
func (h *host) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *host) Make(ctx context.Context, pool string, _ api.Spec, user uint32, _ func(api.Progress)) (Sandbox, error) {
	var b *box
	var err error
	var wait chan struct{}
	h.with(func() {
		h.n++
		h.making++
		h.most = max(h.most, h.making)
		h.times = append(h.times, time.Now())
		b = &box{h: h, id: fmt.Sprint(h.n), rec: api.Sandbox{Pool: pool, User: fmt.Sprint(user)}}
		b.rec.ID, b.rec.State = b.id, api.Creating
		err, wait = h.fails, h.holds
	})
	defer h.with(func() { h.making-- })
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	h.with(func() { h.boxes[b.id] = b })
	return b, nil
}

func (h *host) Find(ref string) (s Sandbox, err error) {
	err = api.Errorf(api.NotFound, "no sandbox %q", ref)
	h.with(func() {
		if b := h.boxes[ref]; b != nil {
			s, err = b, nil
		}
	})
	return s, err
}

func (h *host) InUse() map[string]int {
	n := map[string]int{}
	h.with(func() {
		for _, b := range h.boxes {
			if b.rec.State == api.Running {
				n[b.rec.Pool]++
			}
		}
	})
	return n
}

func (h *host) Remove(_ context.Context, ref string) (api.KillResult, error) {
	s, err := h.Find(ref)
	if err == nil {
		s.Remove("removed")
	}
	return api.KillResult{}, err
}

func (h *host) Enter(conn uint64) func() bool {
	return func() (gone bool) {
		h.with(func() { gone = h.gone[conn] })
		return gone
	}
}

func (b *box) ID() string { return b.id }

func (b *box) Record() (r api.Sandbox) {
	b.h.with(func() { r = b.rec })
	return r
}

func (b *box) Alive() (alive bool) {
	b.h.with(func() { alive = !b.dead })
	return alive
}

func (b *box) Settle() (ok bool) {
	b.h.with(func() {
		if ok = !b.dead; ok {
			b.rec.State = api.Waiting
		}
		if b.h.young != nil {
			b.h.young(b)
		}
	})
	return ok
}

func (b *box) Assign(conn uint64, a *api.AcquireParams) (err error) {
	b.h.with(func() {
		if err, b.refuses = b.refuses, nil; err == nil {
			b.rec.Name, b.conn = a.Name, conn
		}
	})
	return err
}

func (b *box) Begin(context.Context, *api.AcquireParams) (r api.Sandbox, err error) {
	b.h.with(func() {
		b.h.begun++
		switch {
		case b.breaks != nil:
			err = b.breaks
		case b.dead:
			err = ErrEnded
		default:
			b.rec.State = api.Running
		}
		r = b.rec
	})
	return r, err
}

func (b *box) Remove(why string) {
	b.h.pools.Lost(b.rec.Pool, b.id)
	b.h.with(func() {
		b.dead, b.why = true, why
		delete(b.h.boxes, b.id)
	})
}

// now is what there is now.
func (h *host) now() (c counts) {
	h.with(func() { c = h.counts; c.times = slices.Clone(c.times) })
	return c
}

// box is the sandbox of that id; nil when there is none.
func (h *host) box(id string) (b *box) {
	h.with(func() { b = h.boxes[id] })
	return b
}

// left is how many sandboxes there are.
func (h *host) left() (n int) {
	h.with(func() { n = len(h.boxes) })
	return n
}

// die has one end, and be heard of.
func (h *host) die(id string) {
	var b *box
	h.with(func() {
		b = h.boxes[id]
		b.dead = true
	})
	if h.pools.Lost(b.rec.Pool, id) {
		b.Remove(endedWaiting)
	}
}

// pool makes one.
func (h *host) pool(name string, size int, change ...func(*api.PoolSpec)) {
	h.t.Helper()
	spec := api.PoolSpec{Name: name, Size: size, Sandbox: api.Spec{Image: "tiny"}}
	for _, f := range change {
		f(&spec)
	}
	_, err := h.pools.Create(h.t.Context(), Request{Spec: spec, User: 1, Progress: func(api.Progress) {}})
	if err != nil {
		h.t.Fatal(err)
	}
}

// lazy has a pool be filled when somebody asks.
func lazy(p *api.PoolSpec) {
	never := false
	p.Prewarm = &never
}

// status checks how a pool is filled.
func (h *host) status(name string, available, inUse int) api.Pool {
	h.t.Helper()
	st, err := h.pools.Status(api.PoolParams{Pool: name})
	if err != nil || st.Available != available || st.InUse != inUse || st.Total != available+inUse {
		h.t.Errorf("%+v, %v; want %d and %d", st, err, available, inUse)
	}
	return st
}

// acquire takes one that there must be, and says which.
func (h *host) acquire(pool string, wait time.Duration) string {
	h.t.Helper()
	r, err := h.pools.Acquire(h.t.Context(), 1, api.AcquireParams{Pool: pool, WaitMS: float64(wait.Milliseconds())})
	if err != nil || r == nil {
		h.t.Errorf("%v, %v", r, err)
		return ""
	}
	return r.ID
}
