package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxTold is how many refusals and failures are told behind a command that failed.
const maxTold = 3

// told is one of them.
type told struct {
	what, text string
	count      int64
}

// toldOf is what was refused and what failed while a command ran, the most frequent first.
func toldOf(res *api.ExecResult) (all []told) {
	for _, d := range res.Denials {
		what := ""
		switch d.Kind {
		case api.KindNet:
			what = "network"
		case api.KindSyscall:
			what = "system call"
		case api.KindFile:
			what = "file"
		default:
			continue
		}
		text := d.Target + " was refused: " + d.Why
		if d.HowToAllow != "" {
			text += " (" + d.HowToAllow + ")"
		}
		all = append(all, told{what, text, d.Count})
	}
	for _, f := range res.Failures {
		all = append(all, told{"network", f.Text(), f.Count})
	}
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(b.count, a.count) })
	return all
}

// tellDenials says behind the output of a command that failed what was refused and what failed meanwhile: that may be
// why.
func tellDenials(w io.Writer, res *api.ExecResult, sandbox string) {
	style := cli.StyleFor(os.Stderr)
	for _, u := range res.Unguarded { // whatever became of the command
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: workspace:"),
			cli.Line(fmt.Sprintf("%s is not guarded: %s (%s)", u.Path, u.Why, u.Hint)))
	}
	if res.ExitCode == 0 {
		return
	}
	all := toldOf(res)
	for _, t := range all[:min(len(all), maxTold)] {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: "+t.what+":"), cli.Line(t.text))
	}
	if res.Hint != "" {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: hint:"), cli.Line(res.Hint))
	}
	if len(all) > maxTold {
		fmt.Fprintf(w, "%s %d more: hutch why %s\n", style.Yellow("hutch: refused:"), len(all)-maxTold, sandbox)
	}
}

// anewFor is how flags that allow something come to a sandbox that was made without a network, "" where that refused
// nothing: one that has none cannot get one.
func anewFor(denials []api.Denial) string {
	if !slices.ContainsFunc(denials, func(d api.Denial) bool { return d.Rule == "mode none" }) {
		return ""
	}
	return "a sandbox without a network cannot get one: make it anew with these flags (hutch create, hutch run)"
}
