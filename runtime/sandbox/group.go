package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// group is the cgroup of one exec, or of none: all that a hutchd that takes the exec
// over needs to know of it. That one sets Once, because its predecessor may have
// killed the cgroup; spare ones it does not know go with the sandbox.
type group struct {
	Name string        `json:"name,omitempty"`
	Used time.Duration `json:"used,omitempty"` // CPU time that was used in it before
	Once bool          `json:"once,omitempty"` // not for another exec: it has limits, or may have been killed

	number uint64 // the kernel's; 0 when it was not asked for
}

// maxSameNames bounds the cgroups of one exec id: those that are on their way out, and one.
const maxSameNames = 16

// maxSpare is how many empty cgroups a sandbox keeps.
const maxSpare = 4

// enterGroup gives the exec a cgroup, where there are any, and notes what the
// sandbox's counters say before anything runs. A cgroup that another exec has left
// empty is ready at once; a new one is called after the exec.
func (m *Manager) enterGroup(r *running) error {
	if r.s.cgroup == "" {
		return nil
	}
	r.oom, r.pids = m.cfg.Cgroups.Events(r.s.cgroup)
	if !r.s.grouped {
		return nil
	}
	r.group.Once = r.bounds.group != (api.Limits{}) || r.params.Network != nil
	if !r.group.Once {
		r.s.mu.Lock()
		if n := len(r.s.spare); n > 0 {
			r.group, r.s.spare = r.s.spare[n-1], r.s.spare[:n-1]
		}
		r.s.mu.Unlock()
		if r.group.Name != "" {
			return nil
		}
	}
	// One of this name may still be there: the caller may choose an id again that an exec had which is
	// just ending, or whose cgroup is kept for others.
	name := r.id
	err := m.cfg.Cgroups.Make(r.s.cgroup, name, r.bounds.group)
	for i := 2; errors.Is(err, fs.ErrExist) && i <= maxSameNames; i++ {
		name = r.id + "." + strconv.Itoa(i)
		err = m.cfg.Cgroups.Make(r.s.cgroup, name, r.bounds.group)
	}
	if err != nil {
		return api.Errorf(api.ResourceExhausted, "%w", err).
			WithHint("the sandbox may have ended; else end some execs, or allow more cgroups (cgroup.max.descendants)")
	}
	r.group.Name = name
	return nil
}

// spareGroup makes the cgroup of the first exec ahead of it: 5 % of a short command's way. What is read of cgroups at
// its beginning and end is read once, and so is open.
func (m *Manager) spareGroup(s *Sandbox) error {
	if s.cgroup != "" {
		_, _ = m.cfg.Cgroups.Events(s.cgroup)
	}
	if !s.grouped {
		return nil
	}
	g := group{Name: newID("ex_")} // as those that execs leave
	if err := m.cfg.Cgroups.Make(s.cgroup, g.Name, api.Limits{}); err != nil {
		return err
	}
	_ = m.cfg.Cgroups.Reusable(s.cgroup, g.Name)
	_, _, _ = m.cfg.Cgroups.Usage(s.cgroup, g.Name)
	s.mu.Lock()
	s.spare = append(s.spare, g)
	s.mu.Unlock()
	return nil
}

// groupNumber is the number by which the kernel knows r's cgroup, 0 without one; Sandbox.mu is
// held. It is asked for when something is refused: few execs ever need it.
func (m *Manager) groupNumber(r *running) uint64 {
	if r.group.number == 0 && r.group.Name != "" {
		r.group.number = m.cfg.Cgroups.Number(r.s.cgroup, r.group.Name)
	}
	return r.group.number
}

// leaveGroup gives up the cgroup of an exec that has ended or never ran. What an
// exec has left behind still uses it, and is found in it by exec.kill.
func (m *Manager) leaveGroup(r *running) {
	if r.group.Name != "" {
		m.cfg.Cgroups.Retire(r.s.cgroup, r.group.Name)
	}
}

// settleGroup reads what the exec has used, and keeps its cgroup for another, or
// gives it up. One that was killed is never used again: since Linux 6.12 or so the
// kernel kills whatever is cloned into it later, for ever.
func (m *Manager) settleGroup(r *running, killed bool) {
	if r.group.Name == "" {
		return
	}
	// Asked first: the use of an empty cgroup does not grow any more.
	reusable := !killed && !r.group.Once && m.cfg.Cgroups.Reusable(r.s.cgroup, r.group.Name)
	cpu, memory, err := m.usageOf(r, r.group)
	if err != nil {
		reusable = false
	} else {
		r.cpu, r.memory = cpu-r.group.Used, max(r.memory, memory)
	}
	r.s.mu.Lock()
	if reusable = reusable && len(r.s.spare) < maxSpare; reusable {
		r.s.spare = append(r.s.spare, group{Name: r.group.Name, Used: cpu, number: r.group.number})
		r.group = group{} // nobody may kill it in r's name any more
	}
	r.s.mu.Unlock()
	if !reusable {
		m.leaveGroup(r)
	}
}

// usageOf is what was used in an exec's cgroup, by those that had it before, too. memory is 0 where it is not the
// exec's alone: the kernel keeps the peak of all.
func (m *Manager) usageOf(r *running, g group) (cpu time.Duration, memory int64, err error) {
	cpu, memory, err = m.cfg.Cgroups.Usage(r.s.cgroup, g.Name)
	if !g.Once || g.Used > 0 {
		memory = 0
	}
	return cpu, memory, err
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
	r.s.mu.Lock()
	name := r.group.Name
	r.s.mu.Unlock()
	if name == "" {
		return nil, nil
	}
	return m.cfg.Cgroups.Kill(ctx, r.s.cgroup, name)
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
	if r.s.stopped { // nothing of it runs
		return nil, nil
	}
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

// refusedOwn says whether forks were refused in the exec's own cgroup, where kernels until
// 6.11 count them alone. A cgroup in which that happened is not used again.
func (m *Manager) refusedOwn(r *running) bool {
	if r.group.Name == "" || r.end.Status == 0 {
		return false
	}
	_, pids := m.cfg.Cgroups.Events(path.Join(r.s.cgroup, r.group.Name))
	return pids > 0
}

// judge finds out what the exec has used and how it ended.
func (m *Manager) judge(r *running) {
	if u := r.end.Usage; u != nil {
		r.cpu = time.Duration(u.UserUS+u.SystemUS) * time.Microsecond
		r.memory = u.MaxRSSKB << 10
	}
	refused := m.refusedOwn(r)
	m.settleGroup(r, r.verdict != "")
	m.settleDisk(r)
	if r.verdict != "" {
		r.explain(nil)
		return
	}
	e := evidence{status: syscall.WaitStatus(r.end.Status), bounds: r.bounds, cpu: r.cpu}
	if r.s.cgroup != "" && e.status != 0 {
		oom, pids := m.cfg.Cgroups.Events(r.s.cgroup)
		e.oom, e.pids = oom > r.oom, pids > r.pids || refused
	}
	for _, st := range r.io.streams {
		st.known() // counts what has not been
	}
	e.output = r.output.Load()
	r.s.mu.Lock()
	e.alone = !r.company
	r.s.mu.Unlock()
	e.disk = r.crossed(e.status != 0)
	if r.verdict = e.verdict(); r.verdict == api.VerdictOOM || r.verdict == api.VerdictPIDs {
		r.met = m.limitOf(r)
	}
	r.explain(&e)
}
