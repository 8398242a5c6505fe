package refusals

import (
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestProbe: what programs try by themselves is known, and nothing beside it.
func TestProbe(t *testing.T) {
	for target, want := range map[api.NetTarget]bool{
		{Name: "update.googleapis.com"}:                              true,
		{Name: "Update.GoogleAPIs.com", Proto: api.TCP, Port: 443}:   true,
		{Proto: api.UDP, Address: "2001:4860:4860::8888", Port: 443}: true,
		{Proto: api.UDP, Address: "::ffff:8.8.8.8", Port: 443}:       true,
		{Proto: api.TCP, Address: "8.8.8.8", Port: 443}:              false,
		{Proto: api.UDP, Address: "8.8.8.8", Port: 53}:               false,
		{Proto: api.UDP, Address: "192.0.2.1", Port: 443}:            false,
		{Name: "x.update.googleapis.com"}:                            false, // may carry data
		{Name: "googleapis.com"}:                                     false,
		{Name: "update.googleapis.com.test"}:                         false,
		{}:                                                           false,
	} {
		if got := probe(&target); got != want {
			t.Errorf("%+v: %v", target, got)
		}
	}
}

// TestProbesKept: probes are on record and in events as such.
func TestProbesKept(t *testing.T) {
	r, s, n := refusing(t)
	r.Denied("sb_1", api.DeniedEvent{NetTarget: api.NetTarget{Name: "update.googleapis.com"}})
	r.Denied("sb_1", api.DeniedEvent{NetTarget: api.NetTarget{Name: "a.test"}})
	all, _ := s.ledger.Read()
	if len(all) != 2 || len(n.all) != 2 {
		t.Fatalf("%+v, %+v", all, n.all)
	}
	for _, d := range all {
		if d.Probe != (d.Name != "a.test") {
			t.Errorf("%+v", d)
		}
	}
	if !n.all[0].Probe || n.all[1].Probe {
		t.Errorf("%+v", n.all)
	}
}

// TestAdvise: what is refused for the third time is worth a paragraph, once for each kind; a probe never is.
func TestAdvise(t *testing.T) {
	var l Ledger
	enter := func(d api.Denial) string {
		l.Enter(d, 0, func(int64, int64) {})
		return l.Advise([]api.Denial{d})
	}
	a, b := denial("a.test"), denial("b.test")
	call := api.Denial{Kind: api.KindSyscall, Target: "mount", Count: 3}
	mute := denial("p.test")
	mute.Probe, mute.Count = true, 9
	for i, c := range []struct {
		d    api.Denial
		want string
	}{{mute, ""}, {a, ""}, {b, ""}, {a, ""}, {a, api.KindNet}, {a, ""}, {b, ""}, {b, ""}, {call, api.KindSyscall},
		{call, ""}} {
		if got := enter(c.d); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	if got := l.Advise(nil); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
