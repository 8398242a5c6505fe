package engine

import (
	"reflect"
	"slices"
	"strings"

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
	for _, name := range []string{"BASH_REMATCH", "OPTARG"} {
		note(name)
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
		case *syntax.ParamExp: // ${x:=...}
			if n.Param != nil && n.Exp != nil && n.Exp.Word != nil &&
				(n.Exp.Op == syntax.AssignUnset || n.Exp.Op == syntax.AssignUnsetOrNull) {
				gets(n.Param.Value, n.Exp.Word)
			}
		case *syntax.WordIter: // names of files are data, too
			for _, w := range n.Items {
				if f.word(w).dynamic {
					note(n.Name.Value)
				}
			}
		case *syntax.DeclClause:
			for _, name := range evaluated(n) {
				f.numbers[name] = true
			}
		case *syntax.CallExpr:
			f.fills(n, note, gets)
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

// fills notes the variables that a command like read fills, and the parameters of functions and of set.
func (f *shFile) fills(n *syntax.CallExpr, note func(string), gets func(string, syntax.Node)) {
	args := n.Args
	for len(args) > 1 && (f.word(args[0]).text == "command" || f.word(args[0]).text == "builtin") {
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	name := f.word(args[0]).text
	switch {
	case name == "set", f.functions[name]:
		for _, w := range args[1:] {
			for _, parameter := range parameters {
				gets(parameter, w)
			}
		}
		return
	case name == "read":
		note("REPLY")
	case name == "mapfile", name == "readarray":
		note("MAPFILE")
	case name != "printf":
		return
	}
	for _, w := range args[1:] {
		text, _, _ := strings.Cut(strings.TrimPrefix(f.word(w).text, "-v"), "[")
		if syntax.ValidName(text) {
			note(text)
		}
	}
}

// parameters are those of functions.
var parameters = []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "@", "*", "_"}

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
			if n.Param != nil && !n.Length { // a length is a number
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

// arithmetic reports n, in which what is evaluated. What lies in arithmetic without data has none either, and is not
// looked at again: it may be nested deeply.
func (f *shFile) arithmetic(n, what syntax.Node) {
	switch {
	case what == nil || reflect.ValueOf(what).IsNil():
	case what.Pos().Offset() >= f.clean && f.hasData(what):
		f.about(shArithData, n)
	case names(what):
		f.about(shArith, n)
		f.clean = max(f.clean, what.End().Offset())
	}
}

// subscripts reports n, which evaluates the subscript of a name that is what.
func (f *shFile) subscripts(n syntax.Node, what syntax.Node) {
	if f.hasData(what) {
		f.about(shArithData, n)
	} else {
		f.about(shArith, n)
	}
}

// declared reports export "$x" and the like, which set whichever variable the text names, and references to such.
func (f *shFile) declared(n *syntax.DeclClause) {
	for _, a := range n.Args {
		switch {
		case a.Naked && a.Name == nil && a.Value != nil && f.word(a.Value).dynamic && !named(f.word(a.Value).text):
			f.about(shIndirect, n)
		case a.Name != nil && a.Value != nil && f.word(a.Value).dynamic && refers(n):
			f.about(shIndirect, n)
		}
	}
}

// refers says that the names that are declared are those of other variables, or numbers.
func refers(n *syntax.DeclClause) bool { return len(evaluated(n)) > 0 }

// evaluated are the variables that a declaration makes evaluate what is assigned to them: numbers, and references.
func evaluated(n *syntax.DeclClause) (names []string) {
	special := n.Variant != nil && n.Variant.Value == "nameref"
	for _, a := range n.Args {
		if a.Naked && a.Name == nil && a.Value != nil {
			flags := a.Value.Lit()
			special = special || len(flags) > 1 && flags[0] == '-' && strings.ContainsAny(flags[1:], "ni")
		} else if a.Name != nil {
			names = append(names, a.Name.Value)
		}
	}
	if !special {
		return nil
	}
	return names
}

// named says that a word begins with the name of the variable that it sets.
func named(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	return ok && syntax.ValidName(strings.TrimSuffix(name, "+"))
}
