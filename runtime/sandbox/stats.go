package sandbox

import (
	"time"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// alive finds a sandbox that has processes, and its PID 1.
func (m *Manager) alive(ref string) (*Sandbox, int, error) {
	s, err := m.find(ref)
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	state, pid := s.record.State, s.record.PID
	s.mu.Unlock()
	if state != api.Running && state != api.Paused {
		return s, 0, ended(s)
	}
	return s, pid, nil
}

func ended(s *Sandbox) error {
	if s.state() == api.Stopped || s.Record().Kept {
		return s.mustRun()
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(s.Record())).
		WithHint("only a sandbox that runs uses anything; hutch ps lists them")
}

// Stats says what a sandbox uses.
func (m *Manager) Stats(ref string) (api.Stats, error) {
	s, pid1, err := m.alive(ref)
	if err != nil {
		return api.Stats{}, err
	}
	var st api.Stats
	if s.cgroup == "" {
		all := meter(pid1)
		if len(all) == 0 {
			return st, ended(s)
		}
		st = sum(all)
	} else {
		if st, err = m.cfg.Cgroups.Stats(s.cgroup); err != nil {
			return st, ended(s)
		}
		if p, err := readProcess(pid1); err == nil && st.PIDs != nil {
			// PID 1's own threads do not count, and the peak has as many of them.
			st.PIDs.Current = max(0, st.PIDs.Current-int64(p.threads))
			st.PIDs.Peak = max(0, st.PIDs.Peak-int64(p.threads))
		}
	}
	st.Sandbox, st.Time = s.id, time.Now().UTC()
	s.mu.Lock()
	st.Name = s.record.Name
	limits := s.record.Limits
	s.mu.Unlock()
	st.Execs = s.execs.Len()
	if st.CPU != nil {
		st.CPU.Limit = limits.CPUs
	}
	if st.Memory != nil {
		st.Memory.LimitBytes = limits.MemoryBytes
	}
	if st.PIDs != nil {
		st.PIDs.Limit = limits.PIDs
	}
	if s.disk != nil {
		m.gauge(s, longEnough, diskuse.Usage{})
		used := s.disk.use()
		st.Disk = &api.DiskStats{UsedBytes: used.Bytes, LimitBytes: limits.DiskBytes, Inodes: used.Inodes}
	}
	return st, nil
}
