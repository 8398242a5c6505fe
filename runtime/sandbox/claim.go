package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// claimGrace is how long a sandbox that is tied to its creator's connection waits for the
// creator, whose connection went with the hutchd before.
const claimGrace = 10 * time.Second

// awaitClaim removes a sandbox that waits for its owner when claimGrace is over.
func (m *Manager) awaitClaim(s *Sandbox) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.orphaned {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim = time.AfterFunc(claimGrace, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.orphaned {
			m.removeLocked(s, "its owner did not come back after hutchd was killed")
		}
	})
}

// Claim ties a sandbox that a hutchd before had tied to a connection to this one: its
// creator is back.
func (m *Manager) Claim(_ context.Context, by Caller, p api.SandboxParams) (api.Sandbox, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.Sandbox{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.orphaned {
		return api.Sandbox{}, api.Errorf(api.FailedPrecondition, "sandbox %s is not waiting for its owner", s.id).
			WithHint("only a sandbox with owner connection does, for %s after the daemon was restarted", claimGrace)
	}
	s.mu.Lock()
	s.orphaned, s.conn = false, by.Conn
	s.mu.Unlock()
	if sc := m.scopeOf(s); sc != nil {
		sc.users[by.Conn] = true
	}
	return s.Record(), nil
}
