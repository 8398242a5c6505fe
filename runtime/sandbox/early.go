package sandbox

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// early is a generic sandbox that is launched beside something else which has to be done first: the copy of what a fork
// goes on from. See runtime/DESIGN.md, "Snapshots and forks".
type early struct {
	kind    kindAhead
	made    chan *generic // closed when there is none
	dropped chan struct{}
}

// launchEarly is for a fork of s, of which the caller has the turn; nil where it will not need one.
func (m *Manager) launchEarly(s *Sandbox, p api.ForkParams) *early {
	s.mu.Lock()
	sn := &snapshot{Spec: s.spec, Record: s.record}
	s.mu.Unlock()
	sp, err := forkSpec(sn, p)
	if err != nil { // which the fork will say
		return nil
	}
	limits, err := m.limitsOf(&sp.Limits, true)
	if err != nil || !(&CreateRequest{Spec: sp}).fits(&limits.limits) {
		return nil
	}
	return m.genericsFor(&sp).early()
}

// early launches one unless one waits.
func (p *generics) early() *early {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.ready) > 0 {
		return nil
	}
	e := &early{kind: p.kind, made: make(chan *generic), dropped: make(chan struct{})}
	p.wg.Go(func() {
		defer close(e.made)
		g, err := p.m.launchGeneric(p.m.ctx, p.kind)
		if err != nil { // the create that finds none launches one itself, and says why if it fails as well
			if context.Cause(p.m.ctx) == nil {
				p.m.cfg.Logger.Warn("launch a sandbox beside a copy", "err", err)
			}
			return
		}
		p.wg.Add(1)
		select {
		case e.made <- g:
			return
		case <-e.dropped:
		case <-p.m.ctx.Done():
		}
		defer g.settled()
		if err := g.discard(); err != nil {
			p.m.cfg.Logger.Error("remove a sandbox that was launched beside a copy", "sandbox", g.id, "err", err)
		}
	})
	return e
}

// take returns it, the caller's as generics.take says, to who wants one of a kind; nil when there is none.
func (e *early) take(kind kindAhead) *generic {
	if e == nil || e.kind != kind {
		return nil
	}
	return <-e.made
}

// drop ends it unless somebody has taken it.
func (e *early) drop() {
	if e != nil {
		close(e.dropped)
	}
}
