package meter

import (
	"slices"
	"syscall"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestUpdate: an update is made whole or not at all: what anybody refuses changes no limit, and the cgroup has the old
// ones.
func TestUpdate(t *testing.T) {
	had := api.Limits{MemoryBytes: 1 << 30, PIDs: 100, TimeoutS: 5}
	for name, tt := range map[string]struct {
		change func(w *world, b *box)
		l      api.Limits
		code   api.Code     // "" is success
		groups []api.Limits // that the cgroup was given
	}{
		"memory": {nil, api.Limits{MemoryBytes: 2 << 30, TimeoutS: 9}, "",
			[]api.Limits{{MemoryBytes: 2 << 30}}},
		"timeout":     {nil, api.Limits{TimeoutS: 9}, "", nil},
		"shm":         {nil, api.Limits{ShmBytes: 1 << 20}, api.InvalidArgument, nil},
		"best effort": {nil, api.Limits{BestEffort: true}, api.InvalidArgument, nil},
		"not here": {func(w *world, _ *box) {
			w.meters.cfg.Host.Controllers = nil
		}, api.Limits{PIDs: 7}, api.Unavailable, nil},
		"quota": {func(_ *world, b *box) { b.quota = api.Errorf(api.ResourceExhausted, "quota") },
			api.Limits{CPUs: 2}, api.ResourceExhausted, nil},
		"used": {func(w *world, _ *box) { w.stats.Memory = &api.MemoryStats{AnonBytes: 1 << 29} },
			api.Limits{MemoryBytes: 1 << 28}, api.FailedPrecondition, nil},
		"no limit of disk": {nil, api.Limits{DiskBytes: mega}, api.FailedPrecondition, nil},
		"kernel": {func(w *world, _ *box) { w.fail("Limit", errInjected) }, api.Limits{PIDs: 7}, api.Internal,
			[]api.Limits{{PIDs: 7}, {MemoryBytes: 1 << 30, PIDs: 100}}},
		"kernel, v1": {func(w *world, _ *box) { w.fail("Limit", syscall.EBUSY) }, api.Limits{CPUs: 2},
			api.FailedPrecondition,
			[]api.Limits{{CPUs: 2}, {CPUs: api.Unlimited, MemoryBytes: 1 << 30, PIDs: 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b := w.box(func(b *box) { b.rec.Limits = had })
			if tt.change != nil {
				tt.change(w, b)
			}
			got, err := w.meters.Update(t.Context(), api.UpdateParams{Sandbox: b.rec.ID, Limits: tt.l})
			want, times := had, 0
			if tt.code == "" {
				want, times = Overlay(had, tt.l), 1
				if err != nil || got.Limits != want {
					t.Errorf("%+v, %v", got, err)
				}
			} else {
				refused(t, tt.code, err)
			}
			if b.rec.Limits != want || b.told != times || b.saved != times {
				t.Errorf("%+v, told %d, saved %d", b.rec.Limits, b.told, b.saved)
			}
			if !slices.Equal(w.limited, tt.groups) {
				t.Errorf("the cgroup was given %+v", w.limited)
			}
		})
	}
}

// TestUpdateMissing: what this host cannot enforce is noted, and the life of the sandbox changes after its limits.
func TestUpdateMissing(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	b.rec.Limits.BestEffort, w.meters.cfg.Host.Controllers = true, nil
	ttl := 60.0
	_, err := w.meters.Update(t.Context(), api.UpdateParams{Sandbox: b.rec.ID, Limits: api.Limits{PIDs: 7}, TTLS: &ttl})
	if err != nil || len(b.rec.Unenforced) != 1 || !slices.Equal(b.ttl, []float64{60}) || b.saved > 0 {
		t.Errorf("%+v, ttl %v, %v", b.rec.Unenforced, b.ttl, err)
	}
	_, err = w.meters.Update(t.Context(), api.UpdateParams{Sandbox: "sb_9", TTLS: &ttl})
	refused(t, api.NotFound, err)
	_, err = w.meters.Update(t.Context(), api.UpdateParams{Sandbox: b.rec.ID})
	refused(t, api.InvalidArgument, err)
}

// TestUpdateDisk: more disk space is allowed, less than there is not, and none at all neither; what the kernel refuses
// for another limit leaves the old one.
func TestUpdateDisk(t *testing.T) {
	w := newWorld(t)
	b := w.box()
	b.limit(api.Limits{DiskBytes: mega, Inodes: 100})
	update := func(l api.Limits) error {
		_, err := w.meters.Update(t.Context(), api.UpdateParams{Sandbox: b.rec.ID, Limits: l})
		return err
	}
	if err := update(api.Limits{DiskBytes: 4 * mega}); err != nil {
		t.Error(err)
	}
	b.write("large", 2*mega)
	refused(t, api.FailedPrecondition, update(api.Limits{DiskBytes: mega}))
	refused(t, api.InvalidArgument, update(api.Limits{Inodes: api.Unlimited}))
	w.fail("Limit", errInjected)
	refused(t, api.Internal, update(api.Limits{DiskBytes: 8 * mega, PIDs: 7}))
	if got := b.meter.Disk().bound().Bytes; got != 4*mega || b.rec.Limits.DiskBytes != 4*mega {
		t.Errorf("%d, on record %d", got, b.rec.Limits.DiskBytes)
	}
	d := b.meter.Disk()
	d.hard = true // the sandbox's own file system is told
	if err := d.set(w, d.limit); err != nil || w.remounts != 1 {
		t.Errorf("%v, %d times", err, w.remounts)
	}
	w.fail("Reconfigure", errInjected)
	if err := d.set(w, d.limit); err == nil {
		t.Error("what the kernel refused is in force")
	}
}

// TestGroupLimits: the kernel takes the limits of memory and of swap together.
func TestGroupLimits(t *testing.T) {
	old := api.Limits{MemoryBytes: 10, SwapBytes: 20, TimeoutS: 5}
	for _, tt := range []struct{ l, want api.Limits }{
		{api.Limits{SwapBytes: 5}, api.Limits{MemoryBytes: 10, SwapBytes: 5}},
		{api.Limits{MemoryBytes: 5}, api.Limits{MemoryBytes: 5, SwapBytes: 20}},
		{api.Limits{TimeoutS: 9, CPUSet: "0"}, api.Limits{CPUSet: "0"}},
	} {
		if got := changed(old, tt.l); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.l, got, tt.want)
		}
	}
	if got := Overlay(old, api.Limits{MemoryBytes: api.Unlimited}); got.MemoryBytes != 0 || got.SwapBytes != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCheckQuota: a user may have so many sandboxes, and what they may use counts, without a limit all there is.
func TestCheckQuota(t *testing.T) {
	w := newWorld(t) // of 4 CPUs and 8 GiB
	one := []api.Limits{{CPUs: 1.5, MemoryBytes: 1 << 30}}
	for _, tt := range []struct {
		q       api.Quotas
		l       api.Limits
		n       int
		running []api.Limits
		ok      bool
	}{
		{api.Quotas{Sandboxes: 3}, api.Limits{}, 1, one, true},
		{api.Quotas{Sandboxes: 3}, api.Limits{}, 2, one, false},
		{api.Quotas{CPUs: 3}, api.Limits{CPUs: 1.5}, 1, one, true},
		{api.Quotas{CPUs: 3}, api.Limits{}, 1, one, false},
		{api.Quotas{MemoryBytes: 9 << 30}, api.Limits{}, 1, one, true},
		{api.Quotas{MemoryBytes: 9 << 30}, api.Limits{}, 1, append(one, one...), false},
	} {
		err := w.meters.CheckQuota(tt.q, &tt.l, tt.n, 2, tt.running)
		if tt.ok && err != nil {
			t.Errorf("%+v: %v", tt.q, err)
		} else if !tt.ok {
			refused(t, api.ResourceExhausted, err)
		}
	}
}
