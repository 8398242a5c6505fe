package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/cli"
)

func (t *tourClaims) print(w io.Writer, style cli.Style) {
	heading := fmt.Sprintf("%s in a sandbox, started by uid %d, found out:", cli.Line(t.program), os.Getuid())
	fmt.Fprintf(w, "\n%s\n\n", style.Bold(heading))
	rows := make([]tourRow, 0, len(t.claims)+1)
	for _, c := range append(t.claims, claim{"it computed: " + t.result.text, t.result.holds, t.result.found}) {
		rows = append(rows, tourRow{c.text, c.found, c.holds, false})
	}
	printRows(w, style, rows)

	fmt.Fprintf(w, "\n%s\n\n", style.Bold("The walls around it, as the kernel reports them:"))
	rows = rows[:0]
	for _, wall := range t.walls {
		rows = append(rows, tourRow{wall.name, wall.found, wall.inForce, wall.optional})
	}
	printRows(w, style, rows)
}

// tourRow is one line of the tour. What is optional may be absent.
type tourRow struct {
	text, found    string
	good, optional bool
}

// mark says yes, an acceptable no, or a NO that fails the tour.
func (r tourRow) mark() string {
	switch {
	case r.good:
		return "yes"
	case r.optional:
		return "no"
	}
	return "NO"
}

func printRows(w io.Writer, style cli.Style, rows []tourRow) {
	table := cli.Table{}
	for _, r := range rows {
		table.Row(r.mark(), r.text, r.found)
	}
	table.Print(w, "  ", func(row, col int, cell string) string {
		r := rows[row]
		switch {
		case r.good && col == 0:
			return style.Green(cell)
		case r.good && col == 2:
			return style.Dim(cell)
		case r.good:
			return cell
		case r.optional:
			return style.Yellow(cell)
		}
		return style.Red(cell)
	})
}

// phaseNode is one phase with the phases that it consists of.
type phaseNode struct {
	title, key string
	parts      []phaseNode
}

// phaseTree is how the phases of a create and of this process fit together, in
// the order in which they happen. A phase that it does not know is listed last.
var phaseTree = []phaseNode{
	{"reach or start the daemon", "client.connect", nil},
	{"create the sandbox", "client.create", []phaseNode{
		{"image", "image", nil}, {"folders", "folders", nil}, {"mounts", "mounts", nil},
		{"net namespace", "netns", nil}, {"what it is told about itself", "about", nil}, {"configuration", "spec", nil},
		{"launch", "launch", []phaseNode{
			{"its seccomp filter", "launch.seccomp", nil}, {"overlay", "launch.overlay", nil},
			{"libcontainer create", "launch.libcontainer_create", nil},
			{"libcontainer start", "launch.libcontainer_start", nil},
			{"terminals", "launch.pts", nil}, {"check its cgroup", "launch.cgroup_check", nil},
			{"first process", "launch.exec", nil},
		}},
		{"limits", "limits", nil}, {"PID 1 answers", "guest", nil}, {"read back the walls", "isolation", nil},
		{"save the record", "record", nil},
	}},
	{"run the program", "client.program", nil},
	{"remove the sandbox", "client.remove", nil},
}

// leastPhase is the shortest phase worth a line of its own, in milliseconds.
const leastPhase = 0.1

// printPhases shows where the time went, as a tree with a bar per phase.
func printPhases(w io.Writer, style cli.Style, sets ...map[string]float64) {
	fmt.Fprintf(w, "\n%s\n\n", style.Bold("Where the time went, in milliseconds:"))
	left := map[string]float64{}
	longest := 0.0
	for _, phases := range sets {
		maps.Copy(left, phases)
	}
	delete(left, "total") // create, without the way to the daemon and back
	for _, ms := range left {
		longest = max(longest, ms)
	}
	t := cli.Table{Right: []bool{1: true}}
	row := func(depth int, title string, ms float64) {
		const width = 32
		bar := strings.Repeat("─", int(ms/longest*width+0.5))
		t.Row(strings.Repeat("  ", depth)+title, fmt.Sprintf("%.1f", ms), bar)
	}
	var walk func(depth int, nodes []phaseNode)
	walk = func(depth int, nodes []phaseNode) {
		for _, n := range nodes {
			if ms, ok := left[n.key]; ok && (depth == 0 || ms >= leastPhase) {
				row(depth, n.title, ms)
			}
			delete(left, n.key)
			walk(depth+1, n.parts)
		}
	}
	walk(0, phaseTree)
	for _, key := range slices.Sorted(maps.Keys(left)) {
		if left[key] >= leastPhase {
			row(0, key, left[key])
		}
	}
	t.Print(w, "  ", func(_, col int, cell string) string {
		if col == 2 {
			return style.Dim(cell)
		}
		return cell
	})
}
