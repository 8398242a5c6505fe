package warm

import "context"

// Early is a sandbox that is launched beside something else which has to be done first: the copy of what a fork goes on
// from. See runtime/DESIGN.md, "Snapshots and forks". A nil one is none.
type Early[G Launched, K Key] struct {
	of      *Kind[G, K]
	made    chan G        // closed when there is none
	dropped chan struct{} // closed by Drop
}

// Early launches one unless one waits, or all end; then it is nil. The caller calls Drop of it in the end.
func (k *Kind[G, K]) Early() *Early[G, K] {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || len(k.ready) > 0 {
		return nil
	}
	e := &Early[G, K]{of: k, made: make(chan G), dropped: make(chan struct{})}
	k.wg.Go(e.launch)
	return e
}

// launch launches it, and waits until somebody has taken or dropped it.
func (e *Early[G, K]) launch() {
	defer close(e.made)
	k := e.of
	g, err := k.by.Launch(k.ctx, k.number)
	if err != nil { // the create that finds none launches one itself, and says why if it fails as well
		if context.Cause(k.ctx) == nil {
			k.log.Warn("launch a sandbox beside a copy", "err", err)
		}
		return
	}
	k.wg.Add(1)
	select {
	case e.made <- g:
		return
	case <-e.dropped:
	case <-k.ctx.Done():
	}
	defer k.Settled()
	if err := g.Discard(); err != nil {
		k.log.Error("remove a sandbox that was launched beside a copy", "sandbox", g.ID(), "err", err)
	}
}

// Take returns it, the caller's as Kind.Take says, to who wants one of a kind; false when there is none.
func (e *Early[G, K]) Take(of *Kind[G, K]) (made G, ok bool) {
	if e == nil || e.of != of {
		return made, false
	}
	made, ok = <-e.made
	return made, ok
}

// Drop ends it unless somebody has taken it.
func (e *Early[G, K]) Drop() {
	if e != nil {
		close(e.dropped)
	}
}
