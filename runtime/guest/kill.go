package guest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

const (
	// freezeRounds bounds how often the tree is searched for processes forked
	// since the last look. A tree that outruns that is a fork bomb: the pids
	// limit and the sandbox's own end are the remedies.
	freezeRounds = 64
	// killRounds bounds how often survivors are killed again.
	killRounds = 8
	// killPatience is how long one round waits for the dead to die: a process in
	// an uninterruptible wait may take its time.
	killPatience = 500 * time.Millisecond
)

// signal sends sig to the exec's leader; one that is over is left alone.
func (s *server) signal(id uint64, sig unix.Signal) {
	s.mu.Lock() // the reaper must not free the pid in between
	defer s.mu.Unlock()
	if e := s.execs[id]; e != nil && s.byPID[e.pid] == e {
		_ = unix.Kill(e.pid, sig)
	}
}

// signalAll sends sig to every process but PID 1. The kernel does it in one go, with
// forks held off (kernel/signal.c, kill_something_info): no new process escapes.
func (s *server) signalAll(number uint64, sig unix.Signal) {
	if err := unix.Kill(-1, sig); err != nil && err != unix.ESRCH { // there is nobody
		s.ch.post(failure(number, guestapi.ReasonInternal, err, "signal all processes"))
		return
	}
	s.answer(guestapi.Event{Exec: number})
}

// kill ends the exec and what it left behind, in the background.
func (s *server) kill(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.execs[id]
	switch {
	case e == nil || e.killing:
	case e.pid == 0:
		e.killWanted = true
	case e.grouped:
		e.killing = true
		go s.killLeader(e)
	default:
		e.killing = true
		go s.killTree(e)
	}
}

// killTree kills the members of e: see members. They are all stopped first,
// because killing a parent makes its children orphans that nothing ties to e.
func (s *server) killTree(e *execution) {
	seen := []int{}
	s.stopGroup(e)
	for range killRounds {
		alive, groups := s.freeze(e)
		if len(alive) == 0 {
			break
		}
		for _, pid := range alive {
			if !slices.Contains(seen, pid) && len(seen) < guestapi.MaxKilled {
				seen = append(seen, pid)
			}
		}
		for _, target := range append(groups, alive...) {
			_ = unix.Kill(target, unix.SIGKILL)
		}
		awaitDeath(alive, time.Now().Add(killPatience))
	}
	s.killTracer(e)
	s.mu.Lock()
	e.killing, e.killed = false, seen
	s.announce(e)
	s.sweep([]*execution{e})
	s.mu.Unlock()
}

// killLeader ends the leader of an exec whose tree hutchd kills by its cgroup: one
// that it forked just after, or that a debugger outside of the cgroup holds.
func (s *server) killLeader(e *execution) {
	s.mu.Lock()
	if s.byPID[e.pid] == e {
		_ = unix.Kill(e.pid, unix.SIGKILL)
	}
	s.mu.Unlock()
	awaitDeath([]int{e.pid}, time.Now().Add(killPatience))
	s.killTracer(e)
	s.mu.Lock()
	e.killing = false
	s.announce(e)
	s.mu.Unlock()
}

// stopGroup stops the leader's group before anything else: a fork bomb leaves
// PID 1 little time to look around.
func (s *server) stopGroup(e *execution) {
	s.mu.Lock() // the reaper must not free the pid in between
	defer s.mu.Unlock()
	if s.byPID[e.pid] == e {
		_ = unix.Kill(-e.pid, unix.SIGSTOP)
	}
}

// killTracer frees a dead leader from a debugger: until that has waited for it,
// nobody else can (ptrace(2)), and hutchd would not hear of its end.
func (s *server) killTracer(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPID[e.pid] != e {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", e.pid))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "TracerPid:"); ok {
			if pid, err := strconv.Atoi(strings.TrimSpace(text)); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
}

// freeze stops the members of e until no new ones turn up. It returns their
// pids, the leader first, and their process groups as kill(2) takes them.
//
// Whole groups are stopped, because that is atomic with fork: a process that is
// forking gets the signal before, or its child gets it too (kernel/fork.c,
// copy_process). Members are never in a group with strangers: a group lies
// within a session.
func (s *server) freeze(e *execution) (pids, groups []int) {
	for range freezeRounds {
		fresh := false
		for _, p := range s.membersNow(e) {
			if !slices.Contains(groups, -p.pgrp) && p.pgrp > 1 {
				_ = unix.Kill(-p.pgrp, unix.SIGSTOP)
				groups, fresh = append(groups, -p.pgrp), true
			}
			if !slices.Contains(pids, p.pid) {
				pids, fresh = append(pids, p.pid), true
			}
		}
		if !fresh {
			break
		}
	}
	if i := slices.Index(pids, e.pid); i > 0 {
		pids[0], pids[i] = pids[i], pids[0]
	}
	return pids, groups
}

// membersNow looks for e's members among the living.
func (s *server) membersNow(e *execution) []process {
	procs, err := readProcesses()
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	view := family{origin: e.origin(), over: e.exit != nil}
	for _, other := range s.execs {
		if other != e && other.pid != 0 && !other.grouped {
			view.others = append(view.others, other.origin())
		}
	}
	return view.members(procs)
}

// awaitDeath waits until each of pids is gone or a zombie, or the deadline. A
// pidfd becomes readable then (pidfd_open(2)).
func awaitDeath(pids []int, deadline time.Time) {
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // ESRCH: gone
		}
		f := os.NewFile(uintptr(fd), "pidfd")
		left := max(0, time.Until(deadline).Milliseconds())
		for {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
			if err != unix.EINTR {
				break
			}
		}
		_ = f.Close()
	}
}
