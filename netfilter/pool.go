package netfilter

import (
	"io"
	"sync"
)

// ahead is how many namespaces are ready. One takes 0.7 ms to make, of which the
// kernel's own part is most; more than a few help only who starts many at once.
const ahead = 4

// pool makes things before they are needed. Each is used once.
type pool[T io.Closer] struct {
	make   func() (T, error)
	failed func(error) // of making one ahead

	mu     sync.Mutex
	ready  []T
	filler sync.WaitGroup
	fills  bool
	closed bool
}

// take is one that is ready, or a new one. Those taken are replaced in the background,
// one at a time: a burst is no reason to make many.
func (p *pool[T]) take() (T, error) {
	p.mu.Lock()
	var one T
	n := len(p.ready)
	if n > 0 {
		one, p.ready = p.ready[n-1], p.ready[:n-1]
	}
	if !p.fills && !p.closed {
		p.fills = true
		p.filler.Go(p.fill)
	}
	p.mu.Unlock()
	if n > 0 {
		return one, nil
	}
	return p.make()
}

func (p *pool[T]) fill() {
	for {
		one, err := p.make()
		p.mu.Lock()
		if err != nil || p.closed || len(p.ready) >= ahead {
			p.fills = false
			p.mu.Unlock()
			if err != nil {
				p.failed(err) // who needs one next hears of it
			} else {
				_ = one.Close()
			}
			return
		}
		p.ready = append(p.ready, one)
		p.fills = len(p.ready) < ahead
		more := p.fills
		p.mu.Unlock()
		if !more {
			return
		}
	}
}

func (p *pool[T]) close() {
	p.mu.Lock()
	p.closed = true
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, one := range ready {
		_ = one.Close()
	}
	p.filler.Wait()
}
