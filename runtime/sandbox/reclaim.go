package sandbox

import "github.com/hutch-sh/hutch/runtime/api"

// reclaim takes the page cache of a paused sandbox back, behind the reply to the pause: what it has read and written
// and does not use now. Where that cannot be nothing happens, and the record says nothing. The caller has the turn at
// the admission.
func (m *Manager) reclaim(s *Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cgroup == "" || s.record.State != api.Paused { // killed just now: who removes it has nothing to end
		return
	}
	s.endReclaim = m.cfg.Cgroups.Reclaim(s.cgroup, func(bytes int64) { m.tookBack(s, bytes) })
}

// tookBack notes what that has gained. Until it returns, nobody resumes or removes s.
func (m *Manager) tookBack(s *Sandbox, bytes int64) {
	s.mu.Lock()
	paused := s.record.State == api.Paused && s.record.Paused != nil
	if paused {
		p := *s.record.Paused // others have the one that was there
		p.ReclaimedBytes = &bytes
		s.record.Paused = &p
	}
	s.mu.Unlock()
	if !paused { // it has ended
		return
	}
	m.saveEnd(s)
	m.cfg.Events.Emit(api.EventReclaimed, s.id, "", api.ReclaimedEvent{Bytes: bytes})
}

// keepRest leaves the sandbox what it still has, and returns when nothing is being taken back: the kernel removes no
// cgroup meanwhile, and lets nobody else make, remove or freeze one while it waits for that.
func (s *Sandbox) keepRest() {
	s.mu.Lock()
	end := s.endReclaim
	s.endReclaim = nil
	s.mu.Unlock()
	if end != nil {
		end()
	}
}
