package warm

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Ahead has sandboxes that were launched before anybody asked for one: in no list, without a record, and gone with the
// daemon. Of each kind some wait once one could have been used; all but one of them are prepared for what was asked for
// last. Its methods may be called from any goroutine.
type Ahead[G Launched, K Key] struct{ kinds []Kind[G, K] }

// NewAhead makes one of so many kinds, in which none waits. ctx ends what is being launched.
func NewAhead[G Launched, K Key](ctx context.Context, kinds int, by Launcher[G, K], log *slog.Logger) *Ahead[G, K] {
	a := &Ahead[G, K]{kinds: make([]Kind[G, K], kinds)}
	for i := range a.kinds {
		k := &a.kinds[i]
		k.ctx, k.by, k.log, k.number, k.due = ctx, by, log, i, k.refill
	}
	return a
}

// Kind is the supply of one kind.
func (a *Ahead[G, K]) Kind(number int) *Kind[G, K] { return &a.kinds[number] }

// Ready is how many wait, of all kinds.
func (a *Ahead[G, K]) Ready() (n int) {
	for i := range a.kinds {
		k := &a.kinds[i]
		k.mu.Lock()
		n += len(k.ready)
		k.mu.Unlock()
	}
	return n
}

// Exited replaces one whose PID 1 has ended, if it is one that waits.
func (a *Ahead[G, K]) Exited(id string) {
	for i := range a.kinds {
		k := &a.kinds[i]
		k.mu.Lock()
		if e, ok := k.lose(id); ok {
			k.discard(e)
		}
		k.mu.Unlock()
	}
}

// Close ends all that wait, and returns when none is left, but those that somebody has taken and settled.
func (a *Ahead[G, K]) Close() {
	for i := range a.kinds {
		k := &a.kinds[i]
		k.mu.Lock()
		k.discard(k.end()...)
		k.mu.Unlock()
		k.wg.Wait()
	}
}

// Kind is the supply of one kind: what is the same in all of it is fixed when PID 1 starts.
type Kind[G Launched, K Key] struct {
	ctx    context.Context
	by     Launcher[G, K]
	log    *slog.Logger
	number int

	mu sync.Mutex // guards what follows
	stock[entry[G, K]]
	key    K         // of the last create
	keyed  bool      // it had one
	failed time.Time // when one could not be prepared for it
	wg     sync.WaitGroup
}

// entry is one that waits.
type entry[G Launched, K Key] struct {
	made     G
	key      K // that it was prepared for
	prepared bool
}

func (e entry[G, K]) ID() string { return e.made.ID() }

// Take returns one that is alive, the caller's until it calls Settled; false when there is none. With a key it is one
// that was prepared for that, if there is one, else one that was not prepared.
func (k *Kind[G, K]) Take(key K, keyed bool) (made G, ok bool) {
	k.mu.Lock()
	k.note(key, keyed)
	k.mu.Unlock()
	for {
		e, ok := k.takeOut(key, keyed)
		if !ok {
			return made, false
		}
		if k.by.Alive(e.made) {
			return e.made, true
		}
		k.Discard(e.made)
		k.Settled()
	}
}

// takeOut takes the oldest one that suits out of the stock.
func (k *Kind[G, K]) takeOut(key K, keyed bool) (e entry[G, K], ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.ready, func(e entry[G, K]) bool { return keyed && e.prepared && e.key == key })
	if i < 0 {
		i = slices.IndexFunc(k.ready, entry[G, K].unprepared)
	}
	if i < 0 {
		return e, false
	}
	e = k.ready[i]
	k.ready = slices.Delete(k.ready, i, i+1)
	k.wg.Add(1)
	return e, true
}

func (e entry[G, K]) unprepared() bool { return !e.prepared }

// Settled says that one that somebody has taken is a sandbox of the daemon's, or is being discarded. Until then Close
// waits: the daemon's folder must not go while there is one in it.
func (k *Kind[G, K]) Settled() { k.wg.Done() }

// note remembers what the next one is prepared for. Those that were prepared for something else go when the same is
// asked for twice in a row: who takes turns between two images keeps one for the one, and unprepared ones for the
// other. mu is held.
func (k *Kind[G, K]) note(key K, keyed bool) {
	again := keyed && k.keyed && k.key == key
	k.key, k.keyed = key, keyed
	if !again {
		k.failed = time.Time{}
		return
	}
	k.ready = slices.DeleteFunc(k.ready, func(e entry[G, K]) bool {
		other := e.prepared && e.key != key
		if other {
			k.discard(e)
		}
		return other
	})
}

// prepareAgainAfter is how long none is prepared for what one could not be prepared for.
const prepareAgainAfter = time.Minute

// prepares says what the next one is prepared for. One at least stays as it is, for whoever wants something else. mu is
// held.
func (k *Kind[G, K]) prepares() (key K, ok bool) {
	unprepared := slices.ContainsFunc(k.ready, entry[G, K].unprepared)
	return k.key, k.keyed && unprepared && time.Since(k.failed) > prepareAgainAfter
}

// Discard ends one in the background, which its taker has no use for, or which nobody has taken.
func (k *Kind[G, K]) Discard(made G) {
	k.wg.Go(func() {
		if err := made.Discard(); err != nil {
			k.log.Error("remove a sandbox that was launched ahead", "sandbox", made.ID(), "err", err)
		}
	})
}

func (k *Kind[G, K]) discard(all ...entry[G, K]) {
	for _, e := range all {
		k.Discard(e.made)
	}
}

// Refill reports a create: some time after the last one enough wait again.
func (k *Kind[G, K]) Refill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.later(refillAfter)
}

// later is the stock's; who makes one sees to the next.
func (k *Kind[G, K]) later(after time.Duration) {
	if k.making == 0 {
		k.stock.later(after)
	}
}

// refill launches one, and goes on until there are enough or a create comes between. What cannot be launched is tried
// again after the next create, which says why if it fails as well; one that cannot be prepared goes, and another is
// launched, which stays as it is.
func (k *Kind[G, K]) refill() {
	want := k.by.Ready()
	k.mu.Lock()
	if n := len(k.ready); n > want { // the configuration has changed
		k.discard(k.ready[want:]...)
		k.ready = k.ready[:want:want]
	}
	if k.closed || k.making > 0 || len(k.ready) >= want {
		k.mu.Unlock()
		return
	}
	k.making++
	k.wg.Add(1)
	var e entry[G, K]
	e.key, e.prepared = k.prepares()
	k.mu.Unlock()
	defer k.wg.Done()
	var err, unprepared error
	if e.made, err = k.by.Launch(k.ctx, k.number); err == nil && e.prepared {
		unprepared = k.by.Prepare(k.ctx, e.made, k.number, e.key) // the image may be gone
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.making--
	switch {
	case unprepared != nil:
		k.discard(e)
		if !k.closed {
			k.log.Info("claim a sandbox ahead", "image", e.key.Image(), "err", unprepared)
			k.failed = time.Now()
			k.later(refillAfter)
		}
	case err != nil:
		if !k.closed {
			k.log.Warn("launch a sandbox ahead", "err", err)
		}
	case k.closed:
		k.discard(e)
	default:
		k.ready = append(k.ready, e)
		if len(k.ready) < want {
			k.later(refillAfter)
		}
	}
}
