package refusals

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

func denial(name string) api.Denial {
	t := api.NetTarget{Proto: api.TCP, Name: name, Port: 443}
	return api.Denial{Kind: api.KindNet, Target: t.Where(), NetTarget: t, Rule: "mode allow", Why: "no", Count: 1,
		Time: time.Now()}
}

func lookupOf(name string) api.Denial {
	d := denial(name)
	d.Proto, d.Port = "", 0
	return d
}

// TestFlood: who is refused without end fills neither what is kept nor the events, each refusal is counted once, and
// another class is not pushed out.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Ledger
		var list []api.Denial
		var told, events int64
		enter := func(d api.Denial) {
			list = Add(list, d)
			l.Enter(d, 0, func(count, untold int64) { told, events = told+count+untold, events+1 })
		}
		for i := range 5000 {
			enter(denial(fmt.Sprintf("n%d.test", i)))
			enter(denial("same.test"))
		}
		if events > Burst+Rate {
			t.Errorf("%d events at once", events)
		}
		before := events
		enter(lookupOf("other.test"))
		if events != before+1 {
			t.Error("a lookup is not told after a flood of connections")
		}
		testenv.Elapse(time.Minute)
		l.Enter(denial("last.test"), 7, func(count, untold int64) { told += count + untold })
		all, untold := l.Read()
		var kept int64
		for _, d := range all {
			kept += d.Count
		}
		if const0 := int64(10_002 + 7); kept+untold != const0 || told > const0 || len(all) != MaxKept+1 {
			t.Errorf("%d kept in %d rows, %d untold, events tell of %d", kept, len(all), untold, told)
		}
		if len(list) != MaxOfExec+1 || list[1].Count != 5000 {
			t.Errorf("the exec has %d", len(list))
		}
		if uses := l.Count([]api.NetUse{{Rule: "mode allow", Denials: 1}}); len(uses) != 1 || uses[0].Denials != 2 {
			t.Errorf("uses %+v", uses)
		}
		if uses := l.Count(nil); len(uses) != 1 {
			t.Errorf("uses of a rule that nothing else has: %+v", uses)
		}
	})
}

// TestApart: another reason, another kind and another exec are denials of their own.
func TestApart(t *testing.T) {
	var l Ledger
	var list []api.Denial
	enter := func(change func(*api.Denial)) {
		d := denial("web.test")
		change(&d)
		list = Add(list, d)
		l.Enter(d, 0, func(int64, int64) {})
	}
	for range 2 {
		enter(func(*api.Denial) {})
		enter(func(d *api.Denial) { d.Why = "another" })
		enter(func(d *api.Denial) { d.Kind, d.NetTarget, d.Target = api.KindSyscall, api.NetTarget{}, "ptrace" })
		enter(func(d *api.Denial) { d.Kind, d.NetTarget, d.Target = api.KindSyscall, api.NetTarget{}, "mount" })
	}
	all, untold := l.Read()
	if len(all) != 4 || len(list) != 4 || untold != 0 {
		t.Errorf("%d and %d, %d untold", len(all), len(list), untold)
	}
	for _, d := range slices.Concat(all, list) {
		if d.Count != 2 {
			t.Errorf("%+v", d)
		}
	}
}

// TestLearn: each target once, up to a bound, and what a file of a hutchd before says; a line that was cut is lost.
func TestLearn(t *testing.T) {
	var l Ledger
	dir := t.TempDir()
	if err := l.Recall(dir); err != nil || len(l.Wanted()) > 0 {
		t.Errorf("of no file: %v, %v", l.Wanted(), err)
	}
	lines := `{"proto":"tcp","name":"a.test","port":1}` + "\n" + `{"name":"cu`
	if err := os.WriteFile(filepath.Join(dir, Learned), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Recall(dir); err != nil || len(l.Wanted()) != 1 {
		t.Errorf("%v, %v", l.Wanted(), err)
	}
	if l.Learn(api.NetTarget{Name: "lookup.test"}) || !l.Learn(denial("b.test").NetTarget) ||
		l.Learn(denial("b.test").NetTarget) {
		t.Error("a lookup is learned, or a target twice")
	}
	for i := range MaxTargets {
		l.Learn(denial(fmt.Sprintf("n%d.test", i)).NetTarget)
	}
	if n := len(l.Wanted()); n != MaxTargets {
		t.Errorf("%d are kept", n)
	}
	var fresh Ledger
	if !fresh.Learn(denial("a.test").NetTarget) {
		t.Error("not learned by an empty one")
	}
}
