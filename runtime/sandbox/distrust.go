package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// exitGrace is how long the end of a PID 1 may take to be reported after its channel has
// closed. It tells more than that the channel is closed, so it is waited for.
const exitGrace = time.Second

// watchChannel ends a sandbox whose PID 1 cannot be talked to any more: it has sent what
// hutch-init never sends, or closed its channel. Whatever runs there is not ours, and
// nothing in the sandbox can be ended but with all of it.
func (m *Manager) watchChannel(s *Sandbox) {
	m.watchers.Go(func() {
		select {
		case <-s.exited:
			return
		case <-s.guest.Dead():
		}
		err := s.guest.Err()
		if errors.Is(err, guestapi.ErrClosed) {
			return // by the removal
		}
		if !errors.Is(err, guestapi.ErrProtocol) {
			select {
			case <-s.exited:
				return
			case <-time.After(exitGrace):
			}
		}
		if !s.transition(api.Failed, fmt.Sprintf("its PID 1 is not to be trusted: %v", err)) {
			return
		}
		m.cfg.Logger.Warn("a sandbox's PID 1 is not to be trusted; the sandbox is killed", "sandbox", s.id, "err", err)
		ctx, cancel := context.WithTimeout(context.Background(), exec.KillTimeout)
		defer cancel()
		if err := m.cfg.Launcher.Kill(ctx, s.id); err != nil {
			_ = m.cfg.Kernel.Kill(s.pidfd) // PID 1 takes its pid namespace along
		}
	})
}
