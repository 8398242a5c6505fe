package guest

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// reapBatch bounds how many children are reaped in one go, with the lock held: a
// fork bomb must not keep a kill waiting.
const reapBatch = 256

// reapLoop waits for children: PID 1 gets every orphan of the sandbox besides its
// own.
func (s *server) reapLoop(chld <-chan os.Signal) {
	for range chld {
		for more := true; more; {
			s.mu.Lock()
			more = s.reap()
			s.mu.Unlock()
		}
	}
}

// reap is the only place that waits for children (a fork that fails is waited for
// inside syscall.ForkExec, under the same lock). It reaps those that have ended,
// tells of the leaders among them, and forgets the execs of which nothing is left:
// before another one can be forked, whose orphans might be theirs. It tells whether
// there may be more.
func (s *server) reap() (more bool) {
	var over []*execution
	orphan := false
	for range reapBatch {
		exit := &processExit{}
		pid, err := unix.Wait4(-1, &exit.status, unix.WNOHANG, &exit.usage)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if more = err == nil && pid > 0; !more { // ECHILD, or none has ended
			break
		}
		e := s.byPID[pid]
		switch {
		case exit.status.Stopped():
			// One that asked to be traced by its parent (PTRACE_TRACEME), which PID 1 is. Nobody
			// will let it go on, as under any parent that is no debugger.
		case e == nil:
			orphan = true
		default:
			delete(s.byPID, pid)
			e.exit = exit
			s.announce(e)
			if !e.grouped { // else its children are looked for elsewhere
				over = append(over, e)
			}
		}
	}
	if orphan {
		over = append(over, s.keptEnded()...)
	}
	s.sweep(over)
	return more
}

// keptEnded are the execs that have ended and may have left something. They hide
// the orphans of younger ones (see family.members), so they are looked at again
// whenever an orphan has ended.
func (s *server) keptEnded() (kept []*execution) {
	for _, e := range s.execs {
		if e.exit != nil && !e.grouped {
			kept = append(kept, e)
		}
	}
	return kept
}

// sweep forgets the execs that have just ended and left nothing behind, and, if
// there is no orphan at all, every one that has ended.
//
// When a leader is gone, all that its exec left are orphans, children of PID 1,
// or below one. So an exec has left nothing if each orphan is older than it or
// belongs to the session of another.
func (s *server) sweep(over []*execution) {
	if len(over) == 0 {
		return
	}
	orphans, known := s.orphans()
	if known && len(orphans) == 0 {
		s.dropEnded()
		return
	}
	for _, e := range over {
		if known && !s.mayHaveLeft(e, orphans) {
			s.forgetEnded(e)
		}
	}
}

// dropEnded makes room by forgetting every exec that has ended, whatever it has
// left: a kill will not find that any more.
func (s *server) dropEnded() {
	for _, e := range s.execs {
		s.forgetEnded(e)
	}
}

func (s *server) forgetEnded(e *execution) {
	if e.announced && !e.killing {
		s.forget(e)
	}
}

// mayHaveLeft tells whether one of orphans may come from e.
func (s *server) mayHaveLeft(e *execution, orphans []process) bool {
	for _, o := range orphans {
		if o.sid == e.pid || e.origin().older(o) && !s.isSession(o.sid) {
			return true
		}
	}
	return false
}

// isSession tells whether sid is the session of a known exec.
func (s *server) isSession(sid int) bool {
	for _, e := range s.execs {
		if e.pid == sid {
			return true
		}
	}
	return false
}

// orphans lists the children of PID 1 that are no leaders. Orphans are given to
// the main thread (kernel/exit.c, find_new_reaper), whose list is one file where
// the kernel has CONFIG_PROC_CHILDREN; elsewhere known is false.
func (s *server) orphans() (list []process, known bool) {
	data, err := os.ReadFile("/proc/1/task/1/children")
	if err != nil {
		return nil, false
	}
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, false
		}
		if s.byPID[pid] != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil && !p.dead() { // nothing is left of the dead
			list = append(list, p)
		}
	}
	return list, true
}
