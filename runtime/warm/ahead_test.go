package warm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// made is a sandbox that was launched ahead.
type made struct {
	by   *maker
	id   string
	key  image // that it was prepared for
	dead bool
}

func (g *made) ID() string { return g.id }

func (g *made) Discard() error { return g.by.log("discard " + g.id) }

// image is a key.
type image string

func (k image) Image() string { return string(k) }

// maker launches sandboxes, and notes what it is asked for, with the time since the last note.
type maker struct {
	mu       sync.Mutex
	want     int
	n        int
	calls    []string
	last     time.Time
	launch   error         // what a launch fails with
	prepare  error         // and a preparation
	launches chan struct{} // where not nil, a launch waits for it
}

func (m *maker) log(what string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if took := time.Since(m.last); took > 0 {
		what = fmt.Sprintf("%v: %s", took, what)
	}
	m.calls, m.last = append(m.calls, what), time.Now()
	return nil
}

// with changes it.
func (m *maker) with(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// said is what it was asked for since it was looked at last.
func (m *maker) said() (calls []string) {
	m.with(func() { calls, m.calls, m.last = m.calls, nil, time.Now() })
	return calls
}

func (m *maker) Ready() (n int) {
	m.with(func() { n = m.want })
	return n
}

func (m *maker) Launch(ctx context.Context, kind int) (*made, error) {
	var g *made
	var err error
	var wait chan struct{}
	m.with(func() {
		m.n++
		g, err, wait = &made{by: m, id: fmt.Sprintf("%d.%d", kind, m.n)}, m.launch, m.launches
	})
	_ = m.log("launch " + g.id)
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (m *maker) Prepare(_ context.Context, g *made, _ int, key image) (err error) {
	_ = m.log("prepare " + g.id + " for " + string(key))
	m.with(func() { g.key, err = key, m.prepare })
	return err
}

func (m *maker) Alive(g *made) (alive bool) {
	m.with(func() { alive = !g.dead })
	return alive
}

var errBroken = errors.New("broken")

// inAhead runs a test in a bubble, over two kinds of which two are to wait.
func inAhead(t *testing.T, f func(t *testing.T, m *maker, a *Ahead[*made, image])) {
	synctest.Test(t, func(t *testing.T) {
		m := &maker{want: 2, last: time.Now()}
		ctx, end := context.WithCancel(context.Background())
		defer end()
		a := NewAhead(ctx, 2, m, slog.New(slog.DiscardHandler))
		f(t, m, a)
		end()
		a.Close()
		if n := a.Ready(); n != 0 {
			t.Errorf("%d wait after the end", n)
		}
		m.said()
		a.Kind(0).Refill()
		testenv.Elapse(time.Hour)
		if calls := m.said(); len(calls) > 0 {
			t.Errorf("after the end: %q", calls)
		}
	})
}

// expect compares what was asked for.
func (m *maker) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := m.said(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// take takes one that there must be.
func take(t *testing.T, k *Kind[*made, image], key image) *made {
	t.Helper()
	g, ok := k.Take(key, key != "")
	if !ok {
		t.Fatalf("none for %q", key)
	}
	k.Settled()
	return g
}

// TestAheadRefill: nothing is launched before a create, then one at a time, 30 ms after the last create or launch, and
// all but one for what was asked for last.
func TestAheadRefill(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		testenv.Elapse(time.Hour)
		m.expect(t)
		k := a.Kind(1)
		if _, ok := k.Take("a", true); ok {
			t.Error("one where there is none")
		}
		k.Refill()
		testenv.Elapse(20 * time.Millisecond)
		k.Refill() // another create
		testenv.Elapse(20 * time.Millisecond)
		m.expect(t)
		testenv.Elapse(time.Second)
		m.expect(t, "10ms: launch 1.1", "30ms: launch 1.2", "prepare 1.2 for a")
		testenv.Elapse(time.Hour)
		m.expect(t)
		if n := a.Ready(); n != 2 {
			t.Errorf("%d wait", n)
		}
		m.with(func() { m.launches = make(chan struct{}) })
		take(t, k, "a")
		k.Refill()
		testenv.Elapse(time.Second)
		k.Refill() // while one is launched
		testenv.Elapse(time.Second)
		m.expect(t, "30ms: launch 1.3")
		m.with(func() { close(m.launches) })
		synctest.Wait()
		m.with(func() { m.launches = nil; m.calls = nil; m.want = 1 })
		k.Refill()
		testenv.Elapse(time.Second) // the configuration has changed
		m.expect(t, "30ms: discard 1.3")
	})
}

// TestAheadTake: who asks for the same gets what was prepared for that, others the oldest that was not; the dead are
// passed over, and what was prepared for something else goes when the same is asked for twice.
func TestAheadTake(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		m.want = 3
		k := a.Kind(0)
		k.Take("a", true)
		k.Refill()
		testenv.Elapse(time.Second) // 1 is not prepared, 2 and 3 are for a
		if g := take(t, k, "a"); g.id != "0.2" || g.key != "a" {
			t.Errorf("%+v", g)
		}
		if g := take(t, k, "b"); g.id != "0.1" {
			t.Errorf("%+v", g)
		}
		if _, ok := k.Take("", false); ok {
			t.Error("one that was prepared, for nothing of the kind")
		}
		if g := take(t, k, "a"); g.id != "0.3" {
			t.Errorf("%+v", g)
		}
		k.Refill()
		testenv.Elapse(time.Second) // 4, and 5 and 6 for a
		m.said()
		for _, e := range k.ready {
			e.made.dead = e.prepared
		}
		if g := take(t, k, "a"); g.id != "0.4" { // 5 and 6 are dead
			t.Errorf("%+v", g)
		}
		synctest.Wait()
		got := m.said()
		slices.Sort(got)
		if !slices.Equal(got, []string{"discard 0.5", "discard 0.6"}) {
			t.Errorf("%q", got)
		}
		k.Refill()
		testenv.Elapse(time.Second) // 7, and 8 and 9 for a
		m.said()
		take(t, k, "b")
		synctest.Wait()
		m.expect(t) // 8 and 9 stay for whoever takes turns
		if _, ok := k.Take("b", true); ok {
			t.Error("one that was prepared for a")
		}
		synctest.Wait()
		if n := len(m.said()); n != 2 || a.Ready() != 0 {
			t.Errorf("%d were discarded, %d wait", n, a.Ready())
		}
	})
}

// TestAheadFails: what cannot be launched is tried at the next create; what cannot be prepared goes, and the next stays
// as it is for a minute.
func TestAheadFails(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		k := a.Kind(0)
		m.launch = errBroken
		k.Take("a", true)
		k.Refill()
		testenv.Elapse(time.Hour)
		m.expect(t, "30ms: launch 0.1")
		m.with(func() { m.launch, m.prepare = nil, errBroken })
		k.Refill()
		testenv.Elapse(time.Second)
		m.expect(t, "30ms: launch 0.2", "30ms: launch 0.3", "prepare 0.3 for a", "discard 0.3", "30ms: launch 0.4")
		if n := a.Ready(); n != 2 {
			t.Errorf("%d wait", n)
		}
		m.with(func() { m.prepare = nil })
		take(t, k, "a")
		k.Refill()
		testenv.Elapse(time.Second)
		m.expect(t, "30ms: launch 0.5")
		testenv.Elapse(2 * time.Minute)
		m.said()
		take(t, k, "a")
		k.Refill()
		testenv.Elapse(time.Second)
		m.expect(t, "30ms: launch 0.6", "prepare 0.6 for a")
	})
}

// TestAheadExited: one that ends while it waits is replaced a second later; others are not its matter.
func TestAheadExited(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		a.Kind(0).Refill()
		testenv.Elapse(time.Minute)
		m.said()
		a.Exited("sb_other")
		testenv.Elapse(time.Minute)
		m.expect(t)
		a.Exited("0.1")
		a.Exited("0.1")
		testenv.Elapse(time.Minute)
		m.expect(t, "discard 0.1", "1s: launch 0.3")
		if n := a.Ready(); n != 2 {
			t.Errorf("%d wait", n)
		}
	})
}

// TestAheadClose: the end waits for what is being launched, and for what somebody has taken and not settled.
func TestAheadClose(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		k := a.Kind(0)
		k.Refill()
		testenv.Elapse(time.Second)
		g, _ := k.Take("", false)
		m.with(func() { m.launches = make(chan struct{}) })
		k.Refill()
		testenv.Elapse(time.Second) // 3 is being launched
		m.said()
		closed := make(chan struct{})
		go func() { a.Close(); close(closed) }()
		synctest.Wait()
		m.with(func() { close(m.launches) })
		synctest.Wait()
		m.expect(t, "discard 0.2", "discard 0.3")
		select {
		case <-closed:
			t.Error("the end does not wait for one that was taken")
		default:
		}
		k.Discard(g)
		k.Settled()
		<-closed
		m.expect(t, "discard 0.1")
		if k.Early() != nil {
			t.Error("one is launched after the end")
		}
	})
}

// TestEarly: one is launched beside something else, and is who wants it first; it ends when nobody does.
func TestEarly(t *testing.T) {
	inAhead(t, func(t *testing.T, m *maker, a *Ahead[*made, image]) {
		k := a.Kind(1)
		var none *Early[*made, image]
		if _, ok := none.Take(k); ok {
			t.Error("one of none")
		}
		none.Drop()
		e := k.Early()
		if g, ok := e.Take(a.Kind(0)); ok {
			t.Errorf("%+v is of another kind", g)
		}
		g, ok := e.Take(k)
		if !ok || g.id != "1.1" {
			t.Errorf("%+v", g)
		}
		k.Settled()
		if _, ok := e.Take(k); ok {
			t.Error("taken twice")
		}
		e.Drop()
		m.expect(t, "launch 1.1")
		e = k.Early()
		e.Drop()
		synctest.Wait()
		m.expect(t, "launch 1.2", "discard 1.2")
		m.with(func() { m.launch = errBroken })
		e = k.Early()
		if _, ok := e.Take(k); ok {
			t.Error("one that could not be launched")
		}
		e.Drop()
		m.with(func() { m.launch = nil })
		k.Refill()
		testenv.Elapse(time.Minute)
		m.said()
		if k.Early() != nil {
			t.Error("launched, where some wait")
		}
		for range 2 {
			take(t, k, "")
		}
		k.Early() // the end of all ends it
		synctest.Wait()
		m.expect(t, "launch 1.6")
	})
}
