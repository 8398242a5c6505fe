package exec

import (
	"context"
	"math"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// bounds are the limits of one exec: its own, else the sandbox's, else the
// daemon's.
type bounds struct {
	timeout  time.Duration // wall time; 0 is no end, as below
	cpu      time.Duration // CPU time
	output   int64         // bytes of stdout and stderr together
	rlimits  []guestapi.Rlimit
	fsize    bool       // one of rlimits bounds files
	fsizeOwn bool       // that was asked for
	fileSize uint64     // and how large they may be
	group    api.Limits // of its cgroup
}

// boundsOf decides about the limits of an exec.
func (t *Table) boundsOf(s Sandbox, p *api.ExecParams) (b bounds, err error) {
	own, sandbox := api.Limits{}, s.Record().Limits
	if p.Limits != nil {
		own = *p.Limits
	}
	if b.timeout, err = timeoutOf(t.cfg.Sandboxes.Bounds(), sandbox.TimeoutS, p, own.TimeoutS); err != nil {
		return b, err
	}
	b.cpu = seconds(positive(own.CPUTimeS, sandbox.CPUTimeS))
	if b.output = positive(own.OutputBytes, sandbox.OutputBytes); b.output > 0 && p.Stdio != nil && !p.Detachable {
		// The command writes into the caller's own pipe, with nobody between.
		return b, api.Errorf(api.Unavailable, "limits.output_bytes: what goes to the caller's own fds is not counted").
			WithField("limits.output_bytes").
			WithHint("have the output captured: leave stdio out, or make a terminal detachable; with the command line, --json or -d")
	}
	if own.CPUs > 0 || own.MemoryBytes > 0 || own.PIDs > 0 {
		if err := s.CheckControllers(&own); err != nil {
			return b, err
		}
		b.group = api.Limits{CPUs: own.CPUs, MemoryBytes: own.MemoryBytes, PIDs: own.PIDs, OOMGroup: own.OOMGroup}
	}
	if err := t.cfg.Hard.Check("limits.rlimits", &own.Rlimits); err != nil {
		return b, err
	}
	b.addRlimits(s, &sandbox.Rlimits, &own.Rlimits)
	b.boundFiles(s)
	return b, nil
}

// positive is the first of two that is set.
func positive[T int64 | float64](own, otherwise T) T {
	if own > 0 {
		return own
	}
	return otherwise
}

// timeoutOf is the wall time that an exec may take, 0 for no end.
func timeoutOf(most api.ExecBounds, sandbox float64, p *api.ExecParams, own float64) (time.Duration, error) {
	field := "limits.timeout_s"
	if p.TimeoutS != nil {
		own, field = *p.TimeoutS, "timeout_s"
	}
	switch {
	case own > most.MaxTimeoutS && !p.Unbounded():
		return 0, TooLong(field, own, most.MaxTimeoutS)
	case own > 0 || p.TimeoutS != nil:
		return seconds(own), nil
	case sandbox > 0:
		return seconds(sandbox), nil
	case p.Unbounded():
		return 0, nil
	}
	return seconds(most.TimeoutS), nil
}

// TooLong refuses a timeout, in seconds, that is longer than any may be.
func TooLong(field string, asked, most float64) error {
	return api.Errorf(api.InvalidArgument, "%s: %g seconds are more than a command may take here", field, asked).
		WithField(field).
		WithHint("ask for at most %g seconds, start it in the background, or raise exec.max_timeout_s in the daemon's configuration file",
			most)
}

// limit is ctx with the exec's timeout.
func (r *Exec) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.until.IsZero() {
		return ctx, func() {}
	}
	return r.set.Clock.Limit(ctx, r.until, r.before, ErrTimeout)
}

// addRlimits adds what the stub is to set before the command runs.
func (b *bounds) addRlimits(s Sandbox, sandbox, own *api.Rlimits) {
	most, data := s.StandIns()
	// Counted per user namespace since Linux 5.14, so a fork bomb is bounded also
	// where there are no cgroups, and nobody else's processes count. PID 1 has no
	// such limit: it can still start what ends the bomb.
	nproc := guestapi.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: most, Hard: most}
	if data > 0 && sandbox.Data == nil && own.Data == nil {
		b.rlimits = append(b.rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_DATA, Soft: data, Hard: data})
	}
	for _, name := range api.RlimitNames {
		l := *own.ByName(name)
		if l == nil {
			l = *sandbox.ByName(name)
		}
		if l == nil {
			continue
		}
		soft, hard := l.Bounds()
		r := guestapi.Rlimit{Resource: Resources[name], Soft: soft, Hard: hard}
		switch name {
		case "nproc":
			nproc = r
			continue
		case "core":
			r.Soft, r.Hard = CoreLimit, CoreLimit
		case "fsize":
			b.fsize, b.fsizeOwn, b.fileSize = true, true, soft
		}
		b.rlimits = append(b.rlimits, r)
	}
	b.rlimits = append(b.rlimits, nproc)
	if b.cpu > 0 {
		// SIGXCPU, and a second later SIGKILL. Whole seconds: where execs have cgroups
		// the watch of the whole tree is earlier.
		s := uint64(math.Ceil(b.cpu.Seconds()))
		b.rlimits = append(b.rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_CPU, Soft: s, Hard: s + 1})
	}
}

// boundFiles bounds the size of every file that an exec writes.
func (b *bounds) boundFiles(s Sandbox) {
	size, bounded := s.FileSize()
	if !bounded {
		return
	}
	b.fsize = true
	for i := range b.rlimits {
		if r := &b.rlimits[i]; r.Resource == unix.RLIMIT_FSIZE {
			if r.Hard > size {
				b.fsizeOwn = b.fsizeOwn && r.Soft < size
			}
			r.Soft, r.Hard = min(r.Soft, size), min(r.Hard, size)
			return
		}
	}
	b.rlimits = append(b.rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: size, Hard: size})
}

// watch looks at what an exec uses of CPU time, where that is bounded and its cgroup tells.
func (r *Exec) watch(limited context.Context) {
	if _, own := r.s.Cgroup(); own && r.bounds.cpu > 0 {
		r.t.cfg.Background.Go(func() { r.watchCPU(limited) })
	}
}

// minCPUCheck bounds how often the CPU time of an exec is looked at.
const minCPUCheck = 10 * time.Millisecond

// watchCPU ends an exec whose processes have used up their CPU time together. The
// kernel has no event for that, so it looks again when they can have done so at
// the earliest, with every CPU at work.
func (r *Exec) watchCPU(ctx context.Context) {
	group := r.groupNow()
	at, _ := r.s.Cgroup()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.done:
			return
		case <-timer.C:
		}
		used, _, err := r.t.cfg.Cgroups.Usage(at, group.Name)
		if err != nil {
			return
		}
		select { // it uses none while it is paused
		case <-r.set.Clock.Runs():
		case <-ctx.Done():
			return
		case <-r.done:
			return
		}
		used -= group.Used
		if used >= r.bounds.cpu {
			r.stop(errCPUTime)
			return
		}
		timer.Reset(max(minCPUCheck, (r.bounds.cpu-used)/time.Duration(runtime.NumCPU())))
	}
}
