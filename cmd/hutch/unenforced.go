package main

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// warnUnenforced tells what is not as it was asked for: limits that are not in force, and
// another image. Defaults are nobody's wish: inspect shows them.
func warnUnenforced(w io.Writer, note string, limits []api.Unenforced) {
	style := cli.Style{}
	if w == os.Stderr {
		style = cli.StyleFor(os.Stderr)
	}
	if note != "" {
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: note:"), cli.Line(note))
	}
	for _, u := range limits {
		if u.Default {
			continue
		}
		name := "limits." + u.Limit
		if flag := cmp.Or(flagOfField[name], flagOfField[u.Limit]); flag != "" { // most likely it was asked for by that
			name = "--" + flag
		}
		text := fmt.Sprintf("%s is not enforced: %s", name, u.Why)
		if u.Instead != "" {
			text += "; instead " + u.Instead
		}
		fmt.Fprintf(w, "%s %s\n", style.Yellow("hutch: warning:"), cli.Line(text))
	}
}
