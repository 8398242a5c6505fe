package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
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
func (s *Sandbox) metered() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.record.Unenforced {
		if u.Metered {
			return int64(u.Value)
		}
	}
	return 0
}

// wakeMeter says that there may be something to look at from now on.
func (s *Sandbox) wakeMeter() {
	select {
	case s.meter <- struct{}{}:
	default:
	}
}

// watchMemory looks until the sandbox has ended.
func (m *Manager) watchMemory(s *Sandbox) {
	if !s.limits().BestEffort || s.cgroup != "" && slices.Contains(m.cfg.Host.Controllers, "memory") {
		return
	}
	m.watchers.Go(func() {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		m.watchers.Go(func() {
			select {
			case <-s.exited:
				cancel(nil)
			case <-ctx.Done():
			}
		})
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.meter:
			case <-timer.C:
			}
			timer.Stop()
			if wait := m.lookAtMemory(ctx, s); wait > 0 {
				timer.Reset(wait)
			}
			select { // nothing takes memory while it is paused
			case <-s.execs.Clock.Runs():
			case <-ctx.Done():
				return
			}
		}
	})
}

// lookAtMemory ends what has to be ended, and returns when to look again; 0 is when
// somebody starts something.
func (m *Manager) lookAtMemory(ctx context.Context, s *Sandbox) time.Duration {
	limit, start := s.metered(), time.Now()
	if limit == 0 {
		return 0
	}
	pid1 := s.Record().PID
	all := meterBelow(pid1)
	if len(all) < 2 { // PID 1 alone
		return 0
	}
	used := together(all)
	// What they share counts once. Processes are read one after the other: one that ends or
	// forks meanwhile leaves to those that are read later what was counted with it, so only
	// what is too much each time is.
	for i := 0; i < measured && used > limit; i++ {
		if i > 0 {
			all = meterBelow(pid1)
		}
		for j := range all {
			all[j].share()
		}
		used = together(all)
	}
	cost := time.Since(start)
	if used > limit {
		m.endLargest(ctx, s, all, used, limit)
		return minMeter
	}
	soonest := time.Duration(float64(limit-used) / float64(fillRate*runtime.NumCPU()) * float64(time.Second))
	return max(min(max(soonest, minMeter), maxMeter), (meterShare-1)*cost)
}

// together is what processes use but for PID 1, which comes first.
func together(all []process) (n int64) {
	if len(all) == 0 {
		return 0
	}
	for _, p := range all[1:] {
		n += p.anon + p.shmem
	}
	return n
}

// share sets what a process uses to its proportional share. It is a walk of the process's
// page tables, so it is left to when the simple sum is over the limit.
func (p *process) share() {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) { // it has ended
			p.anon, p.shmem = 0, 0
		}
		return
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		f := strings.Fields(value)
		if len(f) == 0 || name != "Pss_Anon" && name != "Pss_Shmem" {
			continue
		}
		n, err := strconv.ParseInt(f[0], 10, 64)
		switch {
		case err != nil:
		case name == "Pss_Anon":
			p.anon = n << 10
		default:
			p.shmem = n << 10
		}
	}
}

// endLargest ends the exec that uses most, and waits for that. What an exec has left behind
// cannot be told apart here: when nothing else is left it is ended with the sandbox.
func (m *Manager) endLargest(ctx context.Context, s *Sandbox, all []process, used, limit int64) {
	execs := s.execs.Running()
	if len(execs) == 0 {
		m.emit(api.EventLimitHit, s, "",
			api.LimitEvent{Limit: api.VerdictOOM, Detail: fmt.Sprintf("limits.memory_bytes is %d", limit)})
		if _, err := m.kill(ctx, s,
			"what its commands have left behind uses more than limits.memory_bytes"); err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("end a sandbox that uses too much memory", "sandbox", s.id, "err", err)
		}
		m.saveEnd(s)
		return
	}
	shares := sharesOf(all, execs)
	largest := slices.MaxFunc(execs, func(a, b *exec.Exec) int { return int(shares[a]>>10) - int(shares[b]>>10) })
	largest.Stop(&exec.Cause{
		Verdict: api.VerdictOOM, Text: fmt.Sprintf("the sandbox uses %d bytes of memory, %d are allowed", used, limit),
		Limit: &api.LimitHit{Name: "memory_bytes", Of: "sandbox", Limit: limit, Peak: used,
			Hint: "use less memory, or allow more: hutch update -m SIZE " + s.id},
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
func sharesOf[E leader](all []process, execs []E) map[E]int64 {
	leaders, parents, sessions := map[int]E{}, map[int]int{}, map[int]int{}
	var none E
	for _, p := range all {
		parents[p.pid], sessions[p.pid] = p.ppid, p.session
		for _, r := range execs {
			if r.PID() == p.inside {
				leaders[p.pid] = r
			}
		}
	}
	shares := map[E]int64{}
	for _, p := range all[1:] {
		at := p.pid
		for range all { // pids are read one after the other: no loop may catch us
			if leaders[at] != none || parents[at] == 0 {
				break
			}
			at = parents[at]
		}
		owner := leaders[at]
		if owner == none {
			owner = leaders[sessions[p.pid]]
		}
		if owner != none {
			shares[owner] += p.anon + p.shmem
		}
	}
	return shares
}
