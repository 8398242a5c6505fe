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
	failed     bool // was allowed
}

// toldOf is what was refused and what failed while a command ran, the most frequent first; a name for each kind.
func toldOf(res *api.ExecResult) (all []told) {
	for i := range res.Denials {
		d := &res.Denials[i]
		what := deniedKinds[d.Kind]
		if what == "" || d.Probe {
			continue
		}
		text := d.Target + " was refused: " + d.Why
		if d.HowToAllow != "" {
			text += " (" + d.HowToAllow + ")"
		}
		all = append(all, told{what, text, d.Count, false})
	}
	for _, f := range res.Failures {
		all = append(all, told{"network", f.Text(), f.Count, true})
	}
	slices.SortStableFunc(all, func(a, b told) int { return cmp.Compare(b.count, a.count) })
	return all
}

// deniedKinds are what people call what was refused.
var deniedKinds = map[string]string{api.KindNet: "network", api.KindSyscall: "system call", api.KindFile: "file"}

// tellDenials says behind the output of a command what was refused and what failed meanwhile. If it failed, that may be
// why. If it ended well, a line says what was refused: a pipe or a script may have hidden it, and an agent whose own
// sandbox is refused ends well.
func tellDenials(w io.Writer, res *api.ExecResult, sandbox string) {
	style := cli.StyleFor(os.Stderr)
	for _, u := range res.Unguarded { // whatever became of the command
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: workspace:"),
			cli.Line(fmt.Sprintf("%s is not guarded: %s (%s)", u.Path, u.Why, u.Hint)))
	}
	most := maxTold
	all := toldOf(res)
	if res.ExitCode == 0 {
		most = 1
		all = slices.DeleteFunc(all, func(t told) bool { return t.failed })
		// Others the program has mostly heard of, and said so.
		quiet := func(t told) bool { return t.what == deniedKinds[api.KindSyscall] }
		if i := slices.IndexFunc(all, quiet); i > 0 {
			all[0], all[i] = all[i], all[0]
		}
	}
	for _, t := range all[:min(len(all), most)] {
		text := cli.Line(t.text)
		if n := len(all) - most; n > 0 && most == 1 {
			text += fmt.Sprintf("; %d more: hutch why %s", n, sandbox)
		}
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: "+t.what+":"), text)
	}
	if res.ExitCode == 0 {
		return
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
