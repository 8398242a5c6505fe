package sandbox

import (
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter"
)

// reserve takes the id and the name, so that two creates never share one. The id is g's where that
// is not nil.
func (m *Manager) reserve(req *CreateRequest, limits meter.Granted, g *generic) (*Sandbox, error) {
	id := newID("sb_")
	if g != nil {
		id = g.id
	}
	s := m.newSandbox(api.Sandbox{
		ID: id, Name: req.Spec.Name, State: api.Creating, Created: time.Now().UTC().Truncate(time.Millisecond),
		Image: req.Spec.Image, Scope: req.Spec.Scope, Undo: req.Spec.Undo, Labels: req.Spec.Labels,
		Limits: limits.Limits, Unenforced: limits.Missing,
		Network:  api.SandboxNetwork{NetPolicy: req.Spec.Network.Settled()},
		Seccomp:  api.SeccompProfile(orElse(string(req.Spec.Seccomp), string(api.SeccompDefault))),
		Hostname: orElse(req.Spec.Hostname, defaultHostname(id)), User: req.Spec.User, Pool: req.pool,
	}, req.Spec, req.User)
	s.conn, s.templated, s.unready = req.Conn, req.templated, req.Building || req.templated.starts()
	if req.pool != "" {
		s.pooled = waitsInPool
	}
	if s.templated != nil {
		s.record.Template = s.templated.Name
	}
	if l := &s.record.Limits; l.DiskBytes > 0 && l.Inodes == 0 && req.Spec.Limits.Inodes != api.Unlimited {
		l.Inodes = meter.DefaultInodes(l.DiskBytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if other, taken := m.byName[s.name]; taken && s.name != "" {
		return nil, api.Errorf(api.AlreadyExists, "the name %q belongs to sandbox %s", s.name, other.id).
			WithField("name").WithHint("choose another name, or remove it: hutch rm %s", s.name)
	}
	if err := m.checkQuota(s.user, &limits.Limits, nil, 1); err != nil {
		return nil, err
	}
	m.byID[id] = s
	if s.name != "" {
		m.byName[s.name] = s
	}
	m.creating[s.conn]++
	m.wg.Add(1)
	return s, nil
}

// checkQuota refuses n sandboxes of a user, with limits l each, when that user's would be too many with them or too
// large. except, when it is one of them, does not count. m.mu is held.
func (m *Manager) checkQuota(user uint32, l *api.Limits, except *Sandbox, n int) error {
	q := m.settings.Load().Quotas
	if q == (api.Quotas{}) {
		return nil
	}
	others := 0
	var running []api.Limits
	for _, s := range m.byID {
		if s.user != user || s == except {
			continue
		}
		others++ // its files and its record are there still
		if r := s.Record(); r.State != api.Stopped && r.State != api.Failed {
			running = append(running, r.Limits)
		}
	}
	return m.Meters.CheckQuota(q, l, n, others, running)
}

// newSandbox is a sandbox as its record and spec say, in which nothing runs yet; user is who created it. What it has of
// an image, a hutchd before, or the shelf is the caller's to add.
func (m *Manager) newSandbox(record api.Sandbox, sp api.Spec, user uint32) *Sandbox {
	s := &Sandbox{
		id: record.ID, name: record.Name, dir: filepath.Join(m.cfg.Dir, record.ID), spec: sp, user: user,
		record: record, nproc: m.cfg.Host.NProc, gate: admission.NewGate(), turn: admission.NewTurn(),
		execs: exec.NewSet(exec.ClockState{}), exited: make(chan struct{}),
	}
	s.meter = m.Meters.New(meterBox{m, s})
	s.changed = func(to api.State, reason string) { m.stateChanged(s, to, reason) }
	if h := &m.cfg.Host; h.CgroupPath != "" {
		s.cgroup, s.grouped = filepath.Join(h.CgroupPath, s.id), m.cfg.Cgroups.Enabled()
	}
	return s
}

// defaultHostname is the id in a form that host names allow.
func defaultHostname(id string) string { return "hutch-" + id[len("sb_"):] }

// admit starts the clocks of a sandbox that is running; poolsBox does so for one that waits. PID 1 may be gone
// already and its owner as well.
func (m *Manager) admit(s *Sandbox) {
	if !s.waits() || s.templated.starts() {
		s.transition(api.Running, "")
	}
	if until := s.Record().Expires; until != nil {
		s.setTTL(m, *until)
	}
	s.rearmIdle(m)
	m.mu.Lock()
	gone := m.doneCreating(s.conn) && s.spec.Owner == api.OwnerConnection
	m.mu.Unlock()
	if gone {
		m.removeLater(s, "its owner's connection ended")
	}
	m.watchPID1(s)
	s.meter.Watch()
}

// watchPID1 learns of the end of PID 1 for certain: hutch-launch may have reported it
// while the state was still creating.
func (m *Manager) watchPID1(s *Sandbox) {
	m.watchers.Go(func() {
		m.cfg.Kernel.AwaitExit(s.pidfd)
		s.transition(api.Failed, "PID 1 ended")
		s.markExited()
		if leavePool(m.Pools, s) {
			m.removeLater(s, "it ended while it waited")
		}
	})
	m.watchChannel(s)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
