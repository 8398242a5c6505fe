package sandbox

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// noted is an event as it was sent.
type noted struct {
	id string
	api.DeniedEvent
}

type notes struct {
	all    []noted
	failed []api.FailedEvent
}

func (n *notes) Emit(_ api.EventKind, _, id string, data any) {
	if f, ok := data.(api.FailedEvent); ok {
		n.failed = append(n.failed, f)
		return
	}
	n.all = append(n.all, noted{id, data.(api.DeniedEvent)})
}

func refusing(t *testing.T) (*Manager, *Sandbox, *notes) {
	t.Helper()
	n := &notes{}
	m := NewManager(Config{Events: n})
	s := &Sandbox{id: "sb_1", execs: exec.NewSet(exec.ClockState{})}
	m.byID[s.id] = s
	return m, s, n
}

func denied(name string) api.DeniedEvent {
	return api.DeniedEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: name, Port: 443}, Rule: "mode allow",
		Why: "no", HowToAllow: "--allow " + name}
}

// TestDeniedGone: what a sandbox is refused that is not there is told all the same.
func TestDeniedGone(t *testing.T) {
	m, s, n := refusing(t)
	m.Denied(s.id, denied("nobody.test"))
	m.Denied("sb_gone", denied("gone.test"))
	if len(n.all) != 2 || n.all[0].Name != "nobody.test" || n.all[1].Name != "gone.test" {
		t.Errorf("events %+v", n.all)
	}
}

// TestDeniedFlood: who is refused without end, the same or ever other things, fills
// neither memory nor the log of events, and nothing goes uncounted.
func TestDeniedFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, n := refusing(t)
		for range 500 {
			m.Denied(s.id, denied("same.test"))
		}
		if len(n.all) != 1 {
			t.Fatalf("%d events for one thing", len(n.all))
		}
		testenv.Elapse(refusals.Pause)
		m.Denied(s.id, denied("same.test"))
		if last := n.all[len(n.all)-1]; len(n.all) != 2 || last.Count != 500 {
			t.Errorf("%d events, the last is %+v", len(n.all), last)
		}
		for i := range 5000 {
			m.Denied(s.id, denied(fmt.Sprintf("n%d.test", i)))
		}
		if len(n.all) > refusals.Burst+2+refusals.Rate {
			t.Errorf("%d events at once", len(n.all))
		}
		testenv.Elapse(time.Minute)
		m.Denied(s.id, denied("last.test"))
		var told int64
		for _, e := range n.all {
			told += e.Count + e.Untold
		}
		if told != 501+5001 {
			t.Errorf("events tell of %d refusals", told)
		}
		all, untold := s.seen.Read()
		var kept int64
		for _, d := range all {
			kept += d.Count
		}
		if len(all) != refusals.MaxKept || kept+untold != 501+5001 {
			t.Errorf("%d kept with %d refusals, %d untold", len(all), kept, untold)
		}
	})
}

// TestReasonsApart: what is refused for two reasons is told twice, each with its own remedy.
func TestReasonsApart(t *testing.T) {
	m, s, n := refusing(t)
	for _, why := range []string{"no server name", "asks for other.test", "no server name"} {
		d := denied("web.test")
		d.Why, d.HowToAllow = why, "allow what "+why
		m.Denied(s.id, d)
	}
	all, _ := s.seen.Read()
	got := map[string]int64{}
	for _, d := range all {
		got[d.Why+": "+d.HowToAllow] = d.Count
	}
	if len(got) != 2 || got["no server name: allow what no server name"] != 2 ||
		got["asks for other.test: allow what asks for other.test"] != 1 {
		t.Errorf("%v", got)
	}
	if len(n.all) != 2 {
		t.Errorf("events %+v", n.all)
	}
}

// TestLookupFlood: who looks up names without end hides nothing else: neither in what is kept, nor in the result, nor
// in the events.
func TestLookupFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, n := refusing(t)
		for i := range 5000 {
			m.Denied(s.id, api.DeniedEvent{NetTarget: api.NetTarget{Name: fmt.Sprintf("n%d.test", i)},
				Rule: "mode none", Why: "no"})
		}
		flood := len(n.all)
		m.Denied(s.id, denied("web.test"))
		m.Failed(s.id, api.FailedEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: "down.test", Port: 443},
			Why: "nothing listens", Hint: "start it"})
		if len(n.all) != flood+1 || len(n.failed) != 1 {
			t.Errorf("%d events of denials behind the flood, %d of failures", len(n.all)-flood, len(n.failed))
		}
		kept := s.network()
		if last := kept.Denials[len(kept.Denials)-1]; len(kept.Denials) != refusals.MaxKept+1 ||
			len(kept.Failures) != 1 ||
			!hasTarget(kept.Denials, "web.test:443") {
			t.Errorf("%d denials and %d failures are kept, the last is %+v", len(kept.Denials),
				len(kept.Failures), last)
		}
	})
}

func hasTarget(list []api.Denial, target string) bool {
	return slices.ContainsFunc(list, func(d api.Denial) bool { return d.Target == target })
}

// TestWanted: mode learn learns from what passed and from what did not, also after the
// death of hutchd, and other modes keep nothing.
func TestWanted(t *testing.T) {
	m, s, _ := refusing(t)
	s.dir = t.TempDir()
	m.Denied(s.id, denied("before.test"))
	if got := s.seen.Wanted(); len(got) > 0 {
		t.Errorf("without mode learn: %v", got)
	}
	s.record.Network.Mode = api.NetLearn
	m.Passed(s.id, denied("a.test").NetTarget, "allow *")
	m.Passed(s.id, denied("a.test").NetTarget, "allow *")
	m.Passed("sb_gone", denied("x.test").NetTarget, "allow *")
	m.Denied(s.id, denied("b.test"))
	if err := appendLine(s.wantedFile(), []byte(`{"name":"cut`)); err != nil {
		t.Fatal(err)
	}
	var next refusals.Ledger
	if err := next.Recall(s.wantedFile()); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*refusals.Ledger{&s.seen, &next} {
		got := []string{}
		for _, w := range l.Wanted() {
			got = append(got, w.Where())
		}
		if slices.Sort(got); fmt.Sprint(got) != "[a.test:443 b.test:443]" {
			t.Errorf("%v", got)
		}
	}
	for i := range 2 * refusals.MaxTargets { // lookups, which take no room
		m.Denied(s.id, api.DeniedEvent{NetTarget: api.NetTarget{Name: fmt.Sprintf("l%d.test", i)}, Rule: "record type"})
	}
	if got := s.seen.Wanted(); len(got) != 2 {
		t.Errorf("%d are kept with lookups", len(got))
	}
	for i := range 2 * refusals.MaxTargets {
		m.Passed(s.id, api.NetTarget{Proto: api.TCP, Name: fmt.Sprintf("n%d.test", i), Port: 1}, "allow *")
	}
	if got := s.seen.Wanted(); len(got) != refusals.MaxTargets {
		t.Errorf("%d are kept", len(got))
	}
}
