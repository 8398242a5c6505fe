package meter

import (
	"context"
	"errors"
	"syscall"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Update changes limits of a sandbox that runs, all of them or none, and then its life.
func (m *Meters) Update(ctx context.Context, p api.UpdateParams) (api.Sandbox, error) {
	if err := p.Validate(); err != nil {
		return api.Sandbox{}, err
	}
	t, _, err := m.cfg.Sandboxes.Living(p.Sandbox)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer t.of.Change()()
	if err := t.change(ctx, &p.Limits); err != nil {
		return api.Sandbox{}, err
	}
	if p.TTLS != nil {
		return t.of.Extend(*p.TTLS)
	}
	t.of.Save() // the limits are in force, whatever becomes of the note
	return t.of.Record(), nil
}

// change puts the limits in force that l sets.
func (t *Meter) change(ctx context.Context, l *api.Limits) error {
	old, cpus := t.limits(), t.cpuList()
	if err := checkChange(l); err != nil {
		return err
	}
	if err := t.all.checkHost(l); err != nil {
		return err
	}
	g, err := t.all.grant(l, old.BestEffort)
	if err != nil {
		return err
	}
	granted, next := g.Limits, Overlay(old, g.Limits)
	if err := next.Validate("limits"); err != nil {
		return err
	}
	if err := t.checkUse(&granted); err != nil {
		return err
	}
	if err := t.of.Raise(next); err != nil {
		return err
	}
	back, err := t.changeDisk(ctx, &granted)
	if err != nil {
		t.of.Set(old)
		return err
	}
	if group := changed(old, granted); group != (api.Limits{}) {
		path, _ := t.of.Cgroup()
		if err := t.all.cfg.Cgroups.Limit(path, group); err != nil {
			t.of.Set(old)
			return errors.Join(refusedByKernel(err), t.all.cfg.Cgroups.Limit(path, lifted(group, old)), back())
		}
	}
	t.of.SetMissing(regranted(t.of.Record().Unenforced, l, g.Missing))
	t.Started()
	t.moveCPUs(cpus)
	t.of.Tell(ctx)
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
func (t *Meter) checkUse(l *api.Limits) error {
	group, _ := t.of.Cgroup()
	if l.MemoryBytes <= 0 || group == "" {
		return nil
	}
	st, err := t.all.cfg.Cgroups.Stats(group)
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
