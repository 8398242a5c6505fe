package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// story tells on standard error what hutch does around a command, a line at a time.
type story struct {
	out     io.Writer
	style   cli.Style
	begun   time.Time
	seccomp api.SeccompProfile // of the sandbox
}

func (s *story) head(format string, args ...any) {
	fmt.Fprintf(s.out, "%s\n", s.style.Bold(cli.Line(fmt.Sprintf(format, args...))))
}

func (s *story) line(name, format string, args ...any) {
	fmt.Fprintf(s.out, "  %-14s %s\n", name, cli.Line(fmt.Sprintf(format, args...)))
}

// narrate runs the command and tells what was done before, what happens meanwhile and what came of it.
func (r *runner) narrate(ctx context.Context, sb *api.Sandbox, argv []string) error {
	s := &story{out: os.Stderr, style: cli.StyleFor(os.Stderr), begun: time.Now(), seccomp: sb.Seccomp}
	s.head("sandbox %s, made in %.1f ms", sb.ID, sb.PhasesMS["total"])
	for _, step := range sb.Debug.Steps {
		s.line(step.Name, "%7.1f ms  %s", step.MS, step.Detail)
	}
	s.walls(sb)
	events, err := r.whatHappens(ctx, sb)
	if err != nil {
		return err
	}
	defer events.Close()
	s.head("%s", cli.Line(strings.Join(argv, " ")))
	s.begun = time.Now()
	err = meanwhile(ctx, events, s.tell, func() error { return r.exec(ctx, sb, argv) })
	if r.result != nil {
		s.end(r.result)
	}
	return err
}

// whatHappens subscribes to what the story of a command has.
func (r *runner) whatHappens(ctx context.Context, sb *api.Sandbox) (*client.Events, error) {
	return r.client.Subscribe(ctx, api.SubscribeParams{Sandbox: sb.ID, Kinds: []api.EventKind{
		api.EventExecStarted, api.EventExecExited, api.EventNetworkDenied, api.EventNetworkFailed,
		api.EventSyscallDenied, api.EventFileDenied, api.EventLimitHit, api.EventUnguarded, api.EventSandboxState,
	}})
}

// meanwhile runs fn, which runs a command, and hands each event to tell until that of the command's end.
func meanwhile(ctx context.Context, events *client.Events, tell func(*api.Event), fn func() error) error {
	ended := make(chan struct{})
	listen, stop := context.WithCancelCause(ctx)
	go func() {
		defer close(ended)
		for e, err := range events.All(listen) {
			if err != nil {
				return
			}
			if tell(&e); e.Kind == api.EventExecExited {
				return
			}
		}
	}()
	err := fn()
	select { // the last events are a moment behind the result
	case <-ended:
	case <-time.After(lastEvents):
	}
	stop(nil)
	<-ended
	return err
}

// walls tells what stands around a sandbox.
func (s *story) walls(sb *api.Sandbox) {
	s.head("around it")
	for _, w := range sb.Isolation.Walls {
		mark := s.style.Green("yes")
		if w.Status != "yes" {
			mark = s.style.Yellow(fmt.Sprintf("%-3s", w.Status))
		}
		fmt.Fprintf(s.out, "  %s  %-18s %s\n", mark, cli.Line(w.Name), cli.Line(w.Detail))
	}
}

// lastEvents bounds how long the event of a command's end is waited for.
const lastEvents = 2 * time.Second

// tell tells an event.
func (s *story) tell(e *api.Event) {
	at := e.Time.Sub(s.begun).Seconds() * 1e3
	switch e.Kind {
	case api.EventExecStarted:
		var d api.StartedEvent
		if json.Unmarshal(e.Data, &d) == nil {
			s.line("started", "%7.1f ms  %s, pid %d inside", at, d.Program, d.PID)
		}
	case api.EventNetworkDenied, api.EventSyscallDenied, api.EventFileDenied:
		if d, _, ok := denialOf(e); ok && !d.Probe {
			s.denied(fmt.Sprintf("%.1f ms", at), &d, argsOf(e))
		}
	case api.EventNetworkFailed:
		if f, _, ok := failureOf(e); ok {
			s.line("failed", "%7.1f ms  %s", at, f.Text())
		}
	case api.EventLimitHit:
		var d api.LimitEvent
		if json.Unmarshal(e.Data, &d) == nil {
			s.line(s.style.Red("limit"), "%7.1f ms  %s: %s", at, d.Limit, d.Detail)
		}
	case api.EventSandboxState:
		var d api.StateEvent
		if json.Unmarshal(e.Data, &d) == nil {
			s.line("state", "%7.1f ms  %s %s", at, d.State, d.Reason)
		}
	}
}

// argsOf are the arguments of a refused call, "" of other events.
func argsOf(e *api.Event) string {
	var c api.SyscallEvent
	if e.Kind != api.EventSyscallDenied || json.Unmarshal(e.Data, &c) != nil {
		return ""
	}
	return "(" + strings.Join(c.Args, ", ") + ")"
}

func (s *story) denied(at string, d *api.Denial, args string) {
	s.line("refused", "%10s  %s, by %s: %s (rule %s)", at, d.Target+args, strings.TrimSpace(d.By+" "+d.Errno),
		d.Why, d.Rule)
	if w := who(d); w != "" {
		s.line("", "            to %s", w)
	}
	if d.HowToAllow != "" {
		s.line("", "            to allow it: %s", d.HowToAllow)
	}
}

// end tells how the command has ended.
func (s *story) end(res *api.ExecResult) {
	s.head("ended after %.1f ms: %s, exit code %d", res.DurationMS, res.Verdict, res.ExitCode)
	if peaks, err := json.Marshal(res.Peaks); err == nil {
		s.line("used", "%s", peaks)
	}
	if l := res.Limit; l != nil {
		s.line("limit", "%s of the %s: %d, peak %d; %s", l.Name, l.Of, l.Limit, l.Peak, l.Hint)
	}
	if len(res.Killed) > 0 {
		s.line("killed", "pids %v inside", res.Killed)
	}
	for _, d := range res.Denials {
		if !d.Watched() {
			s.line("refused", "%s %s: %s; %s", d.Kind, d.Target, d.Why, d.HowToAllow)
		}
	}
	for _, u := range res.Unguarded {
		s.line("unguarded", "%s: %s; %s", u.Path, u.Why, u.Hint)
	}
	if len(res.Denials)+len(res.Failures) == 0 && res.ExitCode != 0 {
		s.line("refused", "nothing that is recorded; not recorded are %s", unrecorded(s.seccomp))
	}
}
