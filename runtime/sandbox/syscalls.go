package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
	"github.com/hutch-sh/hutch/runtime/refusals"
)

// watchCalls has PID 1 tell of the system calls that the sandbox is refused, and of its servers.
func (m *Manager) watchCalls(s *Sandbox) {
	s.guest.OnRefused(func(r guestapi.Refused) { m.callRefused(s, r) })
	s.guest.OnListen(func() { s.servers.Listens(serversBox{m, s}, m.watchers.Go) })
}

// callRefused records what PID 1 says of a refused call, as Denied does. All of it may be a lie:
// it changes nothing but what people are told.
func (m *Manager) callRefused(s *Sandbox, r guestapi.Refused) {
	if s.holdEarly(r) {
		return
	}
	if r.File != nil {
		m.fileRefused(s, r)
		return
	}
	profile := s.Record().Seccomp
	call, why, how, quiet := m.cfg.Seccomp.Explain(string(profile), r.NR, r.Args)
	if quiet {
		return
	}
	e := api.SyscallEvent{
		Syscall: call, Rule: "seccomp profile " + string(profile), Why: why, HowToAllow: how, Count: r.Count,
		Refusal: api.Refusal{By: "seccomp", Errno: unix.ErrnoName(unix.Errno(r.Errno)),
			Process: &api.NetProcess{PID: r.PID}},
	}
	if r.Command != "" {
		e.Process.Command = []string{r.Command}
	}
	for _, a := range r.Args {
		e.Args = append(e.Args, fmt.Sprintf("%#x", a))
	}
	d := api.Denial{
		Kind: api.KindSyscall, Target: call, Rule: e.Rule, Why: e.Why, HowToAllow: e.HowToAllow,
		Count: e.Count, Time: time.Now().UTC().Truncate(time.Millisecond), Refusal: e.Refusal,
	}
	d.Exec = s.caller(d, &r)
	s.seen.Enter(d, 0, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.emit(api.EventSyscallDenied, s, d.Exec, e)
	})
}

// holdEarly keeps r for tellEarly when the caller may be a command of which PID 1 has yet to say that it runs: one of
// its threads is told about calls, another of starts. Without cgroups a command is known by the PID that is said then.
func (s *Sandbox) holdEarly(r guestapi.Refused) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Session == 0 || len(s.early) >= refusals.MaxOfExec {
		return false
	}
	for _, x := range s.execs {
		if x.exec != nil && x.exec.PID == r.Session {
			return false
		}
	}
	held := false
	for x := range s.starting {
		pid := s.guest.PIDOf(x.guest)
		if pid == r.Session {
			return false
		}
		held = held || pid == 0 && x.group.Name == ""
	}
	if held {
		s.early = append(s.early, r)
	}
	return held
}

// tellEarly records what was held, now that another command is known to run, or not to.
func (m *Manager) tellEarly(s *Sandbox) {
	s.mu.Lock()
	early := s.early
	s.early = nil
	s.mu.Unlock()
	for _, r := range early {
		m.callRefused(s, r)
	}
}

// caller notes d with the exec whose process made the call, found by its cgroup or else its session, and
// returns that one's id; "" of what an earlier one has left behind.
func (s *Sandbox) caller(d api.Denial, r *guestapi.Refused) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := slices.AppendSeq(slices.Collect(maps.Values(s.execs)), maps.Keys(s.starting))
	i := slices.IndexFunc(run, func(x *running) bool {
		if x.group.Name != "" {
			return x.group.Name == r.Cgroup
		}
		if r.Session == 0 {
			return false
		}
		if s.starting[x] { // PID 1 has told that it runs, and nobody here has come round to it
			return s.guest.PIDOf(x.guest) == r.Session
		}
		return x.exec != nil && x.exec.PID == r.Session
	})
	if i < 0 && len(run) == 1 && !strings.HasPrefix(r.Cgroup, "ex_") {
		i = 0 // it has a session of its own, and nobody else is there
	}
	if i < 0 {
		return ""
	}
	d.Exec = run[i].id
	run[i].refuse(d)
	return d.Exec
}
