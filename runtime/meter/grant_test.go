package meter

import (
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestGrant: what is asked for is granted or refused, what cannot be enforced is missing where that is allowed, and
// defaults are kept as far as the host can.
func TestGrant(t *testing.T) {
	w := newWorld(t, func(w *world) { w.cfg.Host.Controllers = []string{"cpu", "pids"} })
	m := w.meters
	g, err := m.Grant(&api.Limits{CPUs: 2}, false)
	if err != nil || g.Limits.CPUs != 2 || g.Limits.PIDs != 50 || g.Limits.MemoryBytes != 0 || len(g.Missing) != 1 ||
		!g.Missing[0].Default || g.Missing[0].Metered || g.Missing[0].Instead != "" {
		t.Errorf("%+v, %v", g, err)
	}
	_, err = m.Grant(&api.Limits{MemoryBytes: 1 << 20}, false)
	refused(t, api.Unavailable, err)
	g, err = m.Grant(&api.Limits{MemoryBytes: 1 << 20, PIDs: api.Unlimited, BestEffort: true}, false)
	if err != nil || g.Limits.MemoryBytes != 0 || g.Limits.PIDs != 0 || len(g.Missing) != 1 || !g.Missing[0].Metered {
		t.Errorf("%+v, %v", g, err)
	}
	if d := m.Defaults(); d.CPUs != 0 || d.MemoryBytes != 1<<30 { // more CPUs than there are
		t.Errorf("defaults %+v", d)
	}
	refused(t, api.Unavailable, m.CheckControllers(&api.Limits{CPUSet: "0"}))
	if err := m.CheckControllers(&api.Limits{CPUs: 1}); err != nil {
		t.Error(err)
	}
	for _, l := range []api.Limits{{CPUs: 5}, {MemoryBytes: 9 << 30}, {ShmBytes: 9 << 30}, {CPUSet: "4"},
		{DiskBytes: 1 << 62}, {TimeoutS: 1001}} {
		_, err := m.Grant(&l, false)
		refused(t, api.InvalidArgument, err)
	}
	if _, err := m.Grant(&api.Limits{CPUs: 5}, true); err != nil { // a fork's, of when there were more
		t.Error(err)
	}
}

// TestLacks: each reason for which a limit of a cgroup cannot be had.
func TestLacks(t *testing.T) {
	all := []string{"cpu", "cpuset", "io", "memory", "pids"}
	for _, c := range []struct {
		h    Host
		l    api.Limits
		want string
	}{
		{Host{CgroupReason: "no cgroups"}, api.Limits{PIDs: 1}, "no cgroups"},
		{Host{}, api.Limits{PIDs: 1}, "the pids controller is not available"},
		{Host{Controllers: all, CgroupMode: "v1"}, api.Limits{MemoryHighBytes: 1}, "mode is v1"},
		{Host{Controllers: all, CgroupMode: "v2"}, api.Limits{IOReadBPS: 1}, "on no disk"},
	} {
		err := (&Meters{cfg: Config{Host: c.h}}).CheckControllers(&c.l)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestStandIns: limits of single processes stand in for what cgroups cannot have here, but not for a default of memory.
func TestStandIns(t *testing.T) {
	w := newWorld(t)
	b := w.box(func(b *box) {
		b.rec.Unenforced = []api.Unenforced{{Limit: "pids", Value: 7}, {Limit: "memory_bytes", Value: 9, Default: true}}
	})
	if nproc, data := b.meter.StandIns(); nproc != 7 || data != 0 {
		t.Errorf("%d, %d", nproc, data)
	}
	b.SetMissing(regranted(b.rec.Unenforced, &api.Limits{PIDs: 5},
		[]api.Unenforced{{Limit: "memory_bytes", Value: 9}}))
	if nproc, data := b.meter.StandIns(); nproc != 1000 || data != 9 {
		t.Errorf("%d, %d", nproc, data)
	}
}
