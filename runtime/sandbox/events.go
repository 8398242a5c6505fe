package sandbox

import (
	"github.com/hutch-sh/hutch/runtime/api"
)

// noEvents is for managers whose events nobody keeps.
type noEvents struct{}

func (noEvents) Emit(api.EventKind, string, string, any) {}

// stateChanged tells that a sandbox has a new state.
func (m *Manager) stateChanged(s *Sandbox, to api.State, reason string) {
	m.emit(api.EventSandboxState, s, "", api.StateEvent{
		State: to, Reason: reason, Name: s.name, Image: s.spec.Image,
	})
}
