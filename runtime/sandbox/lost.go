package sandbox

import (
	"github.com/hutch-sh/hutch/runtime/api"
)

// Lost says that hutch-launch has ended and takes every sandbox with it.
func (m *Manager) Lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = true
}

// whySandboxEnded is the verdict of an exec that ended with its sandbox.
func (m *Manager) whySandboxEnded() api.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost {
		return api.VerdictLost
	}
	return api.VerdictSandbox
}
