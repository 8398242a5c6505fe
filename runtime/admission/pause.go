package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Patience bounds how long a pause waits for commands that are being started, and for processes to stand still.
const Patience = 5 * time.Second

// Enter is for everything that uses a sandbox: it resumes one that is paused, and keeps it from being paused until
// leave is called, which may be more than once.
func (p *Pauses) Enter(ctx context.Context, s Sandbox) (leave func(), err error) {
	g := s.Gate()
	for {
		in, state := g.tryEnter(), s.State()
		if in && state == api.Running {
			s.Entered()
			return sync.OnceFunc(g.leave), nil
		}
		if in {
			g.leave()
		}
		if in && state != api.Paused {
			return nil, s.MustRun()
		}
		if _, err := p.ResumeOf(ctx, s); err != nil {
			return nil, err
		}
	}
}

// Pause stops all processes of a sandbox where they are, and the clocks of its commands.
// One that is paused stays so.
func (p *Pauses) Pause(ctx context.Context, ref string) (api.Sandbox, error) {
	s, err := p.cfg.Sandboxes.Find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return p.PauseFor(ctx, s, "", false)
}

// PauseFor is Pause for a reason that the record gives; with idle it leaves a sandbox alone that is in use again.
func (p *Pauses) PauseFor(ctx context.Context, s Sandbox, reason string, idle bool) (api.Sandbox, error) {
	done, err := s.Gate().Take(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	was := s.State()
	record, err := p.pauseNow(ctx, s, reason, idle)
	if err == nil && was == api.Running && record.State == api.Paused {
		p.Reclaim(s)
	}
	return record, err
}

// pauseNow is PauseFor for whoever has the turn.
func (p *Pauses) pauseNow(ctx context.Context, s Sandbox, reason string, idle bool) (api.Sandbox, error) {
	if s.State() == api.Paused {
		return s.Record(), nil
	}
	if err := s.MustRun(); err != nil {
		return api.Sandbox{}, err
	}
	patient, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	defer s.Gate().Open()
	if err := s.Gate().Clear(patient, s.ID()); err != nil {
		return api.Sandbox{}, withCause(ctx, err)
	}
	if idle && !s.Idle() {
		return s.Record(), nil
	}
	// They would be stopped as well, and are cheaper to start again than to keep.
	s.EndWorkers()
	err := p.standStill(patient, s)
	if err == nil && !s.Transition(api.Paused, reason) {
		err = s.MustRun() // it has ended meanwhile
	}
	if err != nil {
		if s.State() != api.Running {
			return api.Sandbox{}, s.MustRun()
		}
		_ = p.goOn(s)
		return api.Sandbox{}, withCause(ctx, err)
	}
	s.StopIdle()
	return s.Record(), nil
}

// Resume lets the processes of a paused sandbox go on; those of one that runs do.
func (p *Pauses) Resume(ctx context.Context, ref string) (api.Sandbox, error) {
	s, err := p.cfg.Sandboxes.Find(ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return p.ResumeOf(ctx, s)
}

// ResumeOf is Resume for one that was found.
func (p *Pauses) ResumeOf(ctx context.Context, s Sandbox) (api.Sandbox, error) {
	done, err := s.Gate().Take(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	return p.resumeNow(s)
}

// resumeNow is ResumeOf for whoever has the turn.
func (p *Pauses) resumeNow(s Sandbox) (api.Sandbox, error) {
	if s.State() != api.Paused {
		return s.Record(), s.MustRun()
	}
	s.Gate().keepRest(false)
	if err := p.thaw(s); err != nil {
		return api.Sandbox{}, api.Errorf(api.Internal, "resume sandbox %s: %w", s.ID(), err).
			WithHint("try again, or remove it: hutch rm %s", s.ID())
	}
	s.Clock().GoOn(time.Now())
	s.SetPause(nil)
	if !s.Transition(api.Running, "") {
		return api.Sandbox{}, s.MustRun()
	}
	s.Save()
	s.RearmIdle()
	return s.Record(), nil
}

// Wake returns what lets the processes of a paused sandbox go on because somebody wants to connect to one of them; nil
// for one that is not paused: what is there answers, or nobody does.
func (p *Pauses) Wake(id string) func() error {
	s, err := p.cfg.Sandboxes.Find(id)
	if err != nil || s.State() != api.Paused {
		return nil
	}
	return func() error {
		_, err := p.ResumeOf(p.ctx, s)
		return err
	}
}

// standStill notes a pause, and stops all processes but PID 1: the next hutchd then does it again. After an error the
// caller calls goOn.
func (p *Pauses) standStill(ctx context.Context, s Sandbox) error {
	means := api.PauseSignal
	if _, own := s.Cgroup(); own {
		means = api.PauseFreezer
	}
	s.Clock().Stop(time.Now())
	s.SetPause(&api.Pause{Since: time.Now().UTC().Truncate(time.Millisecond), By: means})
	if err := s.SaveAs(api.Paused); err != nil {
		return err
	}
	return p.freeze(ctx, s)
}

// goOn undoes standStill in a sandbox that does not count as paused.
func (p *Pauses) goOn(s Sandbox) error {
	err := p.thaw(s)
	s.Clock().GoOn(time.Now())
	s.SetPause(nil)
	s.Save()
	return err
}

// freeze stops every process but PID 1, which goes on answering, and has moved for them what it was moving. After an
// error the caller calls thaw.
func (p *Pauses) freeze(ctx context.Context, s Sandbox) error {
	var err error
	if group, own := s.Cgroup(); own {
		err = p.cfg.Cgroups.Freeze(ctx, group)
	} else {
		err = s.Init().Stop(ctx)
	}
	if err == nil {
		return s.Moves().Hold(ctx)
	}
	err = s.Moves().Why(err)
	var known *api.Error
	if errors.As(err, &known) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return api.Errorf(api.Unavailable, "pause sandbox %s: %w", s.ID(), err).
		WithHint("a process of it waits for the kernel, for a disk that does not answer for example; try again")
}

func (p *Pauses) thaw(s Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	err := s.Moves().Release(ctx)
	if group, own := s.Cgroup(); own {
		return errors.Join(p.cfg.Cgroups.Thaw(group), err)
	}
	return errors.Join(s.Init().GoOn(ctx), err)
}

// Repause makes sure that an adopted sandbox which is on record as paused is: the hutchd before may have been killed on
// its way there, or back, or before it had taken back what it could.
func (p *Pauses) Repause(ctx context.Context, s Sandbox) error {
	patient, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := p.freeze(patient, s); err != nil {
		return err
	}
	if was := s.Record().Paused; was == nil || was.ReclaimedBytes == nil {
		p.Reclaim(s)
	}
	return nil
}

// withCause prefers the reason for a cancellation to what it broke.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
