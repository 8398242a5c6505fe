package refusals

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Bounds of what is kept and told. They are of one class each, so that who looks up names without end hides nothing
// else.
const (
	MaxKept    = 400  // different denials of a sandbox
	MaxOfExec  = 50   // and of an exec
	MaxTargets = 2000 // different targets, of mode learn
	Pause      = time.Second
	Burst      = 50 // events at once
	Rate       = 5  // and a second, from then on
)

// lookup is the class of lookups.
const lookup = "lookup"

// classOf is the class of a denial that others do not push out: lookups are apart from connections.
func classOf(d *api.Denial) string {
	if d.Kind == api.KindNet && d.Proto == "" && d.Name != "" {
		return lookup
	}
	return d.Kind
}

// Failed is the kind of a denial that is none: a connection that is allowed and has failed. Where a result is made they
// part: it is counted, bounded and attributed as what is refused.
const Failed = "failed"

// Ledger is what a sandbox was refused, and in mode learn what it wanted. The zero value is empty. Its methods may be
// called from any goroutine.
type Ledger struct {
	mu      sync.Mutex // guards what follows
	denials map[refusal]*entry
	classes map[string]*allowance  // of denials and their events
	targets map[api.NetTarget]bool // of mode learn: all that it has reached or wanted to
	untold  int64                  // refusals that there was no room for
	lookups map[string]int64       // of denials: refused lookups by rule, which no connection counts

	skipped int64 // of events: those that were not sent

	advised map[string]bool // kinds of denials
}

// often is how often the very same is refused before a sandbox is shown what its policy says.
const often = 3

// Advise returns the kind of one of the denials that was refused often by now, "" if there is none, or if it has
// returned that kind before.
func (l *Ledger) Advise(denials []api.Denial) (kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range denials {
		d := &denials[i]
		if e := l.denials[refusalOf(d)]; e == nil || e.Count < often || d.Probe || l.advised[d.Kind] {
			continue
		}
		if l.advised == nil {
			l.advised = map[string]bool{}
		}
		l.advised[d.Kind] = true
		return d.Kind
	}
	return ""
}

// allowance is what is kept of a class, and what may be sent of it now.
type allowance struct {
	kept   int
	tokens float64
	filled time.Time
}

// refusal is what makes two denials the same. One that has another reason needs another remedy.
type refusal struct {
	api.NetTarget
	rule, why string
	call      string // of what is not of the network
}

func refusalOf(d *api.Denial) refusal {
	r := refusal{NetTarget: d.NetTarget, rule: d.Rule, why: d.Why}
	if d.Kind != api.KindNet {
		r.call = d.Kind + d.Target
	}
	return r
}

type entry struct {
	api.Denial
	told    time.Time // of an event
	pending int64     // refusals since then
}

// Enter notes a denial, and that there were others that nobody was told about. It calls tell, which must not wait, if
// an event is to tell of it: for how many like it, and how many others there were that no event was for. Events come in
// the order of what they tell, so tell is called with the lock held.
func (l *Ledger) Enter(d api.Denial, others int64, tell func(count, untold int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if classOf(&d) == lookup {
		if l.lookups == nil {
			l.lookups = map[string]int64{}
		}
		l.lookups[d.Rule] += d.Count
	}
	l.untold += others
	l.skipped += others
	if count, untold, ok := l.denied(d, time.Now()); ok {
		tell(count, untold)
	}
}

// Add adds d to what an exec was refused.
func Add(list []api.Denial, d api.Denial) []api.Denial {
	same := func(o api.Denial) bool {
		return o.NetTarget == d.NetTarget && o.Rule == d.Rule && o.Why == d.Why && o.Exec == d.Exec &&
			o.Kind == d.Kind && o.Target == d.Target
	}
	if i := slices.IndexFunc(list, same); i >= 0 {
		list[i].Count += d.Count
		list[i].Time, list[i].Refusal = d.Time, d.Refusal
		return list
	}
	class, others := classOf(&d), 0
	for i := range list {
		if classOf(&list[i]) == class {
			others++
		}
	}
	if others < MaxOfExec {
		list = append(list, d)
	}
	return list
}

// Learn adds t to what a sandbox in mode learn wanted, and reports whether it is new. Lookups are none: nothing is
// learned from them.
func (l *Ledger) Learn(t api.NetTarget) (fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Port == 0 && t.Address == "" || l.targets[t] || len(l.targets) >= MaxTargets {
		return false
	}
	if l.targets == nil {
		l.targets = map[api.NetTarget]bool{}
	}
	l.targets[t] = true
	return true
}

// Recall reads what a hutchd before has remembered in a sandbox's folder. A line that a kill has cut is lost.
func (l *Ledger) Recall(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, Learned))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = map[api.NetTarget]bool{}
	for line := range bytes.Lines(data) {
		var t api.NetTarget
		if json.Unmarshal(line, &t) == nil && len(l.targets) < MaxTargets {
			l.targets[t] = true
		}
	}
	return err
}

// denied enters d and says whether an event is to tell of it, for how many like it, and how many
// others there were that no event was for; mu is held.
func (l *Ledger) denied(d api.Denial, now time.Time) (count, untold int64, tell bool) {
	if l.denials == nil {
		l.denials, l.classes = map[refusal]*entry{}, map[string]*allowance{}
	}
	class := l.classes[classOf(&d)]
	if class == nil {
		class = &allowance{tokens: Burst, filled: now}
		l.classes[classOf(&d)] = class
	}
	key := refusalOf(&d)
	e := l.denials[key]
	once := d.Count
	switch {
	case e != nil:
		d.Count += e.Count
		e.Denial = d
	case class.kept >= MaxKept:
		l.untold += once
		e = &entry{Denial: d} // of no other
	default:
		e = &entry{Denial: d}
		l.denials[key] = e
		class.kept++
	}
	e.pending += once
	if now.Sub(e.told) < Pause {
		return 0, 0, false
	}
	class.tokens = min(Burst, class.tokens+Rate*now.Sub(class.filled).Seconds())
	class.filled = now
	if class.tokens < 1 {
		l.skipped += once
		return 0, 0, false
	}
	class.tokens--
	count, untold = e.pending, l.skipped
	e.told, e.pending, l.skipped = now, 0, 0
	return count, untold, true
}

// Read is all that was refused, the latest last.
func (l *Ledger) Read() (denials []api.Denial, untold int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.denials {
		denials = append(denials, e.Denial)
	}
	slices.SortFunc(denials,
		func(a, b api.Denial) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Target, b.Target)) })
	return denials, l.untold
}

// Count adds the lookups that were refused to what package netfilter has counted.
func (l *Ledger) Count(uses []api.NetUse) []api.NetUse {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rule, n := range l.lookups {
		i := slices.IndexFunc(uses, func(u api.NetUse) bool { return u.Rule == rule })
		if i < 0 {
			i = len(uses)
			uses = append(uses, api.NetUse{Rule: rule})
		}
		uses[i].Denials += n
	}
	return uses
}

// Wanted is all that the sandbox has reached, or would have, in mode learn.
func (l *Ledger) Wanted() []api.NetTarget {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.targets))
}

// Part parts what was refused from what has failed. The former is never nil.
func Part(all []api.Denial) (refused []api.Denial, failed []api.Failure) {
	refused = []api.Denial{}
	for _, d := range all {
		if d.Kind != Failed {
			refused = append(refused, d)
			continue
		}
		failed = append(failed, api.Failure{
			Target: d.Target, Why: d.Why, Hint: d.HowToAllow, NetTarget: d.NetTarget, Exec: d.Exec, Errno: d.Errno,
			Count: d.Count, Time: d.Time,
		})
	}
	return refused, failed
}
