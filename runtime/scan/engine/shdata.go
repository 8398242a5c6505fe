package engine

import (
	"reflect"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// What a sandbox has left in a folder must not run because a harmless script reads it. bash evaluates the texts in
// arithmetic, with the commands in their subscripts (bash(1), ARITHMETIC EVALUATION), so which variables hold such
// texts is looked for: those that are read, and those that get the output of a command, or one of these.

// findData fills f.data. A variable that holds data once counts as holding it everywhere.
func (f *shFile) findData(file *syntax.File) {
	var found []string             // to be followed
	heirs := map[string][]string{} // variables that get what another one holds
	note := func(name string) {
		if name != "" && !f.data[name] {
			f.data[name] = true
			found = append(found, name)
		}
	}
	gets := func(name string, from syntax.Node) {
		written, names := sources(from)
		if written {
			note(name)
		}
		for _, other := range names {
			heirs[other] = append(heirs[other], name)
		}
	}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil && n.Value != nil {
				gets(n.Name.Value, n.Value)
			}
			if n.Name != nil && n.Array != nil {
				gets(n.Name.Value, n.Array)
			}
		case *syntax.WordIter: // names of files are data, too
			for _, w := range n.Items {
				if f.word(w).dynamic {
					note(n.Name.Value)
				}
			}
		case *syntax.CallExpr:
			f.fills(n, note)
		}
		return true
	})
	for len(found) > 0 {
		name := found[0]
		found = found[1:]
		for _, heir := range heirs[name] {
			note(heir)
		}
	}
}

// fills notes the variables that a command like read fills.
func (f *shFile) fills(n *syntax.CallExpr, note func(string)) {
	if len(n.Args) == 0 {
		return
	}
	switch f.word(n.Args[0]).text {
	case "read":
		note("REPLY")
	case "mapfile", "readarray":
		note("MAPFILE")
	case "printf":
	default:
		return
	}
	for _, w := range n.Args[1:] {
		if text := f.word(w).text; syntax.ValidName(text) {
			note(text)
		}
	}
}

// sources says whether a part of a script has the output of a command in it, and which variables.
func sources(n syntax.Node) (written bool, names []string) {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return false, nil
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			written = true
		case *syntax.ParamExp:
			if n.Param != nil {
				names = append(names, n.Param.Value)
			}
		case *syntax.Lit: // of arithmetic, where names need no dollar
			if syntax.ValidName(n.Value) {
				names = append(names, n.Value)
			}
		}
		return !written
	})
	return written, names
}

// hasData says that a part of a script holds the output of a command, or a variable with data.
func (f *shFile) hasData(n syntax.Node) bool {
	written, names := sources(n)
	return written || slices.ContainsFunc(names, func(name string) bool { return f.data[name] })
}

// arithmetic reports n, in which what is evaluated.
func (f *shFile) arithmetic(n, what syntax.Node) {
	switch {
	case what == nil || reflect.ValueOf(what).IsNil():
	case f.hasData(what):
		f.about(shArithData, n)
	case names(what):
		f.about(shArith, n)
	}
}

// declared reports export "$x" and the like, which set whichever variable the text names, and references to such.
func (f *shFile) declared(n *syntax.DeclClause) {
	for _, a := range n.Args {
		switch {
		case a.Naked && a.Name == nil && a.Value != nil && f.word(a.Value).dynamic:
			f.about(shIndirect, n)
		case a.Name != nil && a.Value != nil && f.word(a.Value).dynamic && refers(n):
			f.about(shIndirect, n)
		}
	}
}

// refers says that the names that are declared are those of other variables, or numbers.
func refers(n *syntax.DeclClause) bool {
	if n.Variant != nil && n.Variant.Value == "nameref" {
		return true
	}
	for _, a := range n.Args {
		if a.Naked && a.Name == nil && a.Value != nil {
			if flags := a.Value.Lit(); len(flags) > 1 && flags[0] == '-' {
				for _, c := range flags[1:] {
					if c == 'n' || c == 'i' {
						return true
					}
				}
			}
		}
	}
	return false
}
