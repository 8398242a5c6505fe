package sandbox

import (
	"context"
	"errors"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Update changes limits of a sandbox that runs, all of them or none, and then its life.
func (m *Manager) Update(ctx context.Context, p api.UpdateParams) (api.Sandbox, error) {
	if err := p.Validate(); err != nil {
		return api.Sandbox{}, err
	}
	s, _, err := m.alive(p.Sandbox)
	if err != nil {
		return api.Sandbox{}, err
	}
	// One at a time: what one sees is what it leaves.
	s.updates.Lock()
	defer s.updates.Unlock()
	old, cpus := s.limits(), m.cpusOf(s)
	if err := checkChange(&p.Limits); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.checkHost(&p.Limits); err != nil {
		return api.Sandbox{}, err
	}
	asked := p.Limits
	g, err := m.grant(&asked, old.BestEffort)
	if err != nil {
		return api.Sandbox{}, err
	}
	p.Limits = g.limits
	next := overlay(old, p.Limits)
	if err := next.Validate("limits"); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.checkUse(s, &p.Limits); err != nil {
		return api.Sandbox{}, err
	}
	if err := m.raise(s, old, next); err != nil {
		return api.Sandbox{}, err
	}
	back, err := m.changeDisk(ctx, s, &p.Limits)
	if err != nil {
		s.setLimits(old)
		return api.Sandbox{}, err
	}
	if group := changed(old, p.Limits); group != (api.Limits{}) {
		if err := m.cfg.Cgroups.Limit(s.cgroup, group); err != nil {
			s.setLimits(old)
			return api.Sandbox{},
				errors.Join(refusedByKernel(err), m.cfg.Cgroups.Limit(s.cgroup, lifted(group, old)), back())
		}
	}
	s.mu.Lock()
	s.record.Unenforced = regranted(s.record.Unenforced, &asked, g.missing)
	s.mu.Unlock()
	s.wakeMeter()
	m.moveCPUs(s, cpus)
	m.tell(s)
	m.audit(ctx, s, "", api.AuditUpdated, s.limits(), 0)
	if p.TTLS != nil {
		return m.Extend(p.Sandbox, *p.TTLS)
	}
	m.saveEnd(s) // the limits are in force, whatever becomes of the note
	return s.Record(), nil
}

// raise counts next for s's quotas from now on, if they allow it.
func (m *Manager) raise(s *Sandbox, old, next api.Limits) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if next.CPUs != old.CPUs || next.MemoryBytes != old.MemoryBytes {
		if err := m.checkQuota(s.user, &next, s, 1); err != nil {
			return err
		}
	}
	s.setLimits(next)
	return nil
}

// checkChange refuses what cannot be changed while a sandbox runs.
func checkChange(l *api.Limits) error {
	if l.ShmBytes != 0 {
		return api.Errorf(api.InvalidArgument, "limits.shm_bytes cannot be changed while a sandbox runs").
			WithField("limits.shm_bytes").WithHint("give it to sandbox.create")
	}
	if l.BestEffort {
		return api.Errorf(api.InvalidArgument, "limits.best_effort cannot be changed while a sandbox runs").
			WithField("limits.best_effort").WithHint("give it to sandbox.create")
	}
	return nil
}

// checkUse refuses less memory than the sandbox needs this moment: the kernel would kill
// to make it fit. What it can take back, the page cache of files, does not count.
func (m *Manager) checkUse(s *Sandbox, l *api.Limits) error {
	if l.MemoryBytes <= 0 || s.cgroup == "" {
		return nil
	}
	st, err := m.cfg.Cgroups.Stats(s.cgroup)
	if err != nil || st.Memory == nil {
		return nil // the sandbox is ending
	}
	if used := st.Memory.AnonBytes + st.Memory.ShmemBytes; used > l.MemoryBytes {
		return tooLittle(l.MemoryBytes, used)
	}
	return nil
}

func tooLittle(limit, used int64) error {
	return api.Errorf(api.FailedPrecondition,
		"limits.memory_bytes: %d is less than the %d bytes that the sandbox uses now", limit, used).
		WithField("limits.memory_bytes").
		WithHint("end some of its processes first (hutch top shows them), or allow more")
}

// refusedByKernel is what a write to a limit's file failed with.
func refusedByKernel(err error) error {
	e := api.Errorf(api.Internal, "%w", err).
		WithHint("no limit was changed; `hutch doctor` shows what this machine offers")
	if errors.Is(err, syscall.EBUSY) { // v1's answer to less memory than is used
		e.Code = api.FailedPrecondition
		return e.WithHint("the sandbox uses more than that now: end some of its processes first (hutch top shows them), or allow more")
	}
	return e
}

// overlay is old with what l sets.
func overlay(old, l api.Limits) api.Limits {
	n := old
	set(&n.CPUs, l.CPUs)
	set(&n.MemoryBytes, l.MemoryBytes)
	set(&n.PIDs, l.PIDs)
	set(&n.DiskBytes, l.DiskBytes)
	set(&n.Inodes, l.Inodes)
	set(&n.ShmBytes, l.ShmBytes)
	set(&n.SwapBytes, l.SwapBytes)
	set(&n.MemoryHighBytes, l.MemoryHighBytes)
	set(&n.CPUWeight, l.CPUWeight)
	set(&n.CPUSet, l.CPUSet)
	set(&n.IOReadBPS, l.IOReadBPS)
	set(&n.IOWriteBPS, l.IOWriteBPS)
	set(&n.TimeoutS, l.TimeoutS)
	set(&n.CPUTimeS, l.CPUTimeS)
	set(&n.OutputBytes, l.OutputBytes)
	for _, name := range api.RlimitNames {
		if r := *l.Rlimits.ByName(name); r != nil {
			*n.Rlimits.ByName(name) = r
		}
	}
	return inForce(n)
}

func set[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// inForce is l as records show it, where no limit is 0.
func inForce(l api.Limits) api.Limits {
	l.CPUs = max(0, l.CPUs)
	for _, n := range []*int64{&l.MemoryBytes, &l.DiskBytes, &l.Inodes, &l.PIDs, &l.IOReadBPS, &l.IOWriteBPS} {
		*n = max(0, *n)
	}
	if l.MemoryBytes == 0 {
		l.SwapBytes = 0
	}
	return l
}

// changed are the limits of l that are a cgroup's, with those of old that the kernel
// takes together with them.
func changed(old, l api.Limits) api.Limits {
	g := ofGroup(l)
	if g.SwapBytes != 0 && g.MemoryBytes == 0 {
		g.MemoryBytes = old.MemoryBytes
	}
	if g.MemoryBytes > 0 && g.SwapBytes == 0 {
		g.SwapBytes = old.SwapBytes
	}
	return g
}

// ofGroup are the limits of l that are a cgroup's.
func ofGroup(l api.Limits) api.Limits {
	return api.Limits{
		CPUs: l.CPUs, MemoryBytes: l.MemoryBytes, PIDs: l.PIDs, SwapBytes: l.SwapBytes,
		MemoryHighBytes: l.MemoryHighBytes,
		CPUWeight:       l.CPUWeight, CPUSet: l.CPUSet, IOReadBPS: l.IOReadBPS, IOWriteBPS: l.IOWriteBPS,
	}
}

// lifted is what undoes l: the limits of old, and none where old has none.
func lifted(l, old api.Limits) api.Limits {
	orNone := func(changed, before int64) int64 {
		if changed != 0 && before == 0 {
			return api.Unlimited
		}
		return before
	}
	b := ofGroup(old)
	if b.CPUs == 0 && l.CPUs != 0 {
		b.CPUs = api.Unlimited
	}
	b.MemoryBytes, b.PIDs = orNone(l.MemoryBytes, b.MemoryBytes), orNone(l.PIDs, b.PIDs)
	b.IOReadBPS, b.IOWriteBPS = orNone(l.IOReadBPS, b.IOReadBPS), orNone(l.IOWriteBPS, b.IOWriteBPS)
	return b
}
