package sandbox

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/admission"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/keep"
)

// setTTL makes the sandbox's life end at a time; zero is never.
func (s *Sandbox) setTTL(m *Manager, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ttl != nil {
		s.ttl.Stop()
	}
	if s.record.Expires = nil; until.IsZero() {
		return
	}
	until = until.UTC().Truncate(time.Millisecond)
	s.record.Expires = &until
	s.ttl = time.AfterFunc(time.Until(until), func() {
		if e := s.Record().Expires; e != nil && e.Equal(until) { // not extended at the last moment
			m.expire(s, s.spec.TTLAction, "its ttl_s is over", false)
		}
	})
}

// Extend gives a sandbox so many seconds to live from now on, 0 for no end.
func (m *Manager) Extend(ref string, ttl float64) (api.Sandbox, error) {
	s, err := m.find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if st := s.state(); st != api.Running && st != api.Paused {
		return api.Sandbox{}, s.mustRun()
	}
	until := time.Time{}
	if ttl > 0 {
		until = time.Now().Add(seconds(ttl))
	}
	s.setTTL(m, until)
	m.saveEnd(s) // the next hutchd keeps to it
	return s.Record(), nil
}

// rearmIdle starts the idle clock anew, when the spec has one and nothing runs. A paused
// sandbox is not idle but paused: ttl_s bounds how long.
func (s *Sandbox) rearmIdle(m *Manager) {
	if s.spec.IdleS <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.record.State == api.Running && s.isIdle() {
		s.idle = time.AfterFunc(seconds(s.spec.IdleS),
			func() { m.expire(s, s.spec.IdleAction, "its idle_s is over", true) })
	}
}

// isIdle says that nothing of anybody's runs; mu is held.
func (s *Sandbox) isIdle() bool { return s.calls == 0 }

// idleNow is isIdle for who does not hold mu.
func (s *Sandbox) idleNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isIdle()
}

func (s *Sandbox) stopIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil {
		s.idle.Stop()
	}
}

// expire does what the spec wants when a time is over, in the background.
func (m *Manager) expire(s *Sandbox, action api.LifeAction, reason string, idle bool) {
	switch action {
	case "", api.LifeRemove:
		m.removeLater(s, reason)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, here := m.byID[s.id]; m.closed || !here {
		return
	}
	m.wg.Go(func() {
		var err error
		switch action {
		case api.LifePause:
			_, err = m.Pauses.PauseFor(m.ctx, pauseBox{m, s}, reason, idle)
		case api.LifeStop:
			err = m.stopLater(s.id, reason)
		case api.LifeKill:
			_, err = m.kill(m.ctx, s, reason)
		}
		if err != nil && m.ctx.Err() == nil {
			m.cfg.Logger.Warn("end of a time of a sandbox", "sandbox", s.id, "action", action, "why", reason,
				"err", err)
		}
		if action == api.LifeStop {
			return // another has its place
		}
		s.rearmIdle(m) // where it still runs
		m.saveEnd(s)
	})
}

// stopLater is Keep.Stop for a sandbox whose time is over.
func (m *Manager) stopLater(id, reason string) error {
	s, done, err := m.takeTurn(m.ctx, id)
	if err != nil {
		return err
	}
	defer done()
	_, _, err = keepBox{m, s}.stopAndKeep(m.ctx, keep.StopGrace, reason)
	return err
}

// stop asks every command to end, and ends those that do not.
func (b keepBox) stop(ctx context.Context, grace time.Duration, reason string) error {
	m, s := b.m, b.s
	if s.state() == api.Paused { // they could not hear of it
		if _, err := m.Pauses.ResumeOf(ctx, pauseBox{m, s}); err != nil {
			return err
		}
	}
	s.execs.AskToEnd(ctx, grace, s.Record().StopSignal)
	if grace > 0 { // what PID 1 moves for one of them is not to stay in two halves
		patient, cancel := context.WithTimeout(ctx, min(grace, admission.Patience))
		defer cancel()
		if err := s.moves().Hold(patient); err != nil {
			m.cfg.Logger.Debug("stop a sandbox while a folder is moved in it", "sandbox", s.id, "err", err)
		}
	}
	_, err := m.kill(ctx, s, reason)
	return err
}

// beginCall and endCall enclose a call: the sandbox is not idle meanwhile.
func (s *Sandbox) beginCall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.idle != nil {
		s.idle.Stop()
	}
}

func (s *Sandbox) endCall(m *Manager) {
	s.mu.Lock()
	s.calls--
	s.mu.Unlock()
	s.rearmIdle(m)
}

// checkSpec is Spec.Validate, and refuses a stop signal that is none.
func checkSpec(sp *api.Spec) error {
	if err := sp.Validate(); err != nil || sp.StopSignal == "" {
		return err
	}
	if _, err := exec.ParseSignal(sp.StopSignal); err != nil {
		return api.Errorf(api.InvalidArgument, "stop_signal: %q is no signal", sp.StopSignal).WithField("stop_signal").
			WithHint("use a name such as SIGINT or SIGRTMIN+3, or 1 to %d", exec.MaxSignal)
	}
	return nil
}

func describe(r api.Sandbox) string {
	if r.Reason == "" {
		return string(r.State)
	}
	return string(r.State) + " (" + r.Reason + ")"
}

func ended(s *Sandbox) error {
	if s.state() == api.Stopped || s.Record().Kept {
		return s.mustRun()
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(s.Record())).
		WithHint("only a sandbox that runs uses anything; hutch ps lists them")
}

// mustRun refuses what needs a running sandbox.
func (s *Sandbox) mustRun() error {
	if s.state() == api.Running {
		return nil
	}
	if s.state() == api.Paused {
		return api.Errorf(api.Unavailable, "sandbox %s was paused meanwhile", s.id).
			WithHint("try again, which resumes it")
	}
	if r := s.Record(); r.State == api.Waiting {
		return api.Errorf(api.FailedPrecondition, "sandbox %s waits in pool %q", s.id, r.Pool).
			WithHint("take one out of the pool: hutch pool acquire %s", r.Pool)
	}
	if r := s.Record(); r.Kept || r.State == api.Stopped || r.State == api.Failed {
		return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(r)).
			WithHint("go on with its files: hutch start %s; or remove it: hutch rm %s", s.id, s.id)
	}
	return api.Errorf(api.FailedPrecondition, "sandbox %s is %s", s.id, describe(s.Record())).
		WithHint("create a new one, or remove it: hutch rm %s", s.id)
}
