package sandbox

import (
	"bytes"
	"cmp"
	"context"
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

// Bounds of what a sandbox can make the daemon remember and tell: it decides how often it is refused, and under how
// many names. They are of one class each, so that who looks up names without end hides nothing else.
const (
	maxDenials     = 400  // different ones that are kept of a sandbox
	maxExecDenials = 50   // and of an exec
	maxTargets     = 2000 // different targets, of mode learn
	denialPause    = time.Second
	denialBurst    = 50 // events at once
	denialRate     = 5  // and a second, from then on
)

// classOf is the class of a denial that others do not push out: lookups are apart from connections.
func classOf(d *api.Denial) string {
	if d.Kind == api.KindNet && d.Proto == "" && d.Name != "" {
		return "lookup"
	}
	return d.Kind
}

// ledger is what a sandbox was refused, and in mode learn what it wanted.
type ledger struct {
	mu      sync.Mutex // guards what follows; taken before Sandbox.mu
	denials map[refusal]*entry
	classes map[string]*allowance  // of denials and their events
	targets map[api.NetTarget]bool // of mode learn: all that it has reached or wanted to
	untold  int64                  // refusals that there was no room for
	lookups map[string]int64       // of denials: refused lookups by rule, which no connection counts

	skipped int64 // of events: those that were not sent
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

type entry struct {
	api.Denial
	told    time.Time // of an event
	pending int64     // refusals since then
}

// Denied records that a sandbox was refused something, and tells: subscribers of events
// and the execs that run. It may be called from any goroutine and does not wait. Of a
// sandbox that is just being taken over or removed there is an event and no more.
func (m *Manager) Denied(sandbox string, e api.DeniedEvent) {
	m.mu.Lock()
	s := m.byID[sandbox]
	m.mu.Unlock()
	e.Count = max(1, e.Count)
	if s == nil {
		m.cfg.Events.Emit(api.EventNetworkDenied, sandbox, "", e)
		return
	}
	now := time.Now()
	d := api.Denial{
		Kind: api.KindNet, Target: e.Where(), NetTarget: e.NetTarget, Rule: e.Rule, Why: e.Why,
		HowToAllow: e.HowToAllow,
		Count:      e.Count, Time: now.UTC().Truncate(time.Millisecond), Refusal: e.Refusal,
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock() // over Emit: events come in the order of what they tell
	d.Exec = m.attribute(s, d, e.Cgroup)
	m.audit(context.Background(), s, d.Exec, api.AuditDenied, e, 0)
	m.remember(s, d.NetTarget)
	if d.Proto == "" && d.Name != "" {
		if s.seen.lookups == nil {
			s.seen.lookups = map[string]int64{}
		}
		s.seen.lookups[d.Rule] += d.Count
	}
	s.seen.untold += e.Untold
	s.seen.skipped += e.Untold
	if count, untold, tell := s.seen.denied(d, now); tell {
		e.Count, e.Untold = count, untold
		m.cfg.Events.Emit(api.EventNetworkDenied, s.id, d.Exec, e)
	}
}

// attribute notes d with the exec whose cgroup it was refused to. Where that is not known it
// notes it with all that run, and takes the only one for it. It returns the exec's id, or "".
func (m *Manager) attribute(s *Sandbox, d api.Denial, cgroup uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := slices.AppendSeq(slices.Collect(maps.Values(s.execs)), maps.Keys(s.starting))
	known := cgroup != 0 && s.grouped
	if i := slices.IndexFunc(run, func(r *running) bool { return known && m.groupNumber(r) == cgroup }); i >= 0 {
		d.Exec = run[i].id
		run[i].refuse(d)
		return d.Exec
	}
	if len(run) == 1 && !known { // known are those that an exec has left behind
		d.Exec = run[0].id
	}
	for _, r := range run {
		r.refuse(d)
	}
	return d.Exec
}

// launching says that r's command may run from now on, and launched that it does not.
// A command can be refused something before PID 1 has told that it runs.
func (s *Sandbox) launching(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting == nil {
		s.starting = map[*running]bool{}
	}
	s.starting[r] = true
}

func (s *Sandbox) launched(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.starting, r)
}

// takeRefused is what r was refused since it was asked last.
func (r *running) takeRefused() []api.Denial {
	r.settleRefused()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	refused := r.refused
	r.refused = nil
	return refused
}

// settleRefused waits until what r was refused so far is reported; before it gives back its
// cgroup, by which that is known to be its own.
func (r *running) settleRefused() {
	if r.s.enforced != nil {
		r.s.enforced.Settle()
	}
}

// refuse adds d to what r was refused; Sandbox.mu is held.
func (r *running) refuse(d api.Denial) {
	same := func(o api.Denial) bool {
		return o.NetTarget == d.NetTarget && o.Rule == d.Rule && o.Why == d.Why && o.Exec == d.Exec &&
			o.Kind == d.Kind && o.Target == d.Target
	}
	if i := slices.IndexFunc(r.refused, same); i >= 0 {
		r.refused[i].Count += d.Count
		r.refused[i].Time, r.refused[i].Refusal = d.Time, d.Refusal
		return
	}
	class, others := classOf(&d), 0
	for i := range r.refused {
		if classOf(&r.refused[i]) == class {
			others++
		}
	}
	if others < maxExecDenials {
		r.refused = append(r.refused, d)
	}
}

// Passed records what a sandbox has reached, and by which rule: for the audit log, and in mode learn. It is
// called like Denied.
func (m *Manager) Passed(sandbox string, t api.NetTarget, rule string) {
	m.mu.Lock()
	s := m.byID[sandbox]
	m.mu.Unlock()
	if s == nil {
		return
	}
	m.audit(context.Background(), s, "", api.AuditAllowed, api.AuditConnection{NetTarget: t, Rule: rule}, 0)
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	m.remember(s, t)
}

// remember adds t to what a sandbox in mode learn wanted, also for the next hutchd; ledger.mu is held. There are few
// different targets, and each is written once. Lookups are none: nothing is learned from them.
func (m *Manager) remember(s *Sandbox, t api.NetTarget) {
	l := &s.seen
	s.mu.Lock()
	learns := s.record.Network.Mode == api.NetLearn
	s.mu.Unlock()
	if !learns || t.Port == 0 && t.Address == "" || l.targets[t] || len(l.targets) >= maxTargets {
		return
	}
	if l.targets == nil {
		l.targets = map[api.NetTarget]bool{}
	}
	l.targets[t] = true
	line, err := json.Marshal(t)
	if err == nil {
		err = appendLine(s.wantedFile(), line)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it is being removed
		m.cfg.Logger.Warn("note what a sandbox wants to reach", "sandbox", s.id, "err", err)
	}
}

func (s *Sandbox) wantedFile() string { return filepath.Join(s.dir, "wanted") }

func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// recall reads what a hutchd before has remembered. A line that a kill has cut is lost.
func (l *ledger) recall(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.targets = map[api.NetTarget]bool{}
	for line := range bytes.Lines(data) {
		var t api.NetTarget
		if json.Unmarshal(line, &t) == nil && len(l.targets) < maxTargets {
			l.targets[t] = true
		}
	}
	return err
}

// denied enters d and says whether an event is to tell of it, for how many like it, and how many
// others there were that no event was for; mu is held.
func (l *ledger) denied(d api.Denial, now time.Time) (count, untold int64, tell bool) {
	if l.denials == nil {
		l.denials, l.classes = map[refusal]*entry{}, map[string]*allowance{}
	}
	class := l.classes[classOf(&d)]
	if class == nil {
		class = &allowance{tokens: denialBurst, filled: now}
		l.classes[classOf(&d)] = class
	}
	key := refusal{NetTarget: d.NetTarget, rule: d.Rule, why: d.Why}
	if d.Kind != api.KindNet {
		key.call = d.Kind + d.Target
	}
	e := l.denials[key]
	once := d.Count
	switch {
	case e != nil:
		d.Count += e.Count
		e.Denial = d
	case class.kept >= maxDenials:
		l.untold += once
		e = &entry{Denial: d} // of no other
	default:
		e = &entry{Denial: d}
		l.denials[key] = e
		class.kept++
	}
	e.pending += once
	if now.Sub(e.told) < denialPause {
		return 0, 0, false
	}
	class.tokens = min(denialBurst, class.tokens+denialRate*now.Sub(class.filled).Seconds())
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

// read is all that was refused, the latest last.
func (l *ledger) read() (denials []api.Denial, untold int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.denials {
		denials = append(denials, e.Denial)
	}
	slices.SortFunc(denials,
		func(a, b api.Denial) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Target, b.Target)) })
	return denials, l.untold
}

// count adds the lookups that were refused to what package netfilter has counted.
func (l *ledger) count(uses []api.NetUse) []api.NetUse {
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

// wanted is all that the sandbox has reached, or would have, in mode learn.
func (l *ledger) wanted() []api.NetTarget {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.targets))
}
