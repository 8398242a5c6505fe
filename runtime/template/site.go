package template

import (
	"context"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// site is where a template is built, by one at a time. Who waits sees what is done meanwhile: it is what they have come
// for.
type site struct {
	turn    chan struct{} // held by who builds
	mu      sync.Mutex
	waiting map[*onlooker]bool
}

// onlooker is who waits.
type onlooker struct {
	progress func(api.Progress)
	steps    int // that it has seen
}

// turn waits until nobody builds a template. seen is how many steps somebody else has run meanwhile.
func (s *Set) turn(ctx context.Context, name string, progress func(api.Progress)) (seen int, leave func(), err error) {
	s.mu.Lock()
	at := s.building[name]
	if at == nil {
		at = &site{turn: make(chan struct{}, 1), waiting: map[*onlooker]bool{}}
		s.building[name] = at
	}
	s.mu.Unlock()
	leave = func() { <-at.turn }
	select {
	case at.turn <- struct{}{}:
		return 0, leave, nil
	default:
	}
	o := &onlooker{progress: progress}
	at.mu.Lock()
	at.waiting[o] = true
	at.mu.Unlock()
	defer func() {
		at.mu.Lock() // also until a call of progress is over
		defer at.mu.Unlock()
		delete(at.waiting, o)
		seen = o.steps
	}()
	select {
	case at.turn <- struct{}{}:
		return 0, leave, nil
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
}

// toAll is progress for all who want to know how a template is built.
func (s *Set) toAll(name string, progress func(api.Progress)) func(api.Progress) {
	s.mu.Lock()
	at := s.building[name]
	s.mu.Unlock()
	return func(p api.Progress) {
		progress(p)
		at.mu.Lock()
		defer at.mu.Unlock()
		for o := range at.waiting {
			if p.Step != nil {
				o.steps = max(o.steps, min(p.Step.Step, p.Step.Steps))
			}
			o.progress(p)
		}
	}
}
