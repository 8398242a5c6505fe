package sandbox

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// watchCalls has PID 1 tell of the system calls that the sandbox is refused, and of its servers.
func (m *Manager) watchCalls(s *Sandbox) {
	s.guest.OnRefused(func(r guestapi.Refused) { m.callRefused(s, r) })
	s.guest.OnListen(func() { s.servers.Listens(serversBox{m, s}, m.watchers.Go) })
}

// callRefused records what PID 1 says of a refused call, as Denied does. All of it may be a lie:
// it changes nothing but what people are told.
func (m *Manager) callRefused(s *Sandbox, r guestapi.Refused) {
	if s.execs.HoldEarly(guestInit{s.guest}, r) {
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
	d.Exec = s.execs.Caller(guestInit{s.guest}, d, &r)
	s.seen.Enter(d, 0, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		m.emit(api.EventSyscallDenied, s, d.Exec, e)
	})
}
