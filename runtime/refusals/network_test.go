package refusals

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guard"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// noted is an event as it was sent.
type noted struct {
	id string
	api.DeniedEvent
}

type notes struct {
	all    []noted
	failed []api.FailedEvent
	other  []any
}

func (n *notes) Emit(_ api.EventKind, _, id string, data any) {
	if f, ok := data.(api.FailedEvent); ok {
		n.failed = append(n.failed, f)
		return
	}
	if d, ok := data.(api.DeniedEvent); ok {
		n.all = append(n.all, noted{id, d})
		return
	}
	n.other = append(n.other, data)
}

// fake is a sandbox, and the only one of its daemon.
type fake struct {
	*notes
	ledger   Ledger
	record   api.Sandbox
	dir      string
	early    bool
	guards   guard.Folders
	readOnly []ReadOnly
	audited  []api.AuditKind
}

func (f *fake) Listed(id string) (Sandbox, bool)            { return f, id == f.ID() }
func (f *fake) ID() string                                  { return "sb_1" }
func (f *fake) Dir() string                                 { return f.dir }
func (f *fake) Record() api.Sandbox                         { return f.record }
func (f *fake) Ledger() *Ledger                             { return &f.ledger }
func (f *fake) Attribute(api.Denial, uint64) string         { return "ex_1" }
func (f *fake) Caller(api.Denial, *guestapi.Refused) string { return "ex_2" }
func (f *fake) HoldEarly(guestapi.Refused) bool             { return f.early }
func (f *fake) Guards() guard.Folders                       { return f.guards }
func (f *fake) ReadOnly() []ReadOnly                        { return f.readOnly }
func (f *fake) Audit(kind api.AuditKind, _ string, _ any)   { f.audited = append(f.audited, kind) }

func (f *fake) Explain(_ string, nr uint32, _ [6]uint64) (call, why, how string, quiet bool) {
	return fmt.Sprintf("call%d", nr), "it is refused", "allow it", nr == 0
}

func refusing(t *testing.T) (*Refusals, *fake, *notes) {
	t.Helper()
	n := &notes{}
	f := &fake{notes: n}
	return New(Config{Sandboxes: f, Seccomp: f, Events: n, Log: slog.New(slog.DiscardHandler)}), f, n
}

func denied(name string) api.DeniedEvent {
	return api.DeniedEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: name, Port: 443}, Rule: "mode allow",
		Why: "no", HowToAllow: "--allow " + name}
}

// TestDeniedGone: what a sandbox is refused that is not there is told all the same.
func TestDeniedGone(t *testing.T) {
	m, s, n := refusing(t)
	m.Denied(s.ID(), denied("nobody.test"))
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
			m.Denied(s.ID(), denied("same.test"))
		}
		if len(n.all) != 1 {
			t.Fatalf("%d events for one thing", len(n.all))
		}
		testenv.Elapse(Pause)
		m.Denied(s.ID(), denied("same.test"))
		if last := n.all[len(n.all)-1]; len(n.all) != 2 || last.Count != 500 {
			t.Errorf("%d events, the last is %+v", len(n.all), last)
		}
		for i := range 5000 {
			m.Denied(s.ID(), denied(fmt.Sprintf("n%d.test", i)))
		}
		if len(n.all) > Burst+2+Rate {
			t.Errorf("%d events at once", len(n.all))
		}
		testenv.Elapse(time.Minute)
		m.Denied(s.ID(), denied("last.test"))
		var told int64
		for _, e := range n.all {
			told += e.Count + e.Untold
		}
		if told != 501+5001 {
			t.Errorf("events tell of %d refusals", told)
		}
		all, untold := s.ledger.Read()
		var kept int64
		for _, d := range all {
			kept += d.Count
		}
		if len(all) != MaxKept || kept+untold != 501+5001 {
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
		m.Denied(s.ID(), d)
	}
	all, _ := s.ledger.Read()
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
			m.Denied(s.ID(), api.DeniedEvent{NetTarget: api.NetTarget{Name: fmt.Sprintf("n%d.test", i)},
				Rule: "mode none", Why: "no"})
		}
		flood := len(n.all)
		m.Denied(s.ID(), denied("web.test"))
		m.Failed(s.ID(), api.FailedEvent{NetTarget: api.NetTarget{Proto: api.TCP, Name: "down.test", Port: 443},
			Why: "nothing listens", Hint: "start it"})
		if len(n.all) != flood+1 || len(n.failed) != 1 {
			t.Errorf("%d events of denials behind the flood, %d of failures", len(n.all)-flood, len(n.failed))
		}
		all, _ := s.ledger.Read()
		denials, failures := Part(all)
		if len(denials) != MaxKept+1 || len(failures) != 1 || !hasTarget(denials, "web.test:443") {
			t.Errorf("%d denials and %d failures are kept, the last is %+v", len(denials), len(failures),
				denials[len(denials)-1])
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
	m.Denied(s.ID(), denied("before.test"))
	if got := s.ledger.Wanted(); len(got) > 0 {
		t.Errorf("without mode learn: %v", got)
	}
	s.record.Network.Mode = api.NetLearn
	m.Passed(s.ID(), denied("a.test").NetTarget, "allow *")
	m.Passed(s.ID(), denied("a.test").NetTarget, "allow *")
	m.Passed("sb_gone", denied("x.test").NetTarget, "allow *")
	m.Denied(s.ID(), denied("b.test"))
	if err := appendLine(filepath.Join(s.dir, Learned), []byte(`{"name":"cut`)); err != nil {
		t.Fatal(err)
	}
	var next Ledger
	if err := next.Recall(s.dir); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Ledger{&s.ledger, &next} {
		got := []string{}
		for _, w := range l.Wanted() {
			got = append(got, w.Where())
		}
		if slices.Sort(got); fmt.Sprint(got) != "[a.test:443 b.test:443]" {
			t.Errorf("%v", got)
		}
	}
	for i := range 2 * MaxTargets { // lookups, which take no room
		m.Denied(s.ID(), api.DeniedEvent{NetTarget: api.NetTarget{Name: fmt.Sprintf("l%d.test", i)}, Rule: "record type"})
	}
	if got := s.ledger.Wanted(); len(got) != 2 {
		t.Errorf("%d are kept with lookups", len(got))
	}
	for i := range 2 * MaxTargets {
		m.Passed(s.ID(), api.NetTarget{Proto: api.TCP, Name: fmt.Sprintf("n%d.test", i), Port: 1}, "allow *")
	}
	if got := s.ledger.Wanted(); len(got) != MaxTargets {
		t.Errorf("%d are kept", len(got))
	}
}
