package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// pausePatience bounds how long a pause waits for commands that are being started, and for
// processes to stand still.
const pausePatience = 5 * time.Second

// admission keeps pauses and what needs PID 1 to start a process apart: PID 1 waits in vfork for
// whatever it starts, and must not wait for one that is frozen.
type admission struct {
	turn chan struct{} // a token: whoever holds it pauses or resumes

	// Guarded by Sandbox.mu:
	entered int           // starts under way
	closed  bool          // a pause is under way: nobody enters
	empty   chan struct{} // non-nil while a pause waits for entered to be 0
}

func newAdmission() admission { return admission{turn: make(chan struct{}, 1)} }

// shared is one with the same turn.
func (d *admission) shared() admission { return admission{turn: d.turn} }

// take gives the caller the turn until the returned function is called.
func (d *admission) take(ctx context.Context) (func(), error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tryTake is take if nobody has the turn, else nil.
func (d *admission) tryTake() func() {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }
	default:
		return nil
	}
}

// enter is for everything that uses a sandbox: it resumes one that is paused, and keeps it
// from being paused until leave is called, which may be more than once.
func (m *Manager) enter(ctx context.Context, s *Sandbox) (leave func(), err error) {
	for {
		s.mu.Lock()
		state, closed := s.record.State, s.admission.closed
		if state == api.Running && !closed {
			s.admission.entered++
			s.mu.Unlock()
			m.Files.Settle(filesBox{m, s})
			return s.leaver(), nil
		}
		s.mu.Unlock()
		if state != api.Paused && !closed {
			return nil, s.mustRun()
		}
		if _, err := m.resume(ctx, s); err != nil {
			return nil, err
		}
	}
}

// again enters once more: the caller is in.
func (s *Sandbox) again() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission.entered++
	return s.leaver()
}

func (s *Sandbox) leaver() func() {
	left := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if left {
			return
		}
		left = true
		if s.admission.entered--; s.admission.entered == 0 && s.admission.empty != nil {
			close(s.admission.empty)
			s.admission.empty = nil
		}
	}
}

// shutAdmission keeps everybody out. The caller has the turn, and must call openAdmission.
func (s *Sandbox) shutAdmission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission.closed = true
}

// closeAdmission keeps everybody out, and waits until those who are in have left.
func (s *Sandbox) closeAdmission(ctx context.Context) error {
	s.mu.Lock()
	s.admission.closed = true
	var empty chan struct{}
	if s.admission.entered > 0 {
		empty = make(chan struct{})
		s.admission.empty = empty
	}
	s.mu.Unlock()
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return api.Errorf(api.Unavailable, "a command is being started in sandbox %s and does not come up", s.id).
			WithHint("try again when it runs, or end it: hutch rpc exec.list, exec.kill")
	}
}

func (s *Sandbox) openAdmission() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admission.closed, s.admission.empty = false, nil
}

// Pause stops all processes of a sandbox where they are, and the clocks of its commands.
// One that is paused stays so.
func (m *Manager) Pause(ctx context.Context, ref string) (api.Sandbox, error) {
	s, err := m.find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return m.pause(ctx, s, "", false)
}

// pause is Pause; with idle it leaves a sandbox alone that is in use again.
func (m *Manager) pause(ctx context.Context, s *Sandbox, reason string, idle bool) (api.Sandbox, error) {
	done, err := s.admission.take(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	was := s.state()
	record, err := m.pauseNow(ctx, s, reason, idle)
	if err == nil && was == api.Running && record.State == api.Paused {
		m.reclaim(s)
	}
	return record, err
}

// pauseNow is pause for whoever has the turn.
func (m *Manager) pauseNow(ctx context.Context, s *Sandbox, reason string, idle bool) (api.Sandbox, error) {
	if s.state() == api.Paused {
		return s.Record(), nil
	}
	if err := s.mustRun(); err != nil {
		return api.Sandbox{}, err
	}
	patient, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	defer s.openAdmission()
	if err := s.closeAdmission(patient); err != nil {
		return api.Sandbox{}, withCause(ctx, err)
	}
	s.mu.Lock()
	busy := idle && !s.isIdle()
	s.mu.Unlock()
	if busy {
		return s.Record(), nil
	}
	// They would be stopped as well, and are cheaper to start again than to keep.
	m.Files.End(&s.files)
	p := &api.Pause{Since: time.Now().UTC().Truncate(time.Millisecond), By: s.pauseMeans()}
	// On record before anything stands still: the next hutchd then does it again.
	s.execs.Clock.Stop(time.Now())
	s.setPause(p)
	err := s.saveAs(api.Paused)
	if err == nil {
		err = m.freeze(patient, s)
	}
	if err == nil && !s.transition(api.Paused, reason) {
		err = s.mustRun() // it has ended meanwhile
	}
	if err != nil {
		if s.state() != api.Running {
			return api.Sandbox{}, s.mustRun()
		}
		_ = m.thaw(s)
		s.execs.Clock.GoOn(time.Now())
		s.setPause(nil)
		m.saveEnd(s)
		return api.Sandbox{}, withCause(ctx, err)
	}
	s.stopIdle()
	return s.Record(), nil
}

// Resume lets the processes of a paused sandbox go on; those of one that runs do.
func (m *Manager) Resume(ctx context.Context, ref string) (api.Sandbox, error) {
	s, err := m.find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return m.resume(ctx, s)
}

func (m *Manager) resume(ctx context.Context, s *Sandbox) (api.Sandbox, error) {
	done, err := s.admission.take(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	return m.resumeNow(s)
}

// resumeNow is resume for whoever has the turn.
func (m *Manager) resumeNow(s *Sandbox) (api.Sandbox, error) {
	if s.state() != api.Paused {
		return s.Record(), s.mustRun()
	}
	s.keepRest()
	if err := m.thaw(s); err != nil {
		return api.Sandbox{}, api.Errorf(api.Internal, "resume sandbox %s: %w", s.id, err).
			WithHint("try again, or remove it: hutch rm %s", s.id)
	}
	s.execs.Clock.GoOn(time.Now())
	s.setPause(nil)
	if !s.transition(api.Running, "") {
		return api.Sandbox{}, s.mustRun()
	}
	m.saveEnd(s)
	s.rearmIdle(m)
	return s.Record(), nil
}

// Wake returns what lets the processes of a paused sandbox go on because somebody wants to connect to one of them; nil
// for one that is not paused: what is there answers, or nobody does.
func (m *Manager) Wake(id string) func() error {
	m.mu.Lock()
	s := m.byID[id]
	m.mu.Unlock()
	if s == nil || s.state() != api.Paused {
		return nil
	}
	return func() error {
		_, err := m.resume(m.ctx, s)
		return err
	}
}

func (s *Sandbox) setPause(p *api.Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.Paused = p
}

// pauseMeans is what stops the sandbox's processes.
func (s *Sandbox) pauseMeans() api.PauseMeans {
	if s.grouped {
		return api.PauseFreezer
	}
	return api.PauseSignal
}

// freeze stops every process but PID 1, which goes on answering, and has moved for them what it was moving. After an
// error the caller calls thaw.
func (m *Manager) freeze(ctx context.Context, s *Sandbox) error {
	var err error
	if s.grouped {
		err = m.cfg.Cgroups.Freeze(ctx, s.cgroup)
	} else {
		err = s.guest.Stop(ctx)
	}
	if err == nil {
		return s.moves().Hold(ctx)
	}
	err = s.moves().Why(err)
	var known *api.Error
	if errors.As(err, &known) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return api.Errorf(api.Unavailable, "pause sandbox %s: %w", s.id, err).
		WithHint("a process of it waits for the kernel, for a disk that does not answer for example; try again")
}

func (m *Manager) thaw(s *Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), pausePatience)
	defer cancel()
	err := s.moves().Release(ctx)
	if s.grouped {
		return errors.Join(m.cfg.Cgroups.Thaw(s.cgroup), err)
	}
	return errors.Join(s.guest.GoOn(ctx), err)
}

// repause makes sure that an adopted sandbox which is on record as paused is: the hutchd
// before may have been killed on its way there, or back.
func (m *Manager) repause(ctx context.Context, s *Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, pausePatience)
	defer cancel()
	return m.freeze(ctx, s)
}
