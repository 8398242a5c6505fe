package sandbox

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// group makes the exec's cgroup, where there are any, and notes what the sandbox's
// counters say before anything runs. The cgroup has the exec's id, so whoever
// knows that finds it.
func (m *Manager) group(r *running) error {
	if r.s.cgroup == "" {
		return nil
	}
	r.oom, r.pids = m.cfg.Cgroups.Events(r.s.cgroup)
	if !r.s.grouped {
		return nil
	}
	if err := m.cfg.Cgroups.Make(r.s.cgroup, r.id, r.bounds.group); err != nil {
		return api.Errorf(api.ResourceExhausted, "%w", err).WithHint("the sandbox may have ended; else end some execs, or allow more cgroups (cgroup.max.descendants)")
	}
	return nil
}

// ungroup gives the exec's cgroup back, which what the exec has left behind may
// still use.
func (m *Manager) ungroup(r *running) {
	if r.s.grouped {
		m.cfg.Cgroups.Retire(r.s.cgroup, r.id)
	}
}

// end kills the exec and all it left behind. A PID 1 that does not report it in
// time is not trusted any more: the whole sandbox is killed.
func (m *Manager) end(r *running) (guestapi.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	killed, err := m.killGroup(ctx, r)
	if err == nil {
		// PID 1 finds the tree where there is no cgroup, and frees the leader from a
		// debugger that holds its body.
		err = r.exec.Kill()
	}
	if err == nil {
		var end guestapi.Event
		if end, err = r.exec.Wait(ctx); err == nil {
			end.Killed = r.merge(killed, end.Killed)
			return end, nil
		}
	}
	m.removeLater(r.s, "its PID 1 did not end an exec that was to be killed")
	return guestapi.Event{}, err
}

// killGroup kills by cgroup: a process can leave its parent, its group and its
// session, but not its cgroup. It returns nothing where there are none.
func (m *Manager) killGroup(ctx context.Context, r *running) ([]int, error) {
	if !r.s.grouped {
		return nil, nil
	}
	return m.cfg.Cgroups.Kill(ctx, r.s.cgroup, r.id)
}

// merge joins lists of pids, the leader first.
func (r *running) merge(lists ...[]int) []int {
	all := []int{}
	for _, pid := range slices.Concat(lists...) {
		switch {
		case slices.Contains(all, pid):
		case pid == r.exec.PID:
			all = slices.Insert(all, 0, pid)
		default:
			all = append(all, pid)
		}
	}
	return all
}

// endLeft kills what an exec that has ended left behind.
func (m *Manager) endLeft(r *running) ([]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	killed, err := m.killGroup(ctx, r)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV): // removed before or meanwhile
		return nil, nil // it left nothing, or the sandbox has ended
	case err != nil || r.s.grouped:
		return killed, err
	}
	return nil, r.exec.Kill() // who they were PID 1 does not say after the leader's end
}

// judge finds out what the exec has used and how it ended.
func (m *Manager) judge(r *running) {
	if u := r.end.Usage; u != nil {
		r.cpu = time.Duration(u.UserUS+u.SystemUS) * time.Microsecond
		r.memory = u.MaxRSSKB << 10
	}
	if r.s.grouped {
		if cpu, memory, err := m.cfg.Cgroups.Usage(r.s.cgroup, r.id); err == nil {
			r.cpu, r.memory = cpu, max(r.memory, memory)
		}
		m.ungroup(r)
	}
	if r.verdict != "" {
		return
	}
	e := evidence{status: syscall.WaitStatus(r.end.Status), bounds: r.bounds, cpu: r.cpu}
	if r.s.cgroup != "" && e.status != 0 {
		oom, pids := m.cfg.Cgroups.Events(r.s.cgroup)
		e.oom, e.pids = oom > r.oom, pids > r.pids
	}
	for _, st := range r.io.streams {
		st.known() // counts what has not been
	}
	e.output = r.output.Load()
	r.s.mu.Lock()
	e.alone = !r.company
	r.s.mu.Unlock()
	r.verdict = e.verdict()
}
