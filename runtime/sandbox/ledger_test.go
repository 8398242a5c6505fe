package sandbox

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// noted is an event as it was sent.
type noted struct {
	exec string
	api.DeniedEvent
}

type notes struct {
	all    []noted
	failed []api.FailedEvent
}

func (n *notes) Emit(_ api.EventKind, _, exec string, data any) {
	if f, ok := data.(api.FailedEvent); ok {
		n.failed = append(n.failed, f)
		return
	}
	n.all = append(n.all, noted{exec, data.(api.DeniedEvent)})
}

func refusing(t *testing.T) (*Manager, *Sandbox, *notes) {
	t.Helper()
	n := &notes{}
	m := NewManager(Config{Events: n})
	s := &Sandbox{id: "sb_1", execs: map[string]*running{}}
	m.byID[s.id] = s
	return m, s, n
}

func denied(name string) api.DeniedEvent {
	return api.DeniedEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: name, Port: 443}, Rule: "mode allow",
		Why: "no", HowToAllow: "--allow " + name}
}

// TestDeniedWhose: an exec is named only when it was alone, also before PID 1 has told
// that it runs.
func TestDeniedWhose(t *testing.T) {
	m, s, n := refusing(t)
	a, b := &running{id: "ex_a", s: s}, &running{id: "ex_b", s: s}
	m.Denied(s.id, denied("nobody.test"))
	s.launching(a)
	m.Denied(s.id, denied("early.test"))
	s.execs[a.id] = a
	s.launched(a)
	m.Denied(s.id, denied("alone.test"))
	s.execs[b.id] = b
	m.Denied(s.id, denied("shared.test"))
	delete(s.execs, a.id)
	m.Denied(s.id, denied("later.test"))
	m.Denied("sb_gone", denied("gone.test"))

	want := "[ nobody.test ex_a early.test ex_a alone.test  shared.test ex_b later.test  gone.test]"
	got := []string{}
	for _, e := range n.all {
		got = append(got, e.exec, e.Name)
	}
	if fmt.Sprint(got) != want {
		t.Errorf("events %v, want %s", got, want)
	}
	for r, want := range map[*running]string{a: "[ex_a early.test:443 ex_a alone.test:443  shared.test:443]",
		b: "[ shared.test:443 ex_b later.test:443]"} {
		got := []string{}
		for _, d := range r.takeRefused() {
			got = append(got, d.Exec, d.Target)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s was refused %v, want %s", r.id, got, want)
		}
	}
	if left := a.takeRefused(); len(left) > 0 {
		t.Errorf("taken twice: %v", left)
	}
}

// TestDeniedFlood: who is refused without end, the same or ever other things, fills
// neither memory nor the log of events, and nothing goes uncounted.
func TestDeniedFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, n := refusing(t)
		r := &running{id: "ex_a", s: s}
		s.execs[r.id] = r
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
		if got := r.takeRefused(); len(got) != refusals.MaxOfExec || got[0].Count != 501 {
			t.Errorf("the exec has %d, the first %+v", len(got), got[0])
		}
	})
}

// TestReasonsApart: what is refused for two reasons is told twice, each with its own remedy.
func TestReasonsApart(t *testing.T) {
	m, s, n := refusing(t)
	r := &running{id: "ex_a", s: s}
	s.execs[r.id] = r
	for _, why := range []string{"no server name", "asks for other.test", "no server name"} {
		d := denied("web.test")
		d.Why, d.HowToAllow = why, "allow what "+why
		m.Denied(s.id, d)
	}
	all, _ := s.seen.Read()
	for where, list := range map[string][]api.Denial{"why": all, "result": r.takeRefused()} {
		got := map[string]int64{}
		for _, d := range list {
			got[d.Why+": "+d.HowToAllow] = d.Count
		}
		if len(got) != 2 || got["no server name: allow what no server name"] != 2 ||
			got["asks for other.test: allow what asks for other.test"] != 1 {
			t.Errorf("%s: %v", where, got)
		}
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
		r := &running{id: "ex_a", s: s}
		s.execs[r.id] = r
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
		refused, failed := part(r.takeRefused())
		if last := kept.Denials[len(kept.Denials)-1]; len(kept.Denials) != refusals.MaxKept+1 ||
			len(kept.Failures) != 1 ||
			!hasTarget(kept.Denials, "web.test:443") {
			t.Errorf("%d denials and %d failures are kept, the last is %+v", len(kept.Denials),
				len(kept.Failures), last)
		}
		if len(refused) != refusals.MaxOfExec+1 || !hasTarget(refused, "web.test:443") {
			t.Errorf("the result has %d denials", len(refused))
		}
		if len(failed) != 1 || failed[0].Text() != "down.test:443 failed: nothing listens (start it)" ||
			failed[0].Exec != r.id || failed[0].Count != 1 {
			t.Errorf("the result has the failures %+v", failed)
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
