package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Denied records that a sandbox was refused something, and tells: subscribers of events
// and the execs that run. It may be called from any goroutine and does not wait. Of a
// sandbox that is just being taken over or removed there is an event and no more.
func (m *Manager) Denied(sandbox string, e api.DeniedEvent) {
	m.mu.Lock()
	s := m.byID[sandbox]
	m.mu.Unlock()
	e.Count = max(1, e.Count)
	if s == nil {
		m.cfg.Events.Emit(api.EventNetworkDenied, sandbox, "", e)
		return
	}
	d := api.Denial{
		Kind: api.KindNet, Target: e.Where(), NetTarget: e.NetTarget, Rule: e.Rule, Why: e.Why,
		HowToAllow: e.HowToAllow,
		Count:      e.Count, Time: time.Now().UTC().Truncate(time.Millisecond), Refusal: e.Refusal,
	}
	d.Exec = m.Execs.Attribute(m.execBox(s), d, e.Cgroup)
	m.audit(context.Background(), s, d.Exec, api.AuditDenied, e, 0)
	m.learn(s, d.NetTarget)
	s.seen.Enter(d, e.Untold, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventNetworkDenied, s.id, d.Exec, e)
	})
}

// Passed records what a sandbox has reached, and by which rule: for the audit log, and in mode learn. It is
// called like Denied.
func (m *Manager) Passed(sandbox string, t api.NetTarget, rule string) {
	m.mu.Lock()
	s := m.byID[sandbox]
	m.mu.Unlock()
	if s == nil {
		return
	}
	m.audit(context.Background(), s, "", api.AuditAllowed, api.AuditConnection{NetTarget: t, Rule: rule}, 0)
	m.learn(s, t)
}

// learn adds t to what a sandbox in mode learn wanted, also for the next hutchd. There are few
// different targets, and each is written once.
func (m *Manager) learn(s *Sandbox, t api.NetTarget) {
	s.mu.Lock()
	learns := s.record.Network.Mode == api.NetLearn
	s.mu.Unlock()
	if !learns || !s.seen.Learn(t) {
		return
	}
	line, err := json.Marshal(t)
	if err == nil {
		err = appendLine(s.wantedFile(), line)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being removed
		m.cfg.Logger.Warn("note what a sandbox wants to reach", "sandbox", s.id, "err", err)
	}
}

func (s *Sandbox) wantedFile() string { return filepath.Join(s.dir, "wanted") }

func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
