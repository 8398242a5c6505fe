package keep

import (
	"context"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/workspace"
)

// StopGrace is how long commands have to end by themselves after their stop signal, unless the caller says.
const StopGrace = 10 * time.Second

// Stop ends all processes of a sandbox and keeps the rest for Start.
func (k *Keep) Stop(ctx context.Context, p api.StopParams) (api.StopResult, error) {
	if err := p.Validate(); err != nil {
		return api.StopResult{}, err
	}
	grace := StopGrace
	if p.TimeoutS != nil {
		grace = seconds(*p.TimeoutS)
	}
	s, done, err := k.sandboxes.Turn(ctx, p.Sandbox)
	if err != nil {
		return api.StopResult{}, err
	}
	defer done()
	if !s.Stopped() {
		s.Audit(ctx, api.AuditStopped, nil)
	}
	s, ended, err := s.Stop(ctx, grace, "stopped")
	if err != nil {
		return api.StopResult{}, err
	}
	_, record := s.Now()
	return api.StopResult{Sandbox: record, Ended: ended}, nil
}

// Start starts a sandbox that was stopped, or has ended otherwise. One that runs is left alone.
func (k *Keep) Start(ctx context.Context, by Caller, p api.StartParams) (api.Sandbox, error) {
	s, done, err := k.sandboxes.Turn(ctx, p.Sandbox)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer done()
	switch _, record := s.Now(); record.State {
	case api.Running, api.Paused:
		return record, nil
	case api.Creating, api.Waiting:
		return api.Sandbox{}, s.MustRun()
	}
	if !s.Stopped() {
		if s, _, err = s.Stop(ctx, 0, "stopped"); err != nil {
			return api.Sandbox{}, err
		}
	}
	sp, err := workspace.HandOver(specOf(s), p.Folders)
	if err != nil {
		return api.Sandbox{}, err
	}
	return s.Start(ctx, sp, by)
}
