package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// What becomes of an agent's changes.

// finish says how the agent ended, what was refused and what it has changed, and does with that what its user wants.
func (a *agent) finish(ctx context.Context) error {
	w, err := whyOf(ctx, a.client, a.sandbox)
	if err != nil {
		return err
	}
	w.hideProbes()
	d, err := a.client.DiffWorkspace(ctx, api.WorkspaceDiffParams{
		WorkspaceParams: api.WorkspaceParams{Sandbox: a.sandbox}, Unified: true,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "hutch: agent %s %s\n", a.name, howEnded(a.result))
	tellGroups(os.Stderr, w, a.name)
	noticed := make(chan struct{}) // nobody at the terminal waits for a server
	go func() {
		defer close(noticed)
		a.noticeEnd(ctx, len(d.Changes), len(w.Denials))
	}()
	defer func() { <-noticed }()
	outcome := error(nil)
	if a.result != nil {
		outcome = cli.Outcome(a.result)
	}
	if len(d.Changes) == 0 {
		fmt.Fprintln(os.Stderr, "hutch: it has changed nothing in your folder")
		tell(a.remove(ctx))
		return outcome
	}
	if err := a.show(&d); err != nil {
		return err
	}
	done, err := a.decide(ctx, &d, outcome == nil)
	switch {
	case err != nil:
		a.tellKept()
		return err
	case done:
		tell(a.remove(ctx))
		return outcome
	}
	a.tellKept()
	if a.flags.apply && outcome == nil { // as hutch workspace apply has it
		return &cli.Exit{Code: 1}
	}
	return outcome
}

// howEnded is how and when.
func howEnded(res *api.ExecResult) string {
	if res == nil {
		return "has ended, nobody knows how any more"
	}
	took := time.Duration(res.DurationMS * float64(time.Millisecond))
	unit := time.Second
	switch {
	case took < time.Second:
		unit = time.Millisecond
	case took < 10*time.Second:
		unit = 100 * time.Millisecond
	}
	text := fmt.Sprintf("ended after %s: exit code %d", took.Round(unit), res.ExitCode)
	if res.Verdict != api.VerdictOK && res.Verdict != api.VerdictNonzero {
		text += ", by " + string(res.Verdict)
	}
	return text
}

// show prints the diff: on the terminal, or beside what the agent has written.
func (a *agent) show(d *api.WorkspaceDiff) error {
	out := os.Stderr
	if cli.IsTerminal(os.Stdout) {
		out = os.Stdout
	}
	if err := showDiff(out, d.Diff); err != nil {
		return err
	}
	if !isWhole(d) {
		fmt.Fprintf(os.Stderr, "hutch: the diff is longer: hutch workspace diff %s PATH...\n", a.sandbox)
	}
	return printDiffStat(os.Stderr, cli.StyleFor(os.Stderr), statsOf(d.Diff), !isWhole(d))
}

// isWhole reports whether a diff shows all that has changed.
func isWhole(d *api.WorkspaceDiff) bool { return !d.Truncated && d.Next == "" }

// decide applies or throws away the changes, and reports whether nothing is left of them.
func (a *agent) decide(ctx context.Context, d *api.WorkspaceDiff, well bool) (done bool, err error) {
	p := api.WorkspaceApplyParams{WorkspaceParams: api.WorkspaceParams{Sandbox: a.sandbox}, Digest: d.Digest}
	switch {
	case a.flags.discard:
		fmt.Fprintln(os.Stderr, "hutch: the changes are thrown away, as --discard says")
		return true, nil
	case a.flags.apply && well:
		return a.applyChanges(ctx, &p)
	case a.flags.apply:
		fmt.Fprintln(os.Stderr, "hutch: nothing was applied: --apply is for agents that end with exit code 0")
		return false, nil
	case !cli.IsTerminal(os.Stdin) || !cli.IsTerminal(os.Stderr):
		fmt.Fprintln(os.Stderr, "hutch: nothing was applied: there is no terminal to ask at, and no --apply")
		return false, nil
	}
	if !isWhole(d) {
		fmt.Fprintf(os.Stderr, "hutch: the diff is not whole, so that y is no answer: choose, or see the rest and apply it by hutch workspace apply %s\n",
			a.sandbox)
	}
	switch answer, err := askTerminal(ctx, isWhole(d)); {
	case err != nil:
		return false, err
	case answer == 'd':
		fmt.Fprintln(os.Stderr, "hutch: the changes are thrown away")
		return true, nil
	case answer == 'y':
		return a.applyChanges(ctx, &p)
	case answer == 'c':
		if err := chooseChanges(ctx, a.client, &p); err != nil || len(p.Paths) == 0 {
			return false, err
		}
		_, err := a.applyChanges(ctx, &p)
		return false, err // what was not chosen is still there
	}
	return false, nil
}

// askTerminal asks at the terminal what is to be done, whole if all of it was shown. Ctrl-C is no.
func askTerminal(ctx context.Context, whole bool) (byte, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	type result struct {
		answer byte
		err    error
	}
	got := make(chan result, 1)
	cli.DropInput(os.Stdin) // which was typed at what the agent has shown
	go func() {
		answer, err := askApply(bufio.NewReader(os.Stdin), os.Stderr, whole)
		got <- result{answer, err}
	}()
	select {
	case r := <-got:
		return r.answer, r.err
	case <-ctx.Done(): // the reader ends with this process, which has nothing more to ask
		fmt.Fprintln(os.Stderr)
		return 'n', nil
	}
}

// askApply asks what is to be done: y, where whole, n, c or d. The end of the input is no.
func askApply(in *bufio.Reader, out io.Writer, whole bool) (byte, error) {
	help := "  n        keep it in the sandbox\n  c        choose files, or parts of them\n" +
		"  discard  throw it away, with the sandbox\n"
	letters, question := "nc", "Apply a part of this to your folder? [n,c,discard,?] "
	if whole {
		help = "  y        apply it to your folder, but for what your own programs take instructions from\n" + help
		letters, question = "ync", "Apply this to your folder? [y,n,c,discard,?] "
	}
	for {
		fmt.Fprint(out, question)
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			fmt.Fprintln(out)
			return 'n', nil
		}
		if err != nil {
			return 0, err
		}
		switch line = strings.ToLower(strings.TrimSpace(line)); {
		case len(line) == 1 && strings.Contains(letters, line), line == "discard": // whose first letter is another question's
			return line[0], nil
		}
		fmt.Fprint(out, help)
	}
}

// applyChanges applies what was shown and nothing that came later, and reports whether that was all.
func (a *agent) applyChanges(ctx context.Context, p *api.WorkspaceApplyParams) (all bool, err error) {
	files, err := applyTo(ctx, a.client, "", p)
	if err != nil {
		return false, err
	}
	defer files.Close()
	r, err := a.client.ApplyWorkspace(ctx, *p, files.Files...)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "hutch: applied: %s\n", counted(len(r.Applied), "change"))
	for _, f := range r.Failed {
		fmt.Fprintf(os.Stderr, "hutch: not applied: %s: %s\n", plain(f.Path), cli.Line(f.Why))
	}
	return len(r.Failed) == 0 && r.More == 0, nil
}

// tellKept says how to go on.
func (a *agent) tellKept() {
	fmt.Fprintf(os.Stderr, `hutch: sandbox %[1]s is kept, with the changes that are not in your folder:
  hutch workspace diff %[1]s       hutch workspace apply %[1]s [PATH...]
  hutch rm -f %[1]s                throws them away
`, a.sandbox)
}

// remove removes a sandbox of which nothing is left to apply.
func (a *agent) remove(ctx context.Context) error {
	if a.flags.keep {
		fmt.Fprintf(os.Stderr, "hutch: kept sandbox %s\n", a.sandbox)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if _, err := a.client.Remove(ctx, a.sandbox); !notFound(err) {
		return err
	}
	return nil
}

// maxGrouped bounds the targets of a line.
const maxGrouped = 8

// allowFlag is a flag that is shown to be typed again. Whoever chose its name may have been the sandbox: it has nothing
// that a shell obeys.
var allowFlag = regexp.MustCompile(`^--allow(-cidr)? [A-Za-z0-9.:/\[\]_-]+$`)

// tellGroups says what was refused, by kind, and with which flags it would not be.
func tellGroups(w io.Writer, all *why, agent string) {
	style := cli.StyleFor(os.Stderr)
	var flags []string
	for _, kind := range []string{api.KindNet, api.KindSyscall, api.KindFile} {
		list := slices.DeleteFunc(slices.Clone(all.Denials), func(d api.Denial) bool { return d.Kind != kind })
		slices.SortStableFunc(list, func(a, b api.Denial) int { return int(min(b.Count, 1<<30) - min(a.Count, 1<<30)) })
		var targets []string
		reason := ""
		for _, d := range list {
			text := d.Target
			if d.Count > 1 {
				text += fmt.Sprintf(" (%d times)", d.Count)
			}
			if !slices.Contains(targets, text) {
				targets = append(targets, text)
			}
			if kind == api.KindNet && allowFlag.MatchString(d.HowToAllow) && !slices.Contains(flags, d.HowToAllow) {
				flags = append(flags, d.HowToAllow)
			}
			reason = d.Why
		}
		if len(targets) == 0 {
			continue
		}
		more := ""
		if n := len(targets) - maxGrouped; n > 0 {
			targets, more = targets[:maxGrouped], fmt.Sprintf(" and %d more: hutch why %s", n, all.Sandbox)
		}
		if kind == api.KindNet { // names mostly have a reason each that says nothing more
			reason = ""
		} else {
			reason = ": " + reason
		}
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: refused: "+deniedKinds[kind]+":"),
			cli.Line(strings.Join(targets, ", ")+more+reason))
	}
	if len(flags) > 0 {
		fmt.Fprintf(w, "hutch: to allow it next time: hutch agent %s %s\n",
			strings.Join(flags[:min(len(flags), maxGrouped)], " "), agent)
	}
	for _, f := range all.Failures[:min(len(all.Failures), maxTold)] {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: network:"), cli.Line(f.Text()))
	}
}
