package refusals

import (
	"fmt"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/guest/guestapi"
)

// Call records what PID 1 reports of a system call that was refused, as Denied does: by the seccomp profile, or by the
// permissions of a file.
func (f *Refusals) Call(s Sandbox, r guestapi.Refused) {
	switch {
	case s.HoldEarly(r):
	case r.File != nil:
		f.file(s, &r)
	default:
		f.call(s, &r)
	}
}

func (f *Refusals) call(s Sandbox, r *guestapi.Refused) {
	profile := string(s.Record().Seccomp)
	call, why, how, probe := f.cfg.Seccomp.Explain(profile, r.NR, r.Args)
	e := api.SyscallEvent{
		Syscall: call, Rule: "seccomp profile " + profile, Why: why, HowToAllow: how, Count: r.Count,
		Probe: probe, Refusal: refused("seccomp", r),
	}
	for _, a := range r.Args {
		e.Args = append(e.Args, fmt.Sprintf("%#x", a))
	}
	d := api.Denial{
		Kind: api.KindSyscall, Target: call, Rule: e.Rule, Why: e.Why, HowToAllow: e.HowToAllow,
		Count: e.Count, Time: now(), Refusal: e.Refusal, Probe: probe,
	}
	d.Exec = s.Caller(d, r)
	s.Ledger().Enter(d, 0, func(count, untold int64) {
		e.Count, e.Untold = count, untold
		f.cfg.Events.Emit(api.EventSyscallDenied, s.ID(), d.Exec, e)
		s.Audit(api.AuditKind(api.EventSyscallDenied), d.Exec, e)
	})
}
