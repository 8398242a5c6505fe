package guard

import (
	"fmt"
	"strings"
)

//go:generate go test -run ^TestDocument$ . -update

// Document is the generated part of SECURITY.md: who obeys what, and when.
func Document() string {
	var b strings.Builder
	b.WriteString("| obeyed by | when | names |\n|---|---|---|\n")
	type group struct{ who, when string }
	var order []group
	names := map[group][]string{}
	for _, r := range Rows {
		g := group{r.Who, r.When}
		if names[g] == nil {
			order = append(order, g)
		}
		name := "`" + r.Name + "`"
		switch {
		case r.Words:
			name += " (in changes)"
		case r.Report:
			name += " (reported)"
		case r.Depth == Top:
			name += " (at the top)"
		case r.Depth == Any:
			name += " (also in dependencies)"
		}
		names[g] = append(names[g], name)
	}
	for _, g := range order {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", g.who, g.when, strings.Join(names[g], ", "))
	}
	return b.String()
}
