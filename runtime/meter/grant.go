package meter

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

// Granted are limits of a sandbox: those in force, and those that this host cannot enforce.
type Granted struct {
	Limits  api.Limits
	Missing []api.Unenforced
}

// groupLimit is a limit that takes a cgroup's controller.
type groupLimit struct {
	field, controller string
	value             func(*api.Limits) float64 // 0 when it is not set
	clear             func(*api.Limits)
	instead           string // what bounds a part of it without a controller
}

func number[T int64 | float64](field, controller, instead string, place func(*api.Limits) *T) groupLimit {
	return groupLimit{
		field: field, controller: controller, instead: instead,
		value: func(l *api.Limits) float64 { return float64(*place(l)) },
		clear: func(l *api.Limits) { *place(l) = 0 },
	}
}

// groupLimits are all of them.
var groupLimits = []groupLimit{
	number("cpus", "cpu", "", func(l *api.Limits) *float64 { return &l.CPUs }),
	number("memory_bytes", "memory",
		"each process may have so much data of its own (RLIMIT_DATA), and when all together use more the command that uses most is ended",
		func(l *api.Limits) *int64 { return &l.MemoryBytes }),
	number("pids", "pids", "each user inside may have so many processes (RLIMIT_NPROC)",
		func(l *api.Limits) *int64 { return &l.PIDs }),
	number("swap_bytes", "memory", "", func(l *api.Limits) *int64 { return &l.SwapBytes }),
	number("memory_high_bytes", "memory", "", func(l *api.Limits) *int64 { return &l.MemoryHighBytes }),
	number("cpu_weight", "cpu", "", func(l *api.Limits) *int64 { return &l.CPUWeight }),
	{
		field: "cpuset", controller: "cpuset",
		value: func(l *api.Limits) float64 { return float64(len(l.CPUSet)) },
		clear: func(l *api.Limits) { l.CPUSet = "" },
	},
	number("io_read_bps", "io", "", func(l *api.Limits) *int64 { return &l.IOReadBPS }),
	number("io_write_bps", "io", "", func(l *api.Limits) *int64 { return &l.IOWriteBPS }),
}

// lacks says why this host cannot enforce a limit, "" when it can.
func (h *Host) lacks(g *groupLimit) string {
	switch {
	case !slices.Contains(h.Controllers, g.controller):
		if h.CgroupReason != "" {
			return h.CgroupReason
		}
		return fmt.Sprintf("the %s controller is not available", g.controller)
	case g.field == "memory_high_bytes" && h.CgroupMode != "v2":
		return "it needs cgroup v2 alone, this host's mode is " + h.CgroupMode
	case g.controller == "io" && h.Disk == "":
		return "the state folder is on no disk of its own"
	}
	return ""
}

// CheckControllers refuses what this host cannot enforce.
func (m *Meters) CheckControllers(l *api.Limits) error {
	_, err := m.grant(l, false)
	return err
}

// grant tells limits that this host can enforce from those that it cannot, which it
// refuses unless bestEffort is set.
func (m *Meters) grant(asked *api.Limits, bestEffort bool) (Granted, error) {
	h := &m.cfg.Host
	g := Granted{Limits: *asked}
	for i := range groupLimits {
		k := &groupLimits[i]
		v := k.value(asked)
		if v == 0 {
			continue
		}
		why := h.lacks(k)
		if why == "" {
			continue
		}
		if v > 0 {
			if !bestEffort {
				return g, api.Errorf(api.Unavailable, "limits.%s cannot be enforced here: %s", k.field, why).
					WithField("limits."+k.field).
					WithHint("%s; or leave the limit out, or allow what can be had with limits.best_effort (--best-effort)",
						cmp.Or(h.CgroupRemedy, "hutch doctor shows what this machine offers"))
			}
			g.Missing = append(g.Missing, api.Unenforced{Limit: k.field, Value: v, Why: why, Instead: k.instead,
				Metered: k.field == "memory_bytes"})
		}
		k.clear(&g.Limits)
	}
	return g, nil
}

// Grant decides about the limits of a new sandbox: what it asks for, which is a promise, and the defaults, which are
// kept as far as this host can. A fork asks for those of its origin, which had defaults among them and may have more
// than the host does.
func (m *Meters) Grant(asked *api.Limits, fork bool) (Granted, error) {
	if !fork {
		if err := m.checkHost(asked); err != nil {
			return Granted{}, err
		}
	}
	g, err := m.grant(asked, asked.BestEffort)
	if err != nil {
		return g, err
	}
	defaults := m.Defaults()
	for i := range groupLimits {
		if k := &groupLimits[i]; k.value(asked) != 0 {
			k.clear(&defaults)
		}
	}
	d, err := m.grant(&defaults, true)
	if err != nil {
		return g, err
	}
	for i := range d.Missing {
		d.Missing[i].Default = true
		if d.Missing[i].Limit == "memory_bytes" { // it might be in the way of a program that needs little
			d.Missing[i].Instead, d.Missing[i].Metered = "", false
		}
	}
	g.Limits = Overlay(d.Limits, g.Limits)
	g.Limits.BestEffort = asked.BestEffort
	g.Missing = append(g.Missing, d.Missing...)
	return g, nil
}

// Defaults are the limits of sandboxes that ask for none. What the machine does not have
// cannot be used up.
func (m *Meters) Defaults() api.Limits {
	h := &m.cfg.Host
	d, _ := m.cfg.Sandboxes.Settings()
	if d.CPUs >= float64(h.CPUs) {
		d.CPUs = 0
	}
	if h.MemoryBytes > 0 {
		d.MemoryBytes = min(d.MemoryBytes, h.MemoryBytes)
	}
	return InForce(d)
}

// checkHost refuses what nobody can have here.
func (m *Meters) checkHost(l *api.Limits) error {
	h := &m.cfg.Host
	_, disk, err := diskuse.FreeAt(h.Dir)
	if err != nil {
		return err
	}
	if _, most := m.cfg.Sandboxes.Settings(); l.TimeoutS > most {
		return exec.TooLong("limits.timeout_s", l.TimeoutS, most)
	}
	for _, b := range []struct {
		field     string
		asked, of float64
		what      string
	}{
		{"cpus", l.CPUs, float64(h.CPUs), "CPUs"},
		{"memory_bytes", float64(l.MemoryBytes), float64(h.MemoryBytes), "bytes of memory"},
		{"shm_bytes", float64(l.ShmBytes), float64(h.MemoryBytes), "bytes of memory"},
		{"disk_bytes", float64(l.DiskBytes), float64(disk.Bytes), "bytes on the state folder's file system"},
		{"inodes", float64(l.Inodes), float64(disk.Inodes), "inodes on the state folder's file system"},
	} {
		if b.of > 0 && b.asked > b.of {
			asked, of := plain(b.asked), plain(b.of)
			if b.field == "shm_bytes" { // which has no "none"
				return api.Errorf(api.InvalidArgument, "limits.shm_bytes: %s is more than this machine has, %s %s",
					asked, of, b.what).
					WithField("limits.shm_bytes").WithHint("ask for at most %s", of)
			}
			return api.Errorf(api.InvalidArgument, "limits.%s: %s is more than this machine has, %s %s", b.field, asked,
				of, b.what).
				WithField("limits."+b.field).WithHint("ask for at most %s, or for no limit: none, %d on the socket", of,
				api.Unlimited)
		}
	}
	if cpus, _ := api.ParseCPUSet(l.CPUSet); len(cpus) > 0 && cpus[len(cpus)-1] >= h.CPUs {
		return api.Errorf(api.InvalidArgument, "limits.cpuset: there is no CPU %d", cpus[len(cpus)-1]).
			WithField("limits.cpuset").
			WithHint("this machine has CPUs 0 to %d", h.CPUs-1)
	}
	return h.Hard.Check("limits.rlimits", &l.Rlimits)
}

// StandIns are limits of each process that stand in for those of the whole sandbox.
func (t *Meter) StandIns() (nproc, data uint64) {
	nproc = t.all.cfg.Host.Hard.NProc
	for _, u := range t.of.Record().Unenforced {
		switch {
		case u.Limit == "pids":
			nproc = min(nproc, uint64(u.Value))
		case u.Limit == "memory_bytes" && !u.Default:
			data = uint64(u.Value)
		}
	}
	return nproc, data
}

// regranted is missing with the limits that l changes taken out, and what is missing of
// them put in.
func regranted(missing []api.Unenforced, l *api.Limits, more []api.Unenforced) []api.Unenforced {
	kept := slices.DeleteFunc(slices.Clone(missing), func(u api.Unenforced) bool {
		return slices.ContainsFunc(groupLimits, func(k groupLimit) bool {
			return k.field == u.Limit &&
				k.value(l) != 0
		})
	})
	return append(kept, more...)
}
