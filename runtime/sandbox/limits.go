package sandbox

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
func (m *Manager) boundsOf(s *Sandbox, p *api.ExecParams) (b bounds, err error) {
	own, sandbox := api.Limits{}, s.limits()
	if p.Limits != nil {
		own = *p.Limits
	}
	if b.timeout, err = m.timeoutOf(sandbox.TimeoutS, p, own.TimeoutS); err != nil {
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
		if err := m.checkExecControllers(s, &own); err != nil {
			return b, err
		}
		b.group = api.Limits{CPUs: own.CPUs, MemoryBytes: own.MemoryBytes, PIDs: own.PIDs, OOMGroup: own.OOMGroup}
	}
	standIns := m.standIns(s)
	if err := m.addRlimits(&b, &sandbox.Rlimits, &own.Rlimits, &standIns); err != nil {
		return b, err
	}
	s.boundFiles(&b)
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
func (m *Manager) timeoutOf(sandbox float64, p *api.ExecParams, own float64) (time.Duration, error) {
	exec := m.settings.Load().Exec
	field := "limits.timeout_s"
	if p.TimeoutS != nil {
		own, field = *p.TimeoutS, "timeout_s"
	}
	switch {
	case own > exec.MaxTimeoutS && !p.Unbounded():
		return 0, m.tooLong(field, own)
	case own > 0 || p.TimeoutS != nil:
		return seconds(own), nil
	case sandbox > 0:
		return seconds(sandbox), nil
	case p.Unbounded():
		return 0, nil
	}
	return seconds(exec.TimeoutS), nil
}

func (m *Manager) tooLong(field string, asked float64) error {
	return api.Errorf(api.InvalidArgument, "%s: %g seconds are more than a command may take here", field, asked).
		WithField(field).
		WithHint("ask for at most %g seconds, start it in the background, or raise exec.max_timeout_s in the daemon's configuration file",
			m.settings.Load().Exec.MaxTimeoutS)
}

// limit is ctx with the exec's timeout.
func (r *running) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.until.IsZero() {
		return ctx, func() {}
	}
	return r.s.clock.limit(ctx, r.until, r.before, errTimeout)
}

// checkExecControllers refuses what the exec's cgroup cannot enforce. On hybrid
// hosts the controllers are v1's, which a process cannot be cloned into.
func (m *Manager) checkExecControllers(s *Sandbox, l *api.Limits) error {
	if err := m.checkControllers(l); err != nil {
		return err
	}
	if s.grouped && m.cfg.Host.CgroupMode == "v2" {
		return nil
	}
	return api.Errorf(api.Unavailable,
		"limits: cpus, memory_bytes and pids of a single exec need cgroup v2 alone, this host's mode is %q",
		m.cfg.Host.CgroupMode).WithField("limits").
		WithHint("set them on the sandbox, or boot with systemd.unified_cgroup_hierarchy=1")
}

// resources are the kernel's numbers of api.RlimitNames.
var resources = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// hardLimit is what no command can go above: PID 1's own hard limits, which are
// hutchd's but for those that spec.Build sets.
func (h *Host) hardLimit(name string) uint64 {
	switch name {
	case "nofile":
		return h.NoFileHard
	case "nproc":
		return h.NProc
	case "core":
		return coreLimit
	}
	var lim unix.Rlimit
	if unix.Getrlimit(resources[name], &lim) != nil {
		return 0
	}
	return lim.Max
}

// coreLimit lets no core file be written and no core_pattern's program be run,
// which 0 would not keep the kernel from (fs/coredump.c).
const coreLimit = 1

// checkRlimits refuses resource limits above those of every sandbox.
func (h *Host) checkRlimits(field string, r *api.Rlimits) error {
	for _, name := range api.RlimitNames {
		l := *r.ByName(name)
		if l == nil {
			continue
		}
		if _, hard := l.Bounds(); hard > h.hardLimit(name) {
			return api.Errorf(api.InvalidArgument, "%s.%s: above the hard limit that a sandbox has here", field, name).
				WithField(field+"."+name).WithHint("ask for at most %d", h.hardLimit(name))
		}
	}
	return nil
}

// addRlimits adds what the stub is to set before the command runs.
func (m *Manager) addRlimits(b *bounds, sandbox, own *api.Rlimits, in *standIns) error {
	if err := m.cfg.Host.checkRlimits("limits.rlimits", own); err != nil {
		return err
	}
	// Counted per user namespace since Linux 5.14, so a fork bomb is bounded also
	// where there are no cgroups, and nobody else's processes count. PID 1 has no
	// such limit: it can still start what ends the bomb.
	nproc := guestapi.Rlimit{Resource: unix.RLIMIT_NPROC, Soft: in.nproc, Hard: in.nproc}
	if in.data > 0 && sandbox.Data == nil && own.Data == nil {
		b.rlimits = append(b.rlimits, guestapi.Rlimit{Resource: unix.RLIMIT_DATA, Soft: in.data, Hard: in.data})
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
		r := guestapi.Rlimit{Resource: resources[name], Soft: soft, Hard: hard}
		switch name {
		case "nproc":
			nproc = r
			continue
		case "core":
			r.Soft, r.Hard = coreLimit, coreLimit
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
	return nil
}

// minCPUCheck bounds how often the CPU time of an exec is looked at.
const minCPUCheck = 10 * time.Millisecond

// watchCPU ends an exec whose processes have used up their CPU time together. The
// kernel has no event for that, so it looks again when they can have done so at
// the earliest, with every CPU at work.
func (m *Manager) watchCPU(ctx context.Context, r *running) {
	r.s.mu.Lock()
	group := r.group
	r.s.mu.Unlock()
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
		used, _, err := m.cfg.Cgroups.Usage(r.s.cgroup, group.Name)
		if err != nil {
			return
		}
		select { // it uses none while it is paused
		case <-r.s.clock.runs():
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
