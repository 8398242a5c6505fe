package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"
)

// TestStart: no regular expression is compiled when a program starts that links this package, as each command of hutch does: that
// takes 0.2 ms.
func TestStart(t *testing.T) {
	sources, err := parser.ParseDir(token.NewFileSet(), ".", func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, 0)
	if err != nil || len(sources) == 0 {
		t.Fatalf("%d packages, %v", len(sources), err)
	}
	for _, pkg := range sources {
		for name, file := range pkg.Files {
			for _, d := range file.Decls {
				g, ok := d.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				ast.Inspect(g, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "MustCompile" {
						t.Errorf("%s compiles a regular expression at its start", name)
					}
					return true
				})
			}
		}
	}
}
