package cgroups

// Hasten makes it short to move a process to another cgroup within the next milliseconds, of any hierarchy. It takes
// some itself and is for a goroutine of its own; while one is under way others do nothing.
//
// Whoever moves a process holds up all forks, and waits for a grace period of RCU before (kernel/cgroup/cgroup.c,
// cgroup_attach_lock; kernel/locking/percpu-rwsem.c, percpu_down_write): 5 to 15 ms, in which a sandbox would wait for
// nothing else. Who comes soon after another one does not wait (kernel/rcu/sync.c). So this moves the calling process
// to where it is. Beside cgroup v1 nobody is moved when a sandbox is launched (runtime/launch, birth.go), and who makes
// a cgroup would wait for this.
func (x *Execs) Hasten() {
	if x.mode != V2 || x.own == "" || !x.hastening.CompareAndSwap(false, true) {
		return
	}
	defer x.hastening.Store(false)
	_ = x.stay() // what fails takes as long as before
}

// stay moves this process to the daemon's group, in which it is.
func (x *Execs) stay() error { return write(x.own, "0") }
