package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"strings"
	"unicode/utf8"
)

// add reads one file.
func (t *tree) add(file string) error {
	goFile, prose := strings.HasSuffix(file, ".go"), strings.HasSuffix(file, ".md")
	if !goFile && !prose || strings.Contains(file, "/testdata/") {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	quoted := map[int]bool{}
	if goFile {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		t.count(set, parsed, file, strings.Count(string(text), "\n"))
		if ast.IsGenerated(parsed) {
			return nil
		}
		t.goProse(set, parsed, file)
		quoted = quotedLines(set, parsed)
	} else {
		t.markdown(file, string(text))
	}
	for i, line := range strings.Split(string(text), "\n") {
		if columns(line) > maxColumns && !quoted[i+1] && !unbreakable(line) {
			t.found("wider than 120 columns", file, i+1, fmt.Sprint(columns(line)))
		}
	}
	return nil
}

// quotedLines are those in literals of several lines: programs and texts of their own.
func quotedLines(set *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			for i, last := set.Position(lit.Pos()).Line, set.Position(lit.End()).Line; i <= last &&
				last > set.Position(lit.Pos()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

// columns is the width of a line, with tabs of four.
func columns(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

// longWord is from how many columns on a word or a literal may make its line too wide.
const longWord = 60

// unbreakable says that a line is a row of a table, an instruction to a tool, or has an address, a word or a literal so
// long that breaking it helps nobody.
func unbreakable(line string) bool {
	line = strings.ReplaceAll(strings.TrimSpace(line), `\"`, "'")
	if strings.HasPrefix(line, "|") || strings.HasPrefix(line, "//go:") || strings.Contains(line, "//nolint") ||
		strings.Contains(line, "://") {
		return true
	}
	for _, sep := range []string{" ", `"`, "`"} {
		for part := range strings.SplitSeq(line, sep) {
			if columns(part) > longWord && (sep == " " || strings.Count(line, sep) > 0) {
				return true
			}
		}
	}
	return false
}

func (t *tree) found(rule, file string, line int, text string) {
	t.prose = append(t.prose, finding{rule, file, line, text})
}

// count notes the sizes of a file.
func (t *tree) count(set *token.FileSet, f *ast.File, file string, lines int) {
	folder := path.Dir(file)
	p := t.packages[folder]
	if p == nil {
		p = &size{}
		t.packages[folder] = p
	}
	if strings.HasSuffix(file, "_test.go") {
		p.tests += lines
		return
	}
	p.code += lines
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := fn.Name.Name
		if on := receiver(fn); on != "" && !ast.IsGenerated(f) {
			whole := folder + "." + on
			if t.types[whole] == nil {
				t.types[whole] = &methods{}
			}
			t.types[whole].all++
			if fn.Name.IsExported() {
				t.types[whole].exported++
			}
			name = on + "." + name
		}
		t.funcs = append(t.funcs, function{name, file, set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1})
	}
}

// receiver is the type that a method is of; "" of a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	on := fn.Recv.List[0].Type
	for {
		switch e := on.(type) {
		case *ast.StarExpr:
			on = e.X
		case *ast.IndexExpr:
			on = e.X
		case *ast.IndexListExpr:
			on = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}
