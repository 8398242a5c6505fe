package main

import (
	"cmp"
	_ "embed" // for the page
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"
)

//go:embed page.md
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"code": code}).Parse(pageText))

// outcome is what became of a suite's tests.
type outcome struct {
	suite
	Tests []test
}

// report is all of it.
type report struct {
	Date   time.Time
	Commit string
	Suites []outcome
}

// count counts tests.
type count struct{ Passed, Left, Failed, All int }

func (c *count) add(t *test) {
	c.All++
	switch {
	case t.Result.Status == passed:
		c.Passed++
	case t.Reason != nil && t.Reason.Left:
		c.Left++
	default:
		c.Failed++
	}
}

// Count counts the tests of a suite.
func (o *outcome) Count() (c count) {
	for i := range o.Tests {
		c.add(&o.Tests[i])
	}
	return c
}

// Total counts all tests.
func (r *report) Total() (c count) {
	for i := range r.Suites {
		for j := range r.Suites[i].Tests {
			c.add(&r.Suites[i].Tests[j])
		}
	}
	return c
}

// Row is a row of a suite's table: the tests of a file.
type Row struct {
	File string
	count
}

// Files are the rows of a suite's table.
func (o *outcome) Files() (rows []Row) {
	for i := range o.Tests {
		file, _, _ := strings.Cut(o.Tests[i].Name, ": ")
		if len(rows) == 0 || rows[len(rows)-1].File != file {
			rows = append(rows, Row{File: file})
		}
		rows[len(rows)-1].add(&o.Tests[i])
	}
	return rows
}

// Group are the tests that do not pass for one reason.
type Group struct {
	Why   string
	Left  bool
	Names []string
}

// Groups are the tests that do not pass, by the reason, those of what is left out behind the others.
func (r *report) Groups() []Group {
	var groups []Group
	at := map[string]int{}
	for i := range r.Suites {
		for _, t := range r.Suites[i].Tests {
			if t.Result.Status == passed {
				continue
			}
			g := Group{Why: "Not explained: " + code(cmp.Or(t.Result.Why, t.Result.Status))}
			if t.Reason != nil {
				g = Group{Why: t.Reason.Why, Left: t.Reason.Left}
			}
			key := fmt.Sprint(g.Left, g.Why)
			n, ok := at[key]
			if !ok {
				n = len(groups)
				at[key], groups = n, append(groups, g)
			}
			groups[n].Names = append(groups[n].Names, r.Suites[i].Name+": "+t.Name)
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		if a.Left != b.Left {
			return map[bool]int{false: -1, true: 1}[a.Left]
		}
		return 0
	})
	return groups
}

// code is a text in a table or list, so that nothing in it is markup.
func code(text string) string {
	return "`" + strings.NewReplacer("`", "'", "|", "\\|").Replace(text) + "`"
}

func (r *report) write(out io.Writer) error { return page.Execute(out, r) }

// save replaces the report that is there.
func (r *report) save(name string) error {
	var b strings.Builder
	if err := r.write(&b); err != nil {
		return err
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		return err
	}
	c := r.Total()
	fmt.Printf("%s is new: %d of %d tests that touch a server pass. Commit it.\n", name, c.Passed, c.All)
	return nil
}
