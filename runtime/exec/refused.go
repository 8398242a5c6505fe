package exec

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// What commands were refused, and whose it was: by the network, and by the kernel, which PID 1 tells.

// runOrStart are those that run, or may run already; Set.mu is held.
func (set *Set) runOrStart() []*Exec {
	return slices.AppendSeq(slices.Collect(maps.Values(set.running)), maps.Keys(set.starting))
}

// Attribute notes d with the exec whose cgroup it was refused to, of which the kernel has told the number; 0 is not
// known. Then d is noted with all that run, and is taken for the only one's. It returns the exec's id, or "".
func (t *Table) Attribute(s Sandbox, d api.Denial, cgroup uint64) string {
	set := s.Commands()
	path, own := s.Cgroup()
	known := cgroup != 0 && own
	if known {
		t.askNumbers(path, set)
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	run := set.runOrStart()
	if i := slices.IndexFunc(run, func(r *Exec) bool { return known && r.group.number == cgroup }); i >= 0 {
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

// askNumbers learns by which numbers the kernel knows the cgroups of what runs. It is done when something is refused:
// few execs ever need it. Who was refused something is among those that run already, so none is missed.
func (t *Table) askNumbers(path string, set *Set) {
	set.mu.Lock()
	names := map[*Exec]string{}
	for _, r := range set.runOrStart() {
		if r.group.number == 0 && r.group.Name != "" {
			names[r] = r.group.Name
		}
	}
	set.mu.Unlock()
	for r, name := range names {
		number := t.cfg.Cgroups.Number(path, name)
		set.mu.Lock()
		if r.group.Name == name {
			r.group.number = number
		}
		set.mu.Unlock()
	}
}

// refuse adds d to what r was refused; Set.mu is held.
func (r *Exec) refuse(d api.Denial) { r.refused = refusals.Add(r.refused, d) }

// TakeRefused is what r was refused, and what has failed, since it was asked last.
func (r *Exec) TakeRefused() []api.Denial {
	r.s.SettleRefused()
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	refused := r.refused
	r.refused = nil
	return refused
}

// TakeRefused is what an exec that goes on was refused, and what has failed, since it was asked last, with what the
// policy says of it; over says that what it did meanwhile has failed. Of an exec that has ended its result has it.
func (t *Table) TakeRefused(exec string, over bool) (refused []api.Denial, failed []api.Failure, policy string) {
	r, err := t.Find(exec)
	if err != nil {
		return []api.Denial{}, nil, ""
	}
	r.LookWhy(over)
	refused, failed = refusals.Part(r.TakeRefused())
	return refused, failed, r.s.Policy(refused)
}

// BeginRefused says that an exec that goes on does something new: what was refused between two such things is of
// neither.
func (t *Table) BeginRefused(exec string) {
	if r, err := t.Find(exec); err == nil {
		r.BeginWork()
	}
}

// BeginWork is BeginRefused of one.
func (r *Exec) BeginWork() {
	r.TakeRefused()
	r.beginLook()
}

// look is how far one has looked at what is told only behind a command that failed. What came before is of others.
type look struct {
	at       time.Time
	unrouted int64 // of mode none
	v4       int64 // of these, those of IPv4
}

// later is the later one of two looks. A counter that cannot be read is none that has gone back.
func (l look) later(o look) look {
	if o.at.After(l.at) {
		l.at = o.at
	}
	l.unrouted, l.v4 = max(l.unrouted, o.unrouted), max(l.v4, o.v4)
	return l
}

// NewNetwork says that the network of the sandbox is new here, and what its counters of what had no route are.
func (set *Set) NewNetwork(unrouted, v4 int64) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.looked = look{unrouted: unrouted, v4: v4}
}

// beginLook notes where what r does begins: a command, or one of those of a shell or of an interpreter.
func (r *Exec) beginLook() {
	set := r.set
	set.mu.Lock()
	first := set.looked.at.IsZero()
	if first { // nothing has run in it that could have counted
		set.looked.at = time.Now()
		r.begun = set.looked
	}
	set.mu.Unlock()
	if first {
		return
	}
	now := lookNow(r.s)
	set.mu.Lock()
	r.begun = now
	set.mu.Unlock()
}

func lookNow(s Sandbox) look {
	all, v4 := s.Unrouted()
	return look{at: time.Now(), unrouted: all, v4: v4}
}

// LookWhy ends what r does; where it has succeeded alone nobody looks, as this is behind each command. If it has failed
// it tells what may be why, and of which nothing else tells: connections that wait for their servers, as it may have
// lost its patience, those for which there was no route, and names that got no answer of use. What came before it
// began, or before another one ended beside it, may be that one's, which has succeeded or was told about it. To a
// model IPv4 addresses without a route are reported also after what has succeeded: a pipe or a script may have hidden
// the failure. IPv6 ones are then probes.
func (r *Exec) LookWhy(failed bool) {
	set := r.set
	set.mu.Lock()
	company := r.company
	set.mu.Unlock()
	explained := (r.explained || r.kept != "") && !company
	if !failed && !company && !explained { // whoever comes next looks when it begins
		return
	}
	now := lookNow(r.s)
	set.mu.Lock()
	from := r.begun.later(set.looked)
	set.looked = now.later(set.looked)
	set.mu.Unlock()
	if failed {
		r.s.TellLate(from.at, max(0, now.unrouted-from.unrouted))
	} else if n := now.v4 - from.v4; explained && n > 0 {
		r.s.TellLate(now.at, n)
	}
}

// HoldEarly keeps what PID 1 says of a refused call until another command is known to run, or not to, when the caller
// may be a command of which PID 1 has yet to say that it runs: one of its threads is told about calls, another of
// starts. Without cgroups a command is known by the PID that is said then. Sandbox.TellRefused then gets it again.
func (set *Set) HoldEarly(init Init, r guestapi.Refused) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	if r.Session == 0 || len(set.early) >= refusals.MaxOfExec {
		return false
	}
	for _, x := range set.running {
		if x.PID() == r.Session {
			return false
		}
	}
	held := false
	for x := range set.starting {
		pid := init.PIDOf(x.guest)
		if pid == r.Session {
			return false
		}
		held = held || pid == 0 && x.group.Name == ""
	}
	if held {
		set.early = append(set.early, r)
	}
	return held
}

// tellEarly tells what was held, now that another command is known to run, or not to.
func (t *Table) tellEarly(s Sandbox) {
	set := s.Commands()
	set.mu.Lock()
	early := set.early
	set.early = nil
	set.mu.Unlock()
	for _, r := range early {
		s.TellRefused(r)
	}
}

// Caller notes d with the exec whose process made the call, found by its cgroup or else its session, and
// returns that one's id; "" of what an earlier one has left behind.
func (set *Set) Caller(init Init, d api.Denial, r *guestapi.Refused) string {
	set.mu.Lock()
	defer set.mu.Unlock()
	run := set.runOrStart()
	i := slices.IndexFunc(run, func(x *Exec) bool {
		if x.group.Name != "" {
			return x.group.Name == r.Cgroup
		}
		if r.Session == 0 {
			return false
		}
		if set.starting[x] { // PID 1 has told that it runs, and nobody here has come round to it
			return init.PIDOf(x.guest) == r.Session
		}
		return x.PID() == r.Session
	})
	if i < 0 && len(run) == 1 && !strings.HasPrefix(r.Cgroup, "ex_") {
		i = 0 // it has a session of its own, and nobody else is there
	}
	if i < 0 {
		return ""
	}
	d.Exec = run[i].id
	run[i].refuse(d)
	return d.Exec
}
