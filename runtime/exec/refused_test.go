package exec

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec/stdio"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// bareExec is a command of which there is nothing but what the test gives it.
func bareExec(id string) *Exec {
	s := &fakePlace{set: NewSet(ClockState{})}
	return s.exec(id)
}

// fakePlace is a sandbox of which there is little, and its PID 1.
type fakePlace struct {
	Sandbox
	set       *Set
	pids      map[uint64]int
	late      []time.Time
	routeless []int64
	told      []int // sessions of what TellRefused was told
	group     bool

	unrouted, v4 int64
}

func (s *fakePlace) ID() string                 { return "sb_1" }
func (s *fakePlace) Commands() *Set             { return s.set }
func (s *fakePlace) Init() Init                 { return pid1{pids: s.pids} }
func (s *fakePlace) Cgroup() (string, bool)     { return "/hutch/sb_1", s.group }
func (s *fakePlace) SettleRefused()             {}
func (s *fakePlace) Unrouted() (all, v4 int64)  { return s.unrouted, s.v4 }
func (s *fakePlace) Policy([]api.Denial) string { return "" }
func (s *fakePlace) TellLate(at time.Time, n int64) {
	s.late, s.routeless = append(s.late, at), append(s.routeless, n)
}
func (s *fakePlace) Hint(int, ...string) string     { return "" }
func (s *fakePlace) BeginCall()                     {}
func (s *fakePlace) Started()                       {}
func (s *fakePlace) Here() bool                     { return true }
func (s *fakePlace) TellRefused(r guestapi.Refused) { s.told = append(s.told, r.Session) }

func (s *fakePlace) exec(id string) *Exec {
	return &Exec{id: id, s: s, set: s.set, io: &stdio.IO{}, done: make(chan struct{}), forgotten: make(chan struct{})}
}

// pid1 is a PID 1 of which the test says what it has told.
type pid1 struct {
	Init
	pids map[uint64]int
}

func (p pid1) PIDOf(id uint64) int { return p.pids[id] }

// numbers are cgroups whose numbers are their names' lengths.
type numbers struct{ Cgroups }

func (numbers) Number(_, exec string) uint64 { return uint64(len(exec)) }

func denied(name string) api.Denial {
	return api.Denial{Kind: api.KindNet, Target: name, Why: "no", Count: 1}
}

// TestAttribute: an exec is named only when it was alone, also before PID 1 has told that it runs, or by its cgroup.
// Each that may have been meant has it in its result, once.
func TestAttribute(t *testing.T) {
	s := &fakePlace{set: NewSet(ClockState{}), group: true}
	m := New(Config{Cgroups: numbers{}})
	a, b := s.exec("ex_a"), s.exec("ex_b")
	b.group.Name = "four"
	got := []string{}
	note := func(name string, cgroup uint64) { got = append(got, m.Attribute(s, denied(name), cgroup)) }
	note("nobody", 0)
	s.set.launching(a)
	note("early", 0)
	s.set.add(a)
	note("alone", 0)
	s.set.add(b)
	note("shared", 0)
	note("by its cgroup", 4)
	note("of what was left behind", 7)
	s.set.end(a)
	note("later", 0)
	if want := "[ ex_a ex_a  ex_b  ex_b]"; fmt.Sprint(got) != want {
		t.Errorf("%q, want %q", fmt.Sprint(got), want)
	}
	for r, want := range map[*Exec]string{a: "[early alone shared of what was left behind]",
		b: "[shared by its cgroup of what was left behind later]"} {
		got := []string{}
		for _, d := range r.TakeRefused() {
			got = append(got, d.Target)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s was refused %v, want %s", r.id, got, want)
		}
		if left := r.TakeRefused(); len(left) > 0 {
			t.Errorf("taken twice: %v", left)
		}
	}
}

// TestAttributeFlood: who is refused without end has a bounded result, in which what is the same is counted, and
// failures are apart.
func TestAttributeFlood(t *testing.T) {
	s := &fakePlace{set: NewSet(ClockState{})}
	m := New(Config{Cgroups: numbers{}})
	r := s.exec("ex_a")
	s.set.add(r)
	for range 500 {
		m.Attribute(s, denied("same"), 0)
	}
	for i := range 5000 {
		m.Attribute(s, denied(fmt.Sprint(i)), 0)
	}
	failed := denied("down")
	failed.Kind = refusals.Failed
	all := r.TakeRefused()
	if len(all) != refusals.MaxOfExec || all[0].Count != 500 {
		t.Errorf("%d are kept, the first %+v", len(all), all[0])
	}
	m.Attribute(s, failed, 0)
	refused, failures := refusals.Part(r.TakeRefused())
	if len(refused) != 0 || refused == nil || len(failures) != 1 || failures[0].Exec != r.id {
		t.Errorf("%+v, %+v", refused, failures)
	}
}

// TestHoldEarly: what a command is refused before PID 1 says that it runs is the command's own, also beside others
// that start, and what nobody has started is reported as nobody's.
func TestHoldEarly(t *testing.T) {
	s := &fakePlace{set: NewSet(ClockState{}), pids: map[uint64]int{}}
	m := New(Config{})
	a, b, c := s.exec("ex_a"), s.exec("ex_b"), s.exec("ex_c")
	for i, r := range []*Exec{a, b, c} {
		r.guest = uint64(i + 1)
		s.set.launching(r)
	}
	refuse := func(session int) string {
		r := guestapi.Refused{Session: session}
		if s.set.HoldEarly(s.Init(), r) {
			return "held"
		}
		return s.set.Caller(s.Init(), denied(fmt.Sprint(session)), &r)
	}
	s.pids[b.guest] = 8
	for session, want := range map[int]string{7: "held", 9: "held", 8: "ex_b", 0: ""} {
		if got := refuse(session); got != want {
			t.Errorf("of session %d: %q, want %q", session, got, want)
		}
	}
	a.leader = over{pid: 7}
	m.add(a)
	if len(s.told) != 2 || len(s.set.early) > 0 {
		t.Errorf("told %v, still held %v", s.told, s.set.early)
	}
	if got := refuse(7); got != "ex_a" {
		t.Errorf("%q", got)
	}
	s.set.launched(c)
	s.set.launched(b)
	if got := refuse(9); got != "ex_a" { // it has a session of its own, and nobody else is there
		t.Errorf("%q", got)
	}
}

// TestLookSince: who fails is told about what came since it began and since another one ended, and of nothing twice.
func TestLookSince(t *testing.T) {
	at := func(s, n int64) look { return look{at: time.Unix(s, 0), unrouted: n} }
	for _, c := range []struct{ begun, looked, now, from look }{
		{at(1, 0), look{}, at(9, 2), at(1, 0)},     // alone
		{at(5, 4), at(3, 2), at(9, 4), at(5, 4)},   // behind one that has ended
		{at(1, 0), at(3, 2), at(9, 4), at(3, 2)},   // beside it
		{at(1, 0), at(10, 5), at(9, 4), at(10, 5)}, // has read the counter before another one that was told about more
		{at(1, 6), at(3, 2), at(9, 0), at(3, 6)},   // the namespace is gone
	} {
		if from := c.begun.later(c.looked); from != c.from {
			t.Errorf("%v behind %v: from %v, want %v", c.begun, c.looked, from, c.from)
		}
		if next := c.now.later(c.looked); next.at.Before(c.looked.at) || next.unrouted < c.looked.unrouted {
			t.Errorf("%v behind %v goes back to %v", c.now, c.looked, next)
		}
	}
	if d := (api.NetTarget{}).Where(); d != "an address" {
		t.Errorf("an unknown target is %q", d)
	}
}

// TestLookWhy: a command that fails is not told about what came before it, nor before the end of one beside it that has
// succeeded.
func TestLookWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakePlace{set: NewSet(ClockState{})}
		begin := func() (*Exec, time.Time) {
			testenv.Elapse(time.Second)
			r := s.exec("ex")
			r.beginLook()
			return r, time.Now()
		}
		end := func(r *Exec, failed bool) time.Time {
			testenv.Elapse(time.Second)
			r.LookWhy(failed)
			return time.Now()
		}
		long, _ := begin()
		short, _ := begin()
		long.company, short.company = true, true // as listing does
		succeeded := end(short, false)
		end(long, true)
		next, begun := begin()
		end(next, true)
		if len(s.late) != 2 || !s.late[0].Equal(succeeded) || !s.late[1].Equal(begun) {
			t.Errorf("asked since %v, want %v and %v", s.late, succeeded, begun)
		}
	})
}

// TestLookExplained: to a model IPv4 addresses without a route are reported also after what has ended well: to nobody
// else, no IPv6 ones, and nothing that somebody beside it may have tried.
func TestLookExplained(t *testing.T) {
	for what, c := range map[string]struct {
		change       func(*Exec)
		all, v4      int64
		want, failed int64
	}{
		"a model":        {func(r *Exec) { r.explained = true }, 5, 2, 2, 5},
		"an interpreter": {func(r *Exec) { r.kept = "py" }, 5, 2, 2, 5},
		"IPv6":           {func(r *Exec) { r.explained = true }, 3, 0, 0, 3},
		"somebody else":  {func(*Exec) {}, 5, 2, 0, 5},
		"beside others":  {func(r *Exec) { r.explained, r.company = true, true }, 5, 2, 0, 5},
	} {
		for _, failed := range []bool{false, true} {
			s := &fakePlace{set: NewSet(ClockState{})}
			r := s.exec("ex")
			c.change(r)
			r.beginLook()
			s.unrouted, s.v4 = c.all, c.v4
			r.LookWhy(failed)
			want, got := c.want, int64(0)
			if failed {
				want = c.failed
			}
			for _, n := range s.routeless {
				got += n
			}
			if got != want {
				t.Errorf("%s, failed %v: reported %d, want %d", what, failed, got, want)
			}
		}
	}
}
