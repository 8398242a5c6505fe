package admission

import (
	"context"
	"errors"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Still calls use while nothing of the sandbox runs but its PID 1, for a reason that its record gives.
func (p *Pauses) Still(ctx context.Context, s Sandbox, reason string, use func() error) (err error) {
	done, err := s.Gate().Take(ctx) // nobody else pauses or resumes
	if err != nil {
		return err
	}
	defer done()
	if !s.Here() {
		return api.Errorf(api.Unavailable, "sandbox %s was stopped, started or removed meanwhile", s.ID()).
			WithHint("try again")
	}
	switch s.State() {
	case api.Stopped, api.Paused:
	case api.Running:
		// On record as paused, so that it does not stand still for ever when this process is killed: whoever uses it
		// then resumes it.
		if _, err := p.pauseNow(ctx, s, reason, false); err != nil {
			return err
		}
		defer func() {
			if s.State() != api.Paused { // it was removed meanwhile, or its PID 1 was killed
				return
			}
			_, rerr := p.resumeNow(s)
			err = errors.Join(err, rerr)
		}()
	default:
		return s.MustRun()
	}
	return use()
}

// Quiesce calls use with the ids of the processes that stand still meanwhile. It takes milliseconds: unlike Still it
// tells nobody, and leaves files workers alone. Nothing is stopped where nothing but PID 1 and workers is there, which
// write when they are asked to. PID 1, which moves folders for commands and for workers, finishes the one that it moves
// before.
func (p *Pauses) Quiesce(ctx context.Context, s Sandbox, use func(standing []int) error) (err error) {
	done, err := s.Gate().Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	switch s.State() {
	case api.Stopped, api.Failed:
		return use(nil)
	case api.Paused:
		return use(s.IDs())
	case api.Running:
	default:
		return s.MustRun()
	}
	patient, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	defer s.Gate().Open()
	if err := s.Gate().Clear(patient, s.ID()); err != nil {
		return withCause(ctx, err)
	}
	below, known := s.Descendants()
	if known && len(below) <= s.Workers() {
		return s.Moves().While(patient, func() error { return use(nil) })
	}
	if err = p.standStill(patient, s); err == nil {
		if below, known = s.Descendants(); !known {
			below = s.IDs()
		}
		err = use(below)
	}
	if terr := p.goOn(s); err == nil && terr != nil && s.State() == api.Running {
		err = api.Errorf(api.Internal, "let sandbox %s go on: %w", s.ID(), terr).
			WithHint("hutch resume %s, or remove it: hutch rm %s", s.ID(), s.ID())
	}
	return err
}
