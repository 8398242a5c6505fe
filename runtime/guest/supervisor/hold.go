package supervisor

import (
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/sys"
)

// moving is which folder is being moved, and whether another one may be: while hutchd looks at a sandbox's files, or
// has it paused, none is.
type moving struct {
	mu     sync.Mutex
	change sync.Cond     // of held
	held   bool          // no move begins
	folder string        // that is being moved; "" is none
	idle   chan struct{} // closed when that is over; nil while none is
}

// begin waits until mv may be made. It reports whether somebody waits for that; then end must be called.
func (m *moving) begin(mv *move) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.held {
		m.change.Wait()
	}
	if !sys.SeccompWaits(mv.listener, mv.n.ID) {
		return false
	}
	m.folder, m.idle = mv.name(), make(chan struct{})
	return true
}

func (m *moving) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.idle)
	m.folder, m.idle = "", nil
}

// hold lets no move begin until release, and waits until the one that is under way is over. After wait it returns the
// folder that is still being moved.
func (m *mover) hold(wait time.Duration) (folder string) {
	m.moving.mu.Lock()
	m.moving.held = true
	idle := m.moving.idle
	m.moving.mu.Unlock()
	if idle != nil {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-idle:
		case <-late.C:
		}
	}
	m.moving.mu.Lock()
	defer m.moving.mu.Unlock()
	return wireText(m.moving.folder)
}

// release ends hold.
func (m *mover) release() {
	m.moving.mu.Lock()
	defer m.moving.mu.Unlock()
	m.moving.held = false
	m.moving.change.Broadcast()
}
