package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// world is a sandbox, and all that is around it. What it does is in did.
type world struct {
	record   api.Sandbox
	dir      string
	ledger   refusals.Ledger
	narrowed Set
	none     bool  // mode none
	fails    error // of Network.Update
	full     error // of Note
	groups   map[string]uint64
	did      []string
}

func (w *world) do(format string, args ...any) { w.did = append(w.did, fmt.Sprintf(format, args...)) }

func (w *world) Find(ref string) (Sandbox, error) {
	if ref != w.ID() {
		return nil, api.Errorf(api.NotFound, "no sandbox %q", ref)
	}
	return w, nil
}

func (w *world) Living(ref string) (Sandbox, error) { return w.Find(ref) }
func (w *world) ID() string                         { return "sb_1" }
func (w *world) Dir() string                        { return w.dir }
func (w *world) Record() api.Sandbox                { return w.record }
func (w *world) Ledger() *refusals.Ledger           { return &w.ledger }
func (w *world) Narrowed() *Set                     { return &w.narrowed }
func (w *world) Cgroup() (string, bool)             { return "g", w.groups != nil }
func (w *world) Enforced() Enforced                 { return w }

func (w *world) Network() Network {
	if w.none {
		return nil
	}
	return w
}

func (w *world) Change() func() {
	w.do("turn")
	return func() { w.do("done") }
}

func (w *world) Note(p api.NetPolicy) error {
	w.do("note %v", p.Allow)
	if w.full != nil {
		err := w.full
		w.full = nil
		return err
	}
	w.record.Network.NetPolicy = p
	return nil
}

func (w *world) Tell(_ context.Context, p api.NetPolicy)    { w.do("tell %v", p.Allow) }
func (w *world) Check(api.NetPolicy) error                  { return nil }
func (w *world) CheckNarrower(_, _ api.NetPolicy) error     { return nil }
func (w *world) Number(_, exec string) uint64               { return w.groups[exec] }
func (w *world) Uses() []api.NetUse                         { return []api.NetUse{{Rule: "b"}, {Rule: "a"}} }
func (w *world) Narrow(group uint64, _ api.NetPolicy) error { w.do("narrow %d", group); return nil }
func (w *world) Widen(group uint64) error                   { w.do("widen %d", group); return nil }

func (w *world) Update(p api.NetPolicy) error {
	w.do("update %v", p.Allow)
	return w.fails
}

func newWorld(t *testing.T) (*Egress, *world) {
	t.Helper()
	w := &world{dir: t.TempDir()}
	w.record.Network.NetPolicy = api.NetPolicy{Mode: api.NetAllow, Allow: []string{"old.test"}}
	write := func(path string, v any) error {
		data, err := json.Marshal(v)
		return errors.Join(err, os.WriteFile(path, data, 0o600))
	}
	return New(Config{Sandboxes: w, Networks: w, Cgroups: w, Write: write, EBPF: true}), w
}

// TestUpdate: a policy is on record before it is in force, and the old one is again when it cannot be noted, or put in
// force.
func TestUpdate(t *testing.T) {
	failed := errors.New("no")
	for _, c := range []struct {
		name        string
		fails, full error
		did         []string
	}{
		{"taken", nil, nil, []string{"turn", "note [new.test]", "update [new.test]", "tell [new.test]", "done"}},
		{"refused", failed, nil, []string{"turn", "note [new.test]", "update [new.test]", "note [old.test]", "done"}},
		{"disk full", nil, failed, []string{"turn", "note [new.test]", "note [old.test]", "done"}},
	} {
		e, w := newWorld(t)
		w.fails, w.full = c.fails, c.full
		err := e.Update(t.Context(), api.NetUpdateParams{Sandbox: "sb_1",
			Network: &api.NetPolicy{Mode: api.NetAllow, Allow: []string{"new.test"}}})
		if !slices.Equal(w.did, c.did) || (err != nil) != (c.fails != nil || c.full != nil) {
			t.Errorf("%s: %q, %v", c.name, w.did, err)
		}
	}
}

// TestNone: a sandbox in mode none has no other policy, ever.
func TestNone(t *testing.T) {
	e, w := newWorld(t)
	w.none, w.record.Network.NetPolicy = true, api.NetPolicy{Mode: api.NetNone}
	err := e.Update(t.Context(), api.NetUpdateParams{Sandbox: "sb_1", Network: &api.NetPolicy{Mode: api.NetOpen}})
	if api.ErrorCode(err) != api.FailedPrecondition {
		t.Error(err)
	}
	if err := e.Update(t.Context(), api.NetUpdateParams{Sandbox: "sb_1",
		Network: &api.NetPolicy{Mode: api.NetNone}}); err != nil {
		t.Error(err)
	}
	if n, _, err := e.Get("sb_1"); err != nil || len(n.Rules) > 0 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, _, err := e.Get("sb_2"); api.ErrorCode(err) != api.NotFound {
		t.Error(err)
	}
}

// TestNarrow: the policy of an exec holds until its cgroup is gone, also for the next hutchd.
func TestNarrow(t *testing.T) {
	e, w := newWorld(t)
	p := &api.NetPolicy{Mode: api.NetNone}
	if err := e.CheckNarrow(w, p); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("without cgroups: %v", err)
	}
	w.groups = map[string]uint64{"a": 1, "b": 2}
	if err := e.CheckNarrow(w, p); err != nil {
		t.Error(err)
	}
	if err := e.CheckNarrow(w, &api.NetPolicy{Ask: true}); api.ErrorCode(err) != api.InvalidArgument {
		t.Errorf("that asks: %v", err)
	}
	if err := e.Narrow(w, "ex_9", "gone", p); api.ErrorCode(err) != api.Unavailable {
		t.Errorf("of a cgroup that is gone: %v", err)
	}
	if err := e.Narrow(w, "ex_1", "a", p); err != nil {
		t.Fatal(err)
	}
	w.groups = map[string]uint64{"a": 7, "b": 2, "c": 3} // another's by now
	for _, group := range []string{"b", "c"} {
		if err := e.Narrow(w, "ex_2", group, p); err != nil {
			t.Fatal(err)
		}
	}
	delete(w.groups, "b")
	w.narrowed = Set{}
	if err := e.Adopt(w); err != nil {
		t.Fatal(err)
	}
	if want := []string{"narrow 1", "widen 1", "narrow 2", "narrow 3", "narrow 3"}; !slices.Equal(w.did, want) {
		t.Errorf("%q, want %q", w.did, want)
	}
	w.dir = t.TempDir()
	if err := e.Adopt(w); err != nil {
		t.Errorf("without a file: %v", err)
	}
	if n, _, err := e.Get("sb_1"); err != nil || n.Rules[0].Rule != "a" {
		t.Errorf("%+v, %v", n, err)
	}
}
