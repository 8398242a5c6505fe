package admission

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

var errInjected = errors.New("injected")

// box is a sandbox, and all that is around it. What is done with it is in did.
type box struct {
	gate   *Gate
	groups bool
	below  []int // PID 1's descendants
	gone   bool  // it is not here any more
	busy   bool

	mu        sync.Mutex // guards what follows
	record    api.Sandbox
	fails     map[string]error
	did       []string
	reclaimed func(int64)
	events    []api.EventKind
}

func newBox() (*Pauses, *box) {
	b := &box{gate: NewGate(), groups: true, below: []int{2}, fails: map[string]error{}}
	b.record.State = api.Running
	return New(context.Background(), Config{Sandboxes: b, Cgroups: b, Events: b}), b
}

// do notes a call, and is what it fails with.
func (b *box) do(call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.did = append(b.did, call)
	return b.fails[call]
}

// took are the calls since it was asked last.
func (b *box) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	did := b.did
	b.did = nil
	return did
}

func (b *box) Find(string) (Sandbox, error) { return b, b.fails["find"] }
func (b *box) ID() string                   { return "sb_1" }
func (b *box) Gate() *Gate                  { return b.gate }
func (b *box) State() api.State             { return b.Record().State }
func (b *box) Here() bool                   { return !b.gone }
func (b *box) Idle() bool                   { return !b.busy }
func (b *box) StopIdle()                    {}
func (b *box) RearmIdle()                   {}
func (b *box) Entered()                     { _ = b.do("entered") }
func (b *box) Clock() Clock                 { return clock{b} }
func (b *box) Cgroup() (string, bool)       { return "g", b.groups }
func (b *box) Init() Init                   { return pid1{b} }
func (b *box) Moves() Moves                 { return moves{b} }
func (b *box) Workers() int                 { return 0 }
func (b *box) EndWorkers()                  { _ = b.do("end workers") }
func (b *box) Descendants() ([]int, bool)   { return b.below, true }
func (b *box) IDs() []int                   { return []int{1, 2} }
func (b *box) Save()                        { _ = b.do("save") }

func (b *box) Record() api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record
}

func (b *box) MustRun() error {
	if s := b.State(); s != api.Running {
		return api.Errorf(api.FailedPrecondition, "it is %s", s)
	}
	return nil
}

func (b *box) Transition(to api.State, _ string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.record.State; s != api.Running && s != api.Paused {
		return false
	}
	b.record.State = to
	return true
}

func (b *box) SetPause(p *api.Pause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record.Paused = p
}

func (b *box) SaveAs(to api.State) error { return b.do("save as " + string(to)) }

func (b *box) NoteReclaimed(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.record.Paused == nil {
		return false
	}
	b.record.Paused = &api.Pause{By: b.record.Paused.By, ReclaimedBytes: &bytes}
	return true
}

func (b *box) Freeze(context.Context, string) error { return b.do("freeze") }
func (b *box) Thaw(string) error                    { return b.do("thaw") }

func (b *box) Reclaim(_ string, told func(int64)) func() {
	_ = b.do("reclaim")
	b.reclaimed = told
	return func() { _ = b.do("stop reclaim") }
}

func (b *box) Emit(kind api.EventKind, _, _ string, _ any) { b.events = append(b.events, kind) }

type clock struct{ b *box }

func (c clock) Stop(time.Time) { _ = c.b.do("stop clock") }
func (c clock) GoOn(time.Time) { _ = c.b.do("start clock") }

type pid1 struct{ b *box }

func (p pid1) Stop(context.Context) error { return p.b.do("stop") }
func (p pid1) GoOn(context.Context) error { return p.b.do("go on") }

type moves struct{ b *box }

func (m moves) Hold(context.Context) error    { return m.b.do("hold") }
func (m moves) Release(context.Context) error { return m.b.do("release") }
func (m moves) Why(err error) error           { return err }

func (m moves) While(_ context.Context, use func() error) error {
	return errors.Join(m.b.do("while"), use())
}

func expect(t *testing.T, b *box, what string, want ...string) {
	t.Helper()
	if did := b.took(); !slices.Equal(did, want) {
		t.Errorf("%s: %q, want %q", what, did, want)
	}
}

// TestPause: a pause is on record before anything stands still; memory is taken back until it ends, which is when
// somebody enters.
func TestPause(t *testing.T) {
	p, b := newBox()
	if r, err := p.Pause(t.Context(), "sb_1"); err != nil || r.State != api.Paused || r.Paused.By != api.PauseFreezer {
		t.Errorf("%+v, %v", r, err)
	}
	expect(t, b, "pause", "end workers", "stop clock", "save as paused", "freeze", "hold", "reclaim")
	b.reclaimed(9)
	if r := b.Record(); *r.Paused.ReclaimedBytes != 9 || !slices.Equal(b.events, []api.EventKind{api.EventReclaimed}) {
		t.Errorf("%+v, events %v", r.Paused, b.events)
	}
	if _, err := p.Pause(t.Context(), "sb_1"); err != nil {
		t.Error(err)
	}
	expect(t, b, "what was taken back", "save")
	leave, err := p.Enter(t.Context(), b)
	if err != nil || b.Record().Paused != nil {
		t.Fatalf("%v, %+v", err, b.Record().Paused)
	}
	expect(t, b, "enter", "stop reclaim", "release", "thaw", "start clock", "save", "entered")
	leave()
	leave()
	b.reclaimed(10) // too late
	if len(b.events) != 1 {
		t.Errorf("events %v", b.events)
	}
	b.busy = true
	if _, err := p.PauseFor(t.Context(), b, "idle", true); err != nil || b.State() != api.Running {
		t.Errorf("a busy one: %v", err)
	}
	b.busy, b.groups = false, false
	if r, err := p.Pause(t.Context(), "sb_1"); err != nil || r.Paused.By != api.PauseSignal {
		t.Errorf("%+v, %v", r, err)
	}
	expect(t, b, "by signals", "end workers", "stop clock", "save as paused", "stop", "hold", "reclaim")
	b.gate.End()
	b.Transition(api.Stopped, "killed")
	p.Reclaim(b)
	b.Transition(api.Paused, "")
	p.Reclaim(b)
	expect(t, b, "of one that goes", "stop reclaim")
	b.Transition(api.Stopped, "")
	if _, err := p.Enter(t.Context(), b); api.ErrorCode(err) != api.FailedPrecondition {
		t.Error(err)
	}
}

// TestPauseFails: a pause that cannot be noted, or in which something does not stand still, has not been.
func TestPauseFails(t *testing.T) {
	for call, want := range map[string]api.Code{"save as paused": api.Internal, "freeze": api.Unavailable,
		"hold": api.Internal} {
		p, b := newBox()
		b.fails[call] = errInjected
		if _, err := p.Pause(t.Context(), "sb_1"); api.ErrorCode(err) != want {
			t.Errorf("%s: %v", call, err)
		}
		if b.State() != api.Running || b.Record().Paused != nil || !slices.Contains(b.took(), "thaw") {
			t.Errorf("%s: %+v", call, b.Record())
		}
	}
	p, b := newBox()
	b.fails["thaw"] = errInjected
	if err := p.Quiesce(t.Context(), b, func([]int) error { return nil }); api.ErrorCode(err) != api.Internal {
		t.Error(err)
	}
	b.Transition(api.Paused, "")
	if _, err := p.Resume(t.Context(), "sb_1"); api.ErrorCode(err) != api.Internal {
		t.Error(err)
	}
	b.fails["find"] = errInjected
	_, perr := p.Pause(t.Context(), "sb_2")
	_, rerr := p.Resume(t.Context(), "sb_2")
	if perr == nil || rerr == nil || p.Wake("sb_2") != nil {
		t.Error("of no sandbox")
	}
}

// TestPauseWaits: a pause waits for who is in, for so long; who comes meanwhile resumes the sandbox.
func TestPauseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b := newBox()
		leave, err := p.Enter(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Pause(t.Context(), "sb_1"); api.ErrorCode(err) != api.Unavailable {
			t.Errorf("with somebody in: %v", err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := p.Pause(t.Context(), "sb_1"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			late, err := p.Enter(t.Context(), b)
			if err != nil {
				t.Error(err)
				return
			}
			late()
		})
		synctest.Wait()
		leave()
		all.Wait()
		if b.State() != api.Running {
			t.Errorf("it is %s", b.State())
		}
	})
}

// TestStill: files are looked at while nothing runs, and a sandbox goes on as it was.
func TestStill(t *testing.T) {
	p, b := newBox()
	look := func() error { return b.do("look") }
	if err := p.Still(t.Context(), b, "commit", look); err != nil || b.State() != api.Running {
		t.Error(err)
	}
	expect(t, b, "of one that runs", "end workers", "stop clock", "save as paused", "freeze", "hold", "look",
		"release", "thaw", "start clock", "save")
	b.Transition(api.Paused, "")
	if err := p.Still(t.Context(), b, "commit", look); err != nil || b.State() != api.Paused {
		t.Error(err)
	}
	expect(t, b, "of a paused one", "look")
	b.gone = true
	if err := p.Still(t.Context(), b, "commit", look); api.ErrorCode(err) != api.Unavailable {
		t.Error(err)
	}
}

// TestQuiesce: files are looked at while nothing writes, of which nothing is told; where there is nothing to stop, only
// PID 1's moves are.
func TestQuiesce(t *testing.T) {
	p, b := newBox()
	var standing []int
	look := func(s []int) error { standing = s; return b.do("look") }
	quiesce := func(what string, ids []int, want ...string) {
		t.Helper()
		if err := p.Quiesce(t.Context(), b, look); err != nil || !slices.Equal(standing, ids) {
			t.Errorf("%s: %v, %v stand still", what, err, standing)
		}
		expect(t, b, what, want...)
	}
	quiesce("with processes", []int{2}, "stop clock", "save as paused", "freeze", "hold", "look", "release", "thaw",
		"start clock", "save")
	b.below = nil
	quiesce("without", nil, "while", "look")
	b.Transition(api.Paused, "")
	quiesce("of a paused one", []int{1, 2}, "look")
	b.Transition(api.Failed, "")
	quiesce("of one that has ended", nil, "look")
}

// TestRepause: a hutchd that takes over stops again what was paused, and goes on taking back. Who connects wakes it.
func TestRepause(t *testing.T) {
	p, b := newBox()
	if p.Wake("sb_1") != nil {
		t.Error("one that runs is woken")
	}
	b.record.State, b.record.Paused = api.Paused, &api.Pause{}
	if err := p.Repause(t.Context(), b); err != nil {
		t.Error(err)
	}
	expect(t, b, "repause", "freeze", "hold", "reclaim")
	b.NoteReclaimed(0)
	if err := p.Repause(t.Context(), b); err != nil {
		t.Error(err)
	}
	expect(t, b, "of which all is taken back", "freeze", "hold")
	if wake := p.Wake("sb_1"); wake == nil || wake() != nil || b.State() != api.Running {
		t.Error("it was not woken")
	}
	b.fails["freeze"] = errInjected
	if err := p.Repause(t.Context(), b); err == nil {
		t.Error("no error")
	}
}
