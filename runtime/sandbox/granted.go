package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// granted are the limits of a sandbox: those in force, and those that this host cannot
// enforce.
type granted struct {
	limits  api.Limits
	missing []api.Unenforced
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
		"each process may have so much data of its own (RLIMIT_DATA), and when all together use more the command that uses most is ended", func(l *api.Limits) *int64 { return &l.MemoryBytes }),
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

// checkControllers refuses what this host cannot enforce.
func (m *Manager) checkControllers(l *api.Limits) error {
	_, err := m.grant(l, false)
	return err
}

// grant tells limits that this host can enforce from those that it cannot, which it
// refuses unless bestEffort is set.
func (m *Manager) grant(asked *api.Limits, bestEffort bool) (granted, error) {
	h := &m.cfg.Host
	g := granted{limits: *asked}
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
						orElse(h.CgroupRemedy, "hutch doctor shows what this machine offers"))
			}
			g.missing = append(g.missing, api.Unenforced{Limit: k.field, Value: v, Why: why, Instead: k.instead,
				Metered: k.field == "memory_bytes"})
		}
		k.clear(&g.limits)
	}
	return g, nil
}

// limitsOf decides about the limits of a new sandbox: what it asks for, which is a promise, and the defaults, which are
// kept as far as this host can. A fork asks for those of its origin, which had defaults among them and may have more
// than the host does.
func (m *Manager) limitsOf(asked *api.Limits, fork bool) (granted, error) {
	if !fork {
		if err := m.checkHost(asked); err != nil {
			return granted{}, err
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
	for i := range d.missing {
		d.missing[i].Default = true
		if d.missing[i].Limit == "memory_bytes" { // it might be in the way of a program that needs little
			d.missing[i].Instead, d.missing[i].Metered = "", false
		}
	}
	g.limits = meter.Overlay(d.limits, g.limits)
	g.limits.BestEffort = asked.BestEffort
	g.missing = append(g.missing, d.missing...)
	return g, nil
}

// Settings are those in force.
func (m *Manager) Settings() Settings { return *m.settings.Load() }

// Defaults are the limits of sandboxes that ask for none. What the machine does not have
// cannot be used up.
func (m *Manager) Defaults() api.Limits {
	h, d := &m.cfg.Host, m.settings.Load().Defaults
	if d.CPUs >= float64(h.CPUs) {
		d.CPUs = 0
	}
	if h.MemoryBytes > 0 {
		d.MemoryBytes = min(d.MemoryBytes, h.MemoryBytes)
	}
	return meter.InForce(d)
}

// checkHost refuses what nobody can have here.
func (m *Manager) checkHost(l *api.Limits) error {
	h := &m.cfg.Host
	_, disk, err := diskuse.FreeAt(m.cfg.Dir)
	if err != nil {
		return err
	}
	if most := m.settings.Load().Exec.MaxTimeoutS; l.TimeoutS > most {
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
	return h.hard().Check("limits.rlimits", &l.Rlimits)
}

// limit puts the limits in force, before the first command. What PID 1 has used until then
// was hutch's own.
func (f *creation) limit(ctx context.Context) error {
	if f.s.cgroup == "" {
		return nil
	}
	if err := f.m.cfg.Cgroups.Limit(f.s.cgroup, meter.OfGroup(f.s.limits())); err != nil {
		return api.Errorf(api.Internal, "set the limits of sandbox %s: %w", f.s.id, err).
			WithHint("`hutch doctor` shows what this machine offers")
	}
	return f.watchLimits(ctx)
}

// watchLimits hears of limits that are met, of one that has them in force.
func (f *creation) watchLimits(context.Context) error {
	if f.s.cgroup != "" {
		f.undo.Add(f.m.watchLimits(f.s))
	}
	return nil
}

// hard are the limits that no command can go above.
func (h *Host) hard() exec.HardLimits { return exec.HardLimits{NoFile: h.NoFileHard, NProc: h.NProc} }

// standIns are limits of each process that stand in for those of the whole sandbox.
func (m *Manager) standIns(s *Sandbox) (nproc, data uint64) {
	nproc = m.cfg.Host.NProc
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.record.Unenforced {
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

// plain is a number without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
