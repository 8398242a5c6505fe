package sandbox

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter"
)

func newMeters(m *Manager) *meter.Meters {
	h := &m.cfg.Host
	return meter.NewMeters(meter.Config{
		Sandboxes: metersHost{m}, Kernel: m.cfg.Kernel, Cgroups: m.cfg.Cgroups, Projects: m.cfg.Projects,
		Background: &m.watchers, Log: m.cfg.Logger, Host: meter.Host{
			CPUs: h.CPUs, Allowed: h.Allowed, Possible: h.Possible, MemoryBytes: h.MemoryBytes, Dir: m.cfg.Dir,
			Disk: h.Disk, Controllers: h.Controllers, CgroupMode: h.CgroupMode, CgroupReason: h.CgroupReason,
			CgroupRemedy: h.CgroupRemedy, Hard: h.hard(),
		},
	})
}

// metersHost is the Manager as package meter uses it.
type metersHost struct{ m *Manager }

func (h metersHost) Living(ref string) (*meter.Meter, int, error) {
	s, pid, err := h.m.alive(ref)
	if err != nil {
		return nil, 0, err
	}
	return s.meter, pid, nil
}

func (h metersHost) All() []*meter.Meter {
	list := h.m.all()
	all := make([]*meter.Meter, 0, len(list))
	for _, s := range list {
		all = append(all, s.meter)
	}
	return all
}

func (h metersHost) Settings() (defaults api.Limits, maxTimeoutS float64) {
	s := h.m.settings.Load()
	return s.Defaults, s.Exec.MaxTimeoutS
}

// hard are the limits that no command can go above.
func (h *Host) hard() exec.HardLimits { return exec.HardLimits{NoFile: h.NoFileHard, NProc: h.NProc} }

// meterBox is a sandbox as package meter uses it.
type meterBox struct {
	m *Manager
	s *Sandbox
}

func (b meterBox) ID() string              { return b.s.id }
func (b meterBox) Record() api.Sandbox     { return b.s.Record() }
func (b meterBox) Commands() *exec.Set     { return b.s.execs }
func (b meterBox) Cgroup() (string, bool)  { return b.s.cgroup, b.s.grouped }
func (b meterBox) Exited() <-chan struct{} { return b.s.exited }
func (b meterBox) Ended() error            { return ended(b.s) }
func (b meterBox) Set(l api.Limits)        { b.s.setLimits(l) }
func (b meterBox) Save()                   { b.m.saveEnd(b.s) }

func (b meterBox) Idle() bool { return b.s.idleNow() }

func (b meterBox) Used() bool {
	b.s.mu.Lock()
	started := b.s.calls > 0 || b.s.record.Start != ""
	b.s.mu.Unlock()
	return started || b.s.execs.Len() > 0 || b.s.files.Count() > 0
}

func (b meterBox) Change() (done func()) {
	b.s.updates.Lock()
	return b.s.updates.Unlock
}

func (b meterBox) Raise(next api.Limits) error {
	b.m.mu.Lock()
	defer b.m.mu.Unlock()
	if old := b.s.limits(); next.CPUs != old.CPUs || next.MemoryBytes != old.MemoryBytes {
		if err := b.m.checkQuota(b.s.user, &next, b.s, 1); err != nil {
			return err
		}
	}
	b.s.setLimits(next)
	return nil
}

func (b meterBox) SetMissing(missing []api.Unenforced) {
	b.s.note(func(r *api.Sandbox) { r.Unenforced = missing })
}

func (b meterBox) Tell(ctx context.Context) {
	b.m.tell(b.s)
	b.m.audit(ctx, b.s, "", api.AuditUpdated, b.s.limits(), 0)
}

func (b meterBox) Extend(ttl float64) (api.Sandbox, error) { return b.m.Extend(b.s.id, ttl) }

func (b meterBox) Hit(hit api.LimitEvent) { b.m.emit(api.EventLimitHit, b.s, "", hit) }

func (b meterBox) End(ctx context.Context, reason string) error {
	_, err := b.m.kill(ctx, b.s, reason)
	b.m.saveEnd(b.s)
	return err
}

// EndAll is the sandbox's own business: it is its admission that keeps others out, as a pause does.
func (b meterBox) EndAll(ctx context.Context, why *exec.Cause, hit api.LimitEvent, again string) error {
	s := b.s
	// Before anybody hears of an end: who then starts another command waits at the admission
	// until all is over, and does not meet what is to end.
	done := s.gate.TryTake()
	if s.grouped && done != nil {
		s.gate.Shut()
	}
	ends := s.execs.StopAll(why)
	if len(ends) == 0 { // a file worker, or what an exec has left behind
		b.Hit(hit)
	}
	err := exec.AwaitAll(ctx, ends)
	if err == nil {
		return b.endLeftovers(ctx, why, again, done)
	}
	if done != nil {
		s.gate.Open()
		done()
	}
	return err
}

// endLeftovers ends what is not an exec's any more: files workers, and what execs have left
// behind. Without cgroups only the second time round, when that goes on writing, and then
// with all of the sandbox. done gives back the turn at the admission, where the caller has it.
func (b meterBox) endLeftovers(ctx context.Context, why *exec.Cause, again string, done func()) (err error) {
	m, s := b.m, b.s
	if !s.grouped {
		if done != nil {
			done()
		}
		m.Files.End(&s.files)
		if again == "" {
			return nil
		}
		return b.End(ctx, again)
	}
	if done == nil {
		if done, err = s.gate.Take(ctx); err != nil {
			return err
		}
	}
	defer done()
	defer s.gate.Open()
	patient, cancel := context.WithTimeout(ctx, admission.Patience)
	defer cancel()
	if err := s.gate.Clear(patient, s.id); err != nil {
		return err
	}
	if err := exec.AwaitAll(ctx, s.execs.StopAll(why)); err != nil { // those that were being started
		return err
	}
	m.Files.End(&s.files)
	// Never used again after cgroup.kill.
	s.execs.SetSpare(nil)
	s.mu.Lock()
	s.workersGroup = ""
	s.mu.Unlock()
	return m.cfg.Cgroups.KillAll(patient, s.cgroup)
}
