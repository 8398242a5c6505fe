package sandbox

// collectLayers removes the layers of the shelf that nothing needs any more.
func (m *Manager) collectLayers() error { return nil }

func (m *Manager) rollForward(s *Sandbox, next bool) error { return nil }
