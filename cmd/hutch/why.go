package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newWhy() *cobra.Command {
	asJSON, verbose := false, false
	cmd := &cobra.Command{
		Use: "why [flags] SANDBOX",
		Long: `Say what a sandbox was refused so far, why, and how to allow it, and which connections that it
may make have failed, and why. Of a sandbox that is gone, by its id, what the daemon's events still tell. What programs
try by themselves and do as well without, such as Chromium's look for updates, is listed by --verbose.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				w, err := whyOf(cmd.Context(), c, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), w)
				}
				if !verbose {
					w.hideProbes()
				}
				w.print(cmd.OutOrStdout(), time.Now())
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false,
		"also what programs try by themselves and do as well without")
	return cmd
}

// why is what a sandbox was refused, the latest last.
type why struct {
	Sandbox string       `json:"sandbox"`
	Mode    api.NetMode  `json:"mode,omitempty"` // "" of a sandbox that is gone
	Denials []api.Denial `json:"denials"`
	probes  int          // that are not in Denials
	// Failures are what it was allowed, and failed outside.
	Failures []api.Failure `json:"failures,omitempty"`
	Untold   int64         `json:"untold,omitempty"` // further ones of both, of which no more is known
	// Seccomp is "" of a sandbox that is gone.
	Seccomp api.SeccompProfile `json:"seccomp,omitempty"`
	// Enforcement is nil of a sandbox that is gone.
	Enforcement *api.NetEnforcement `json:"enforcement,omitempty"`
}

// whyOf joins what the daemon remembers with what its events tell, which outlive it and
// the sandbox but do not tell of every repetition.
func whyOf(ctx context.Context, c *client.Client, ref string) (*why, error) {
	n, err := c.Network(ctx, ref)
	if err != nil && !notFound(err) {
		return nil, err
	}
	gone := err
	id := ref
	if gone == nil {
		id = n.Sandbox
	}
	w, err := replay(ctx, c, id)
	switch {
	case err != nil:
		return nil, err
	case gone != nil && len(w.Denials)+len(w.Failures) == 0:
		return nil, gone
	}
	if w.Mode = n.Network.Mode; gone == nil {
		w.Enforcement = &n.Enforcement
		if sb, err := c.GetSandbox(ctx, id); err == nil {
			w.Seccomp = sb.Seccomp
		}
	}
	w.Untold = max(w.Untold, n.Untold)
	for _, d := range n.Denials {
		same := func(o api.Denial) bool { return refusedAs(&o) == refusedAs(&d) }
		if i := slices.IndexFunc(w.Denials, same); i < 0 {
			w.Denials = append(w.Denials, d)
		} else {
			d.Count = max(d.Count, w.Denials[i].Count)
			w.Denials[i] = d
		}
	}
	for _, f := range n.Failures {
		same := func(o api.Failure) bool { return o.NetTarget == f.NetTarget && o.Why == f.Why }
		if i := slices.IndexFunc(w.Failures, same); i < 0 {
			w.Failures = append(w.Failures, f)
		} else {
			f.Count = max(f.Count, w.Failures[i].Count)
			w.Failures[i] = f
		}
	}
	slices.SortFunc(w.Denials,
		func(a, b api.Denial) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Target, b.Target)) })
	slices.SortFunc(w.Failures,
		func(a, b api.Failure) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Target, b.Target)) })
	return w, nil
}

// refused is what makes two denials the same. Another reason takes another remedy.
type refused struct {
	api.NetTarget
	rule, why string
	call      string // of a system call or file
}

func refusedAs(d *api.Denial) refused {
	r := refused{NetTarget: d.NetTarget, rule: d.Rule, why: d.Why}
	if d.Kind != api.KindNet {
		r.call = d.Kind + d.Target
	}
	return r
}

// denialOf is what an event tells was refused, and how many others were that no event is for.
func denialOf(e *api.Event) (d api.Denial, untold int64, ok bool) {
	switch e.Kind {
	case api.EventNetworkDenied:
		var n api.DeniedEvent
		if json.Unmarshal(e.Data, &n) != nil {
			return d, 0, false
		}
		d = api.Denial{Kind: api.KindNet, Target: n.Where(), NetTarget: n.NetTarget, Rule: n.Rule, Why: n.Why,
			HowToAllow: n.HowToAllow, Refusal: n.Refusal, Count: n.Count, Probe: n.Probe}
		untold = n.Untold
	case api.EventSyscallDenied:
		var c api.SyscallEvent
		if json.Unmarshal(e.Data, &c) != nil {
			return d, 0, false
		}
		d = api.Denial{Kind: api.KindSyscall, Target: c.Syscall, Rule: c.Rule, Why: c.Why, HowToAllow: c.HowToAllow,
			Refusal: c.Refusal, Count: c.Count, Probe: c.Probe}
		untold = c.Untold
	case api.EventFileDenied:
		var f api.FileEvent
		if json.Unmarshal(e.Data, &f) != nil {
			return d, 0, false
		}
		d = api.Denial{Kind: api.KindFile, Target: f.Op + " " + f.Path, Rule: f.Rule, Why: f.Why,
			HowToAllow: f.HowToAllow, Refusal: f.Refusal, Count: f.Count}
		untold = f.Untold
	default:
		return d, 0, false
	}
	d.Exec, d.Time = e.Exec, e.Time
	return d, untold, true
}

// unrecorded is what refuses system calls without a word: the commands' filter on top of PID 1's, and ENOSYS, which
// programs only try (seccomp/DESIGN.md).
func unrecorded(profile api.SeccompProfile) string {
	const always = "system calls that fail with ENOSYS"
	switch profile {
	case "", api.SeccompDefault, api.SeccompBrowser: // PID 1's filter is theirs
		return always
	case api.SeccompCustom:
		return always + ", and those that a profile of your own refuses"
	}
	return fmt.Sprintf("%s, and those that the seccomp profile %s refuses and default does not "+
		"(hutch debug run --show seccomp --seccomp %s -- true lists them)", always, profile, profile)
}

// replay reads what the daemon's events tell of a sandbox.
func replay(ctx context.Context, c *client.Client, id string) (*why, error) {
	first, follow := int64(1), false
	events, err := c.Subscribe(ctx, api.SubscribeParams{
		Sandbox: id, Kinds: []api.EventKind{api.EventNetworkDenied, api.EventNetworkFailed, api.EventSyscallDenied,
			api.EventFileDenied}, FromSeq: &first, Follow: &follow,
	})
	if err != nil {
		return nil, err
	}
	defer events.Close()
	w := &why{Sandbox: id, Denials: []api.Denial{}}
	at := map[refused]int{}
	for e, err := range events.All(ctx) {
		if err != nil {
			return nil, err
		}
		if w.addFailure(&e) {
			continue
		}
		d, untold, ok := denialOf(&e)
		if !ok {
			continue // a gap: what it was is not known
		}
		w.Untold += untold
		key := refusedAs(&d)
		i, ok := at[key]
		if !ok {
			i = len(w.Denials)
			at[key] = i
			w.Denials = append(w.Denials, d)
			continue
		}
		d.Count += w.Denials[i].Count
		w.Denials[i] = d
	}
	return w, nil
}

// failureOf is the failed connection that an event tells of.
func failureOf(e *api.Event) (f api.Failure, untold int64, ok bool) {
	var n api.FailedEvent
	if e.Kind != api.EventNetworkFailed || json.Unmarshal(e.Data, &n) != nil {
		return f, 0, false
	}
	return api.Failure{
		Target: n.Where(), Why: n.Why, Hint: n.Hint, NetTarget: n.NetTarget, Exec: e.Exec, Errno: n.Errno,
		Count: n.Count, Time: e.Time,
	}, n.Untold, true
}

// addFailure adds what an event of a failed connection tells, and says whether it is one.
func (w *why) addFailure(e *api.Event) bool {
	f, untold, ok := failureOf(e)
	if !ok {
		return false
	}
	w.Untold += untold
	i := slices.IndexFunc(w.Failures, func(o api.Failure) bool { return o.NetTarget == f.NetTarget && o.Why == f.Why })
	if i < 0 {
		w.Failures = append(w.Failures, f)
		return true
	}
	f.Count += w.Failures[i].Count
	w.Failures[i] = f
	return true
}

// hideProbes leaves out what programs do as well without.
func (w *why) hideProbes() {
	all := len(w.Denials)
	w.Denials = slices.DeleteFunc(w.Denials, func(d api.Denial) bool { return d.Probe })
	w.probes = all - len(w.Denials)
}

// print writes tables.
func (w *why) print(out io.Writer, now time.Time) {
	if w.probes > 0 {
		defer fmt.Fprintf(out, "%d refused that programs do as well without: hutch why --verbose %s\n", w.probes, w.Sandbox)
	}
	if len(w.Denials) > 0 {
		t := cli.Table{Header: []string{"TIMES", "LAST", "WHAT", "BY", "WHO", "RULE", "WHY", "TO ALLOW IT"},
			Right: []bool{true}}
		for _, d := range w.Denials {
			t.Row(strconv.FormatInt(d.Count, 10), cli.Ago(now, d.Time), d.Target, d.By, who(&d), d.Rule, d.Why,
				d.HowToAllow)
		}
		t.Print(out, "", nil)
	}
	if hint := anewFor(w.Denials); hint != "" {
		fmt.Fprintf(out, "\n%s\n", strings.ToUpper(hint[:1])+hint[1:]+".")
	}
	if len(w.Failures) > 0 {
		if len(w.Denials) > 0 {
			fmt.Fprintln(out)
		}
		t := cli.Table{Header: []string{"TIMES", "LAST", "ALLOWED, AND FAILED", "WHO", "SAW", "WHY", "WHAT TO DO"},
			Right: []bool{true}}
		for _, f := range w.Failures {
			t.Row(strconv.FormatInt(f.Count, 10), cli.Ago(now, f.Time), f.Target, f.Exec, f.Errno, f.Why, f.Hint)
		}
		t.Print(out, "", nil)
	}
	switch {
	case len(w.Denials)+len(w.Failures) > 0:
	case w.Mode == api.NetNone:
		fmt.Fprintf(out, "Sandbox %s has no network, and nothing in it has wanted one so far. Not recorded are %s.\n",
			w.Sandbox, unrecorded(w.Seccomp))
		return
	default:
		fmt.Fprintf(out, "Sandbox %s was refused nothing that is recorded so far, and nothing that it may reach has failed. Not recorded are %s.\n",
			w.Sandbox, unrecorded(w.Seccomp))
		return
	}
	if w.Enforcement != nil {
		fmt.Fprintf(out, "\nenforcement: %s\n", enforcementLine(w.Enforcement))
	}
	if w.Untold > 0 {
		fmt.Fprintf(out, "and %d more, which came too fast to be recorded\n", w.Untold)
	}
}

// who is the process that was refused, as far as it is known.
func who(d *api.Denial) string {
	p := d.Process
	if p == nil {
		return d.Exec
	}
	line := strings.TrimSpace(fmt.Sprintf("%s pid %d", d.Exec, cmp.Or(p.PID, p.HostPID)))
	if len(p.Command) > 0 {
		line += " " + p.Command[0]
	}
	return line
}
