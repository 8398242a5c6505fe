package exec

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

// Group is the cgroup of one exec, or of none: all that a hutchd that takes the exec
// over needs to know of it. That one sets Once, because its predecessor may have
// killed the cgroup; spare ones it does not know go with the sandbox.
type Group struct {
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
func (t *Table) enterGroup(r *Exec) error {
	at, own := r.s.Cgroup()
	if at == "" {
		return nil
	}
	r.oom, r.pids = t.cfg.Cgroups.Events(at)
	if !own {
		return nil
	}
	r.group.Once = r.bounds.group != (api.Limits{}) || r.params.Network != nil
	if !r.group.Once {
		r.group = r.set.takeSpare()
		if r.group.Name != "" {
			return nil
		}
	}
	// One of this name may still be there: the caller may choose an id again that an exec had which is
	// just ending, or whose cgroup is kept for others.
	name := r.id
	err := t.cfg.Cgroups.Make(at, name, r.bounds.group)
	for i := 2; errors.Is(err, fs.ErrExist) && i <= maxSameNames; i++ {
		name = r.id + "." + strconv.Itoa(i)
		err = t.cfg.Cgroups.Make(at, name, r.bounds.group)
	}
	if err != nil {
		return api.Errorf(api.ResourceExhausted, "%w", err).
			WithHint("the sandbox may have ended; else end some execs, or allow more cgroups (cgroup.max.descendants)")
	}
	r.group.Name = name
	return nil
}

// MakeSpare makes the cgroup of the first exec ahead of it: 5 % of a short command's way. What is read of cgroups at
// its beginning and end is read once, and so is open.
func (t *Table) MakeSpare(s Sandbox) error {
	at, own := s.Cgroup()
	if at != "" {
		_, _ = t.cfg.Cgroups.Events(at)
	}
	if !own {
		return nil
	}
	g := Group{Name: newID("ex_")} // as those that execs leave
	if err := t.cfg.Cgroups.Make(at, g.Name, api.Limits{}); err != nil {
		return err
	}
	_ = t.cfg.Cgroups.Reusable(at, g.Name)
	_, _, _ = t.cfg.Cgroups.Usage(at, g.Name)
	s.Commands().SetSpare(append(s.Commands().Spare(), g))
	return nil
}

// Spare are the cgroups that a sandbox has ready for commands.
func (set *Set) Spare() []Group {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.spare)
}

// SetSpare says which cgroups a sandbox has ready: as it is handed over, or none where they were killed.
func (set *Set) SetSpare(groups []Group) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.spare = groups
}

// takeSpare takes the one that was used last; it has no name where there is none.
func (set *Set) takeSpare() (g Group) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if n := len(set.spare); n > 0 {
		g, set.spare = set.spare[n-1], set.spare[:n-1]
	}
	return g
}

// keepSpare keeps r's cgroup, in which so much CPU time was used, for another, unless there are enough.
func (set *Set) keepSpare(r *Exec, used time.Duration) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	if len(set.spare) >= maxSpare {
		return false
	}
	set.spare = append(set.spare, Group{Name: r.group.Name, Used: used, number: r.group.number})
	r.group = Group{} // nobody may kill it in r's name any more
	return true
}

// groupNow is its cgroup.
func (r *Exec) groupNow() Group {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	return r.group
}

// Alone reports whether no other command has run in the sandbox meanwhile.
func (r *Exec) Alone() bool {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	return !r.company
}

// leaveGroup gives up the cgroup of an exec that has ended or never ran. What an
// exec has left behind still uses it, and is found in it by exec.kill.
func (r *Exec) leaveGroup() {
	if r.group.Name != "" {
		at, _ := r.s.Cgroup()
		r.t.cfg.Cgroups.Retire(at, r.group.Name)
	}
}

// settleGroup reads what the exec has used, and keeps its cgroup for another, or
// gives it up. One that was killed is never used again: since Linux 6.12 or so the
// kernel kills whatever is cloned into it later, for ever.
func (t *Table) settleGroup(r *Exec, killed bool) {
	if r.group.Name == "" {
		return
	}
	// Asked first: the use of an empty cgroup does not grow any more.
	at, _ := r.s.Cgroup()
	reusable := !killed && !r.group.Once && t.cfg.Cgroups.Reusable(at, r.group.Name)
	cpu, memory, err := r.usageOf(r.groupNow())
	if err != nil {
		reusable = false
	} else {
		r.cpu, r.memory = cpu-r.group.Used, max(r.memory, memory)
	}
	if !reusable || !r.set.keepSpare(r, cpu) {
		r.leaveGroup()
	}
}

// usageOf is what was used in an exec's cgroup, by those that had it before, too. memory is 0 where it is not the
// exec's alone: the kernel keeps the peak of all.
func (r *Exec) usageOf(g Group) (cpu time.Duration, memory int64, err error) {
	at, _ := r.s.Cgroup()
	cpu, memory, err = r.t.cfg.Cgroups.Usage(at, g.Name)
	if !g.Once || g.Used > 0 {
		memory = 0
	}
	return cpu, memory, err
}

// kill kills the exec and all it left behind. A PID 1 that does not report it in
// time is not trusted any more: the whole sandbox is killed.
func (t *Table) kill(r *Exec) (guestapi.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), KillTimeout)
	defer cancel()
	killed, err := r.killGroup(ctx)
	if err == nil {
		// PID 1 finds the tree where there is no cgroup, and frees the leader from a
		// debugger that holds its body.
		err = r.leader.Kill()
	}
	if err == nil {
		var end guestapi.Event
		if end, err = r.leader.Wait(ctx); err == nil {
			end.Killed = merge(r.PID(), killed, end.Killed)
			return end, nil
		}
	}
	r.s.Distrust("its PID 1 did not end an exec that was to be killed")
	return guestapi.Event{}, err
}

// killGroup kills by cgroup: a process can leave its parent, its group and its
// session, but not its cgroup. It returns nothing where there are none.
func (r *Exec) killGroup(ctx context.Context) ([]int, error) {
	g := r.groupNow()
	if g.Name == "" {
		return nil, nil
	}
	at, _ := r.s.Cgroup()
	return r.t.cfg.Cgroups.Kill(ctx, at, g.Name)
}

// merge joins lists of pids, the leader first.
func merge(leader int, lists ...[]int) []int {
	all := []int{}
	for _, pid := range slices.Concat(lists...) {
		switch {
		case slices.Contains(all, pid):
		case pid == leader:
			all = slices.Insert(all, 0, pid)
		default:
			all = append(all, pid)
		}
	}
	return all
}

// endLeft kills what an exec that has ended left behind.
func (t *Table) endLeft(r *Exec) ([]int, error) {
	if r.recalled { // nothing of it runs
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), KillTimeout)
	defer cancel()
	killed, err := r.killGroup(ctx)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV): // removed before or meanwhile
		return nil, nil // it left nothing, or the sandbox has ended
	case err != nil:
		return killed, err
	}
	if _, own := r.s.Cgroup(); own {
		return killed, nil
	}
	return nil, r.leader.Kill() // who they were PID 1 does not say after the leader's end
}

// refusedOwn says whether forks were refused in the exec's own cgroup, where kernels until
// 6.11 count them alone. A cgroup in which that happened is not used again.
func (r *Exec) refusedOwn() bool {
	if r.group.Name == "" || r.end.Status == 0 {
		return false
	}
	at, _ := r.s.Cgroup()
	_, pids := r.t.cfg.Cgroups.Events(path.Join(at, r.group.Name))
	return pids > 0
}

// judge finds out what the exec has used and how it ended.
func (t *Table) judge(r *Exec) {
	if u := r.end.Usage; u != nil {
		r.cpu = time.Duration(u.UserUS+u.SystemUS) * time.Microsecond
		r.memory = u.MaxRSSKB << 10
	}
	refused := r.refusedOwn()
	t.settleGroup(r, r.verdict != "")
	full := r.settleDisk()
	if r.verdict != "" {
		r.explain(nil)
		return
	}
	e := evidence{status: syscall.WaitStatus(r.end.Status), bounds: r.bounds, cpu: r.cpu}
	if at, _ := r.s.Cgroup(); at != "" && e.status != 0 {
		oom, pids := t.cfg.Cgroups.Events(at)
		e.oom, e.pids = oom > r.oom, pids > r.pids || refused
	}
	for _, st := range r.io.Streams {
		st.Len() // counts what has not been
	}
	e.output = r.output.Load()
	e.alone, e.disk = r.Alone(), full
	if r.verdict = e.verdict(); r.verdict == api.VerdictOOM || r.verdict == api.VerdictPIDs {
		r.met = r.limitMet()
	}
	r.explain(&e)
}

// settleDisk notes what the sandbox takes when the exec has ended. full says that its limit was met meanwhile.
func (r *Exec) settleDisk() (full bool) {
	used, full := r.s.EndUse(r.use, r.took, r.end.Status != 0)
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	r.notePeak(used)
	r.disk = r.peak
	return full
}

// explain says of a verdict which limit it was; e is what is known of the end of a leader
// that ended by itself.
func (r *Exec) explain(e *evidence) {
	if r.verdict != api.VerdictDisk {
		return
	}
	n, met := r.s.DiskLimit(r.disk)
	if e != nil && !e.disk { // SIGXFSZ
		if r.bounds.fsizeOwn {
			r.met = &api.LimitHit{Name: "rlimits.fsize", Of: "exec", Limit: int64(r.bounds.fileSize),
				Peak: int64(r.bounds.fileSize),
				Hint: "write smaller files, or allow larger ones: limits.rlimits.fsize, --ulimit fsize=BYTES"}
			return
		}
		if !r.use.Over {
			n.Why = "a single file was to become larger"
		}
	}
	r.met = met
	r.denials = append(r.denials, n)
}
