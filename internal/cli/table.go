package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Table lines up cells for people. Scripts use --json.
type Table struct {
	Header []string // none: no heading
	Right  []bool   // columns aligned right
	rows   [][]string
}

// Row appends one row; cells may be fewer than columns.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = Printable(strings.ReplaceAll(c, "\n", "; "))
	}
	t.rows = append(t.rows, cells)
}

// Print writes the table, each line behind indent. paint, which may be nil,
// colours a padded cell; it gets the row, -1 for the heading, and the column.
func (t *Table) Print(w io.Writer, indent string, paint func(row, col int, cell string) string) {
	widths := t.widths()
	line := func(row int, cells []string) {
		var b strings.Builder
		for col, cell := range cells {
			pad := strings.Repeat(" ", widths[col]-utf8.RuneCountInString(cell))
			switch {
			case col < len(t.Right) && t.Right[col]:
				cell = pad + cell
			case col < len(cells)-1:
				cell += pad
			}
			if paint != nil {
				cell = paint(row, col, cell)
			}
			if col > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(indent+b.String(), " "))
	}
	if len(t.Header) > 0 {
		line(-1, t.Header)
	}
	for i, row := range t.rows {
		line(i, row)
	}
}

func (t *Table) widths() []int {
	n := len(t.Header)
	for _, row := range t.rows {
		n = max(n, len(row))
	}
	widths := make([]int, n)
	for _, row := range append([][]string{t.Header}, t.rows...) {
		for col, cell := range row {
			widths[col] = max(widths[col], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// Ago says how long before now t was, in one unit.
func Ago(now, t time.Time) string {
	d := now.Sub(t)
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if n := int(d / u.size); n == 1 {
			return "1 " + u.name + " ago"
		} else if n > 1 {
			return fmt.Sprintf("%d %ss ago", n, u.name)
		}
	}
	return "just now"
}

// Bytes writes a size as a person reads it, in units of 1024 with two or three
// digits, e.g. "4.2M".
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%dB", n)
	}
	v, unit := float64(n), 0
	for v >= 999.5 && unit < len("KMGTP") {
		v, unit = v/1024, unit+1
	}
	if v < 9.95 {
		return fmt.Sprintf("%.1f%c", v, "KMGTP"[unit-1])
	}
	return fmt.Sprintf("%.0f%c", v, "KMGTP"[unit-1])
}
