package meter

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/meter/procs"
)

// Where no cgroup holds limits.memory_bytes, and it was asked for with best_effort, the meter
// looks at how much the processes of the sandbox use together, and ends the exec that uses
// most. See DESIGN.md, "Limits".

const (
	minMeter = 50 * time.Millisecond
	maxMeter = 500 * time.Millisecond // while a command runs
	// fillRate is how fast one CPU can fill memory, in bytes a second: a page fault and the
	// clearing of a page take half a microsecond at the best.
	fillRate = 4 << 30
	// measured is how often more than the limit must be seen in a row.
	measured = 3
	// meterShare is the part of one CPU that looking may take: a fiftieth.
	meterShare = 50
)

// metered is the limit that the meter keeps, 0 for none.
func (t *Meter) metered() int64 {
	for _, u := range t.of.Record().Unenforced {
		if u.Metered {
			return int64(u.Value)
		}
	}
	return 0
}

// Started says that there may be something to look at from now on.
func (t *Meter) Started() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// watchMemory looks until the sandbox has ended.
func (t *Meter) watchMemory() {
	if group, _ := t.of.Cgroup(); !t.limits().BestEffort || group != "" && slices.Contains(t.all.cfg.Host.Controllers, "memory") {
		return
	}
	t.all.cfg.Background.Go(func() {
		ctx, cancel := t.living()
		defer cancel(nil)
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.wake:
			case <-timer.C:
			}
			timer.Stop()
			if wait := t.lookAtMemory(ctx); wait > 0 {
				timer.Reset(wait)
			}
			select { // nothing takes memory while it is paused
			case <-t.of.Commands().Clock.Runs():
			case <-ctx.Done():
				return
			}
		}
	})
}

// lookAtMemory ends what has to be ended, and returns when to look again; 0 is when
// somebody starts something.
func (t *Meter) lookAtMemory(ctx context.Context) time.Duration {
	limit, start := t.metered(), time.Now()
	if limit == 0 {
		return 0
	}
	pid1 := t.of.Record().PID
	all := procs.Below(pid1)
	if len(all) < 2 { // PID 1 alone
		return 0
	}
	used := together(all)
	// What they share counts once. Processes are read one after the other: one that ends or
	// forks meanwhile leaves to those that are read later what was counted with it, so only
	// what is too much each time is.
	for i := 0; i < measured && used > limit; i++ {
		if i > 0 {
			all = procs.Below(pid1)
		}
		for j := range all {
			all[j].Share()
		}
		used = together(all)
	}
	cost := time.Since(start)
	if used > limit {
		t.endLargest(ctx, all, used, limit)
		return minMeter
	}
	soonest := time.Duration(float64(limit-used) / float64(fillRate*runtime.NumCPU()) * float64(time.Second))
	return max(min(max(soonest, minMeter), maxMeter), (meterShare-1)*cost)
}

// together is what processes use but for PID 1, which comes first.
func together(all []procs.Process) (n int64) {
	if len(all) == 0 {
		return 0
	}
	for _, p := range all[1:] {
		n += p.Anon + p.Shmem
	}
	return n
}

// endLargest ends the exec that uses most, and waits for that. What an exec has left behind
// cannot be told apart here: when nothing else is left it is ended with the sandbox.
func (t *Meter) endLargest(ctx context.Context, all []procs.Process, used, limit int64) {
	execs := t.of.Commands().Running()
	if len(execs) == 0 {
		t.of.Hit(api.LimitEvent{Limit: api.VerdictOOM, Detail: fmt.Sprintf("limits.memory_bytes is %d", limit)})
		err := t.of.End(ctx, "what its commands have left behind uses more than limits.memory_bytes")
		if err != nil && ctx.Err() == nil {
			t.all.cfg.Log.Warn("end a sandbox that uses too much memory", "sandbox", t.of.ID(), "err", err)
		}
		return
	}
	shares := sharesOf(all, execs)
	largest := slices.MaxFunc(execs, func(a, b *exec.Exec) int { return int(shares[a]>>10) - int(shares[b]>>10) })
	largest.Stop(&exec.Cause{
		Verdict: api.VerdictOOM, Text: fmt.Sprintf("the sandbox uses %d bytes of memory, %d are allowed", used, limit),
		Limit: &api.LimitHit{Name: "memory_bytes", Of: "sandbox", Limit: limit, Peak: used,
			Hint: "use less memory, or allow more: hutch update -m SIZE " + t.of.ID()},
	})
	_ = exec.AwaitAll(ctx, []*exec.Exec{largest})
}

// leader is a command, by its leader.
type leader interface {
	comparable
	PID() int // as the sandbox counts
}

// sharesOf is what the processes of each exec use: those below its leader, and those of its
// leader's session that lost their parents.
func sharesOf[E leader](all []procs.Process, execs []E) map[E]int64 {
	leaders, parents, sessions := map[int]E{}, map[int]int{}, map[int]int{}
	var none E
	for _, p := range all {
		parents[p.PID], sessions[p.PID] = p.PPID, p.Session
		for _, r := range execs {
			if r.PID() == p.Inside {
				leaders[p.PID] = r
			}
		}
	}
	shares := map[E]int64{}
	for _, p := range all[1:] {
		at := p.PID
		for range all { // pids are read one after the other: no loop may catch us
			if leaders[at] != none || parents[at] == 0 {
				break
			}
			at = parents[at]
		}
		owner := leaders[at]
		if owner == none {
			owner = leaders[sessions[p.PID]]
		}
		if owner != none {
			shares[owner] += p.Anon + p.Shmem
		}
	}
	return shares
}
