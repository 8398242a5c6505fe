package sandbox

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// checkHost refuses what this host can not enforce.
func (m *Manager) checkHost(s *api.Spec) error {
	if t := s.Limits.TimeoutS; t > m.cfg.Exec.MaxTimeoutS {
		return m.tooLong("limits.timeout_s", t)
	}
	if err := m.cfg.Host.checkRlimits("limits.rlimits", &s.Limits.Rlimits); err != nil {
		return err
	}
	return m.checkControllers(&s.Limits)
}

func (m *Manager) checkControllers(limits *api.Limits) error {
	h := &m.cfg.Host
	for _, l := range []struct {
		field, controller string
		set               bool
	}{
		{"limits.cpus", "cpu", limits.CPUs > 0},
		{"limits.memory_bytes", "memory", limits.MemoryBytes > 0},
		{"limits.pids", "pids", limits.PIDs > 0},
	} {
		if !l.set || contains(h.Controllers, l.controller) {
			continue
		}
		why := h.CgroupReason
		if why == "" {
			why = fmt.Sprintf("the %s controller is not available", l.controller)
		}
		return api.Errorf(api.Unavailable, "%s can not be enforced here: %s", l.field, why).
			WithField(l.field).WithHint("%s", orElse(h.CgroupRemedy, "leave the limit out"))
	}
	return nil
}

// defaultPIDs bounds a sandbox that asks for no limit of its own, where there is a
// controller for it: enough for every build tool, and a fork bomb ends there.
const defaultPIDs = 4096

// reserve takes the id and the name, so that two creates never share one.
func (m *Manager) reserve(req *CreateRequest) (*Sandbox, error) {
	id := newID("sb_")
	s := &Sandbox{
		id: id, name: req.Spec.Name, dir: filepath.Join(m.cfg.Dir, id), spec: req.Spec, conn: req.Conn,
		nproc: m.cfg.Host.NProc, door: newDoor(), clock: newClock(clockState{}),
		exited: make(chan struct{}), execs: map[string]*running{},
	}
	m.placeCgroup(s)
	s.changed = func(to api.State, reason string) { m.stateChanged(s, to, reason) }
	s.record = api.Sandbox{
		ID: id, Name: s.name, State: api.Creating, Created: time.Now().UTC().Truncate(time.Millisecond),
		Image: req.Spec.Image, Labels: req.Spec.Labels, Limits: req.Spec.Limits, Network: req.Spec.Network,
		Hostname: orElse(req.Spec.Hostname, defaultHostname(id)), User: req.Spec.User,
	}
	if s.record.Limits.PIDs == 0 && contains(m.cfg.Host.Controllers, "pids") {
		s.record.Limits.PIDs = defaultPIDs
	}
	if s.record.Network.Mode == "" {
		s.record.Network.Mode = api.NetNone
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	if other, taken := m.byName[s.name]; taken && s.name != "" {
		return nil, api.Errorf(api.AlreadyExists, "the name %q belongs to sandbox %s", s.name, other.id).
			WithField("name").WithHint("choose another name, or remove it: hutch rm %s", s.name)
	}
	m.byID[id] = s
	if s.name != "" {
		m.byName[s.name] = s
	}
	m.creating[s.conn]++
	m.wg.Add(1)
	return s, nil
}

// placeCgroup decides where the sandbox's cgroup is.
func (m *Manager) placeCgroup(s *Sandbox) {
	if h := &m.cfg.Host; h.CgroupPath != "" {
		s.cgroup = filepath.Join(h.CgroupPath, s.id)
		s.grouped = m.cfg.Cgroups.Enabled()
	}
}

// defaultHostname is the id in a form that host names allow.
func defaultHostname(id string) string { return "hutch-" + id[len("sb_"):] }

// drop takes a sandbox that was never admitted out of the maps.
func (m *Manager) drop(s *Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, s.id)
	if m.byName[s.name] == s {
		delete(m.byName, s.name)
	}
	m.lastBusy = time.Now()
	m.doneCreating(s.conn)
}

func (m *Manager) doneCreating(conn uint64) (gone bool) {
	m.creating[conn]--
	gone = m.gone[conn]
	if m.creating[conn] == 0 {
		delete(m.creating, conn)
		delete(m.gone, conn)
	}
	return gone
}

// admit starts the clocks of a sandbox that is running. PID 1 may be gone already
// and its owner as well.
func (m *Manager) admit(s *Sandbox) {
	s.transition(api.Running, "")
	if until := s.Record().Expires; until != nil {
		s.setTTL(m, *until)
	}
	s.rearmIdle(m)
	m.mu.Lock()
	gone := m.doneCreating(s.conn)
	m.mu.Unlock()
	if gone && s.spec.Owner == api.OwnerConnection {
		m.removeLater(s, "its owner's connection ended")
	}
	m.watchPID1(s)
}

// watchPID1 learns of the end of PID 1 for certain: hutch-launch may have reported it
// while the state was still creating.
func (m *Manager) watchPID1(s *Sandbox) {
	m.watchers.Go(func() {
		waitReadable(s.pidfd)
		s.transition(api.Failed, "PID 1 ended")
		s.markExited()
	})
	m.watchChannel(s)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
