package exec

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/diskuse"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// MaxKept bounds the commands of one sandbox that are kept for later, shells among them.
const MaxKept = 64

// Set are the commands of one sandbox: what its sandbox holds of this package.
type Set struct {
	// Clock is the time that they have.
	Clock *Clock

	mu       sync.Mutex
	running  map[string]*Exec
	starting map[*Exec]bool            // that may run already, and are in running soon
	ended    []*Exec                   // that can still be read, oldest first
	early    []guestapi.Refused        // perhaps of one of those that are starting
	hits     map[api.Verdict]time.Time // when a limit was told about last
	spare    []Group                   // cgroups that execs have left empty
	looked   look                      // when an exec ended last
	kept     int                       // that are open, or about to be
	closed   bool                      // the sandbox is gone, or its processes are
}

// NewSet is an empty one, whose clock goes on from a state.
func NewSet(clock ClockState) *Set {
	return &Set{Clock: NewClock(clock), running: map[string]*Exec{}, starting: map[*Exec]bool{}}
}

// Running lists those that run, in no order; Len counts them.
func (set *Set) Running() []*Exec {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Collect(maps.Values(set.running))
}

// Len counts those that run.
func (set *Set) Len() int {
	set.mu.Lock()
	defer set.mu.Unlock()
	return len(set.running)
}

// OnlyEver reports whether nothing runs, and r is the only command that there has been, as far as is known.
func (set *Set) OnlyEver(r *Exec) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	return len(set.running) == 0 && len(set.ended) <= 1 && !r.company
}

// StopAll ends those that run for a reason, a *Cause, and does not wait for that. It returns them, for AwaitAll.
func (set *Set) StopAll(why error) []*Exec {
	all := set.Running()
	for _, r := range all {
		r.stop(why)
	}
	return all
}

// AwaitAll waits for the ends of commands, or returns why ctx has ended.
func AwaitAll(ctx context.Context, execs []*Exec) error {
	for _, r := range execs {
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// End ends those of a sandbox whose PID 1 is gone, and waits for that. It is soon: a caller who does not read what a
// command has written is waited for no longer than relayGrace.
func (set *Set) End() { _ = AwaitAll(context.Background(), set.StopAll(ErrKilled)) }

// AskToEnd sends each that runs the signal that asks it to, and waits for their ends until that takes too long, or ctx
// ends. signal is what the sandbox's image or spec says; shells and what is kept get SIGTERM.
func (set *Set) AskToEnd(ctx context.Context, grace time.Duration, signal string) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	all := set.Running()
	for _, r := range all {
		_ = r.leader.Signal(r.stopSignal(signal)) // one that cannot get it is killed by who calls
	}
	_ = AwaitAll(ctx, all)
}

// Names are the ids of those that run: of commands and of shells, and the names of what is kept, in order.
func (set *Set) Names() (execs, shells, kept []string) {
	execs, shells, kept = []string{}, []string{}, []string{}
	for _, r := range set.Running() {
		switch {
		case r.kept != "":
			kept = append(kept, r.kept)
		case r.shell != "":
			shells = append(shells, r.shell)
		default:
			execs = append(execs, r.id)
		}
	}
	for _, list := range [][]string{execs, shells, kept} {
		slices.Sort(list)
	}
	return execs, shells, kept
}

// known are the execs that run or ended lately, oldest first.
func (set *Set) known() []*Exec {
	set.mu.Lock()
	all := slices.Clone(set.ended)
	for _, r := range set.running {
		all = append(all, r)
	}
	set.mu.Unlock()
	slices.SortFunc(all, func(a, b *Exec) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.id, b.id)) })
	return all
}

// Background is the record of the background command that was started last; nil is none.
func (set *Set) Background() *api.Exec {
	for _, r := range slices.Backward(set.known()) {
		if ex := r.record(); ex.Background && !ex.Kept {
			return &ex
		}
	}
	return nil
}

// AddKept counts commands that are kept, and shells: one more that is about to be opened, or with -1 one that is over.
// It reports false where that would be too many.
func (set *Set) AddKept(n int) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.kept+n > MaxKept {
		return false
	}
	set.kept += n
	return true
}

// NotePeak tells those that run how much the sandbox was seen to take.
func (set *Set) NotePeak(used diskuse.Usage) {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, r := range set.running {
		r.notePeak(used)
	}
}

// notePeak is NotePeak of one; Set.mu is held.
func (r *Exec) notePeak(used diskuse.Usage) {
	r.peak.Bytes, r.peak.Inodes = max(r.peak.Bytes, used.Bytes), max(r.peak.Inodes, used.Inodes)
}

// launching says that r's command may run from now on, and launched that it does not.
// A command can be refused something before PID 1 has told that it runs.
func (set *Set) launching(r *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.starting[r] = true
}

func (set *Set) launched(r *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.starting, r)
}

// add enters one that runs, unless all are to be forgotten already.
func (set *Set) add(r *Exec) (listed bool) {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.starting, r)
	if r.unlisted = set.closed; r.unlisted {
		return false
	}
	for _, other := range set.running {
		r.company, other.company = true, true
	}
	set.running[r.id] = r
	return true
}

// end moves one from those that run to those that are kept, and returns the oldest of these if there are too many.
func (set *Set) end(r *Exec) (old *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if r.unlisted {
		return nil
	}
	delete(set.running, r.id)
	set.ended = append(set.ended, r)
	if len(set.ended) > maxEnded {
		old = set.ended[0]
		set.ended = set.ended[1:]
	}
	return old
}

// close keeps out what comes later.
func (set *Set) close() {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.closed = true
}

// drop forgets one that has ended.
func (set *Set) drop(r *Exec) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.ended = slices.DeleteFunc(set.ended, func(o *Exec) bool { return o == r })
}

// takeEnded is all that have ended, which are no longer its own.
func (set *Set) takeEnded() []*Exec {
	set.mu.Lock()
	defer set.mu.Unlock()
	all := set.ended
	set.ended = nil
	return all
}

// isKept reports whether it is kept for later, and so does not keep its sandbox from being idle.
func (r *Exec) isKept() bool { return r.kept != "" || r.shell != "" }

// stopSignal is what asks r to end: its image's, or the spec's, unless it is ours.
func (r *Exec) stopSignal(name string) syscall.Signal {
	if r.isKept() {
		return unix.SIGTERM
	}
	sig, err := ParseSignal(name)
	if err != nil { // none, or of an image that has it wrong
		return unix.SIGTERM
	}
	return sig
}
