package sandbox

import (
	"context"
	"sync"
)

// starts counts the runs (RunNew) whose command does not run yet. A hutchd that leaves its sandboxes to the next one
// waits for them: what is only being made is on no record, so that the next one could not go on with it, and the client
// could not know whether its command ran.
type starts struct {
	mu   sync.Mutex // guards what follows
	n    int
	over chan struct{} // of who waits: closed when n is 0 again; nil when nobody does
}

// begin counts a run until done is called, which may be called again.
func (s *starts) begin() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.n--; s.n == 0 && s.over != nil {
			close(s.over)
			s.over = nil
		}
	})
}

// await returns when there is none, or ctx ends, and reports whether there was one.
func (s *starts) await(ctx context.Context) bool {
	s.mu.Lock()
	if s.n == 0 {
		s.mu.Unlock()
		return false
	}
	if s.over == nil {
		s.over = make(chan struct{})
	}
	over := s.over
	s.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
	}
	return true
}

// AwaitStarts waits until no run is between its call and the start of its command, or ctx ends, and reports whether one
// was. Who keeps the gate of its run closed (api.RunParams) holds the end of the daemon up: bound it.
func (m *Manager) AwaitStarts(ctx context.Context) bool { return m.starts.await(ctx) }
