package deptest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestNilErrors: no error is made of one that may be nil: it would end in "%!w(<nil>)".
func TestNilErrors(t *testing.T) {
	root, err := testenv.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	files := token.NewFileSet()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return cmp.Or(err, fs.SkipDir)
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		for _, at := range nilErrors(f) {
			t.Errorf("%s: wraps an error that may be nil there; give it another: cmp.Or(err, errors.New(...))",
				files.Position(at))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNilErrorsFound: what is looked for is found, and its like that is right is not.
func TestNilErrorsFound(t *testing.T) {
	for body, want := range map[string]int{
		`if err != nil || n == 0 { return fmt.Errorf("a: %w", err) }`:                           1,
		`if err := f(); err != nil || n == 0 { return api.Errorf(c, "a %d: %w", n, err) }`:      1,
		`if n == 0 || ok || err != nil { if ok { return fmt.Errorf("a: %w", err) } }`:           1,
		`switch { case n == 1: case err != nil || n == 0: return fmt.Errorf("a: %w", err) }`:    1,
		`if err == nil && n == 0 { return fmt.Errorf("a: %w", err) }`:                           1,
		`if n == 0 { return fmt.Errorf("a: %w", err) }`:                                         0, // who knows
		`if err != nil { return fmt.Errorf("a: %w", err) }`:                                     0,
		`if err != nil && n == 0 { return fmt.Errorf("a: %w", err) }`:                           0,
		`if err != nil || n == 0 { return fmt.Errorf("a: %w", cmp.Or(err, none)) }`:             0,
		`if err != nil || n == 0 { return fmt.Errorf("a: %v", err) }`:                           0,
		`if err != nil || n == 0 { if err != nil { return fmt.Errorf("a: %w", err) } }`:         0,
		`if err != nil || n == 0 { err := g(); return fmt.Errorf("a: %w", err) }`:               0,
		`if err != nil || n == 0 { if err = g(); err != nil { return fmt.Errorf("%w", err) } }`: 0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc f() error {\n"+body+"\nreturn nil }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := nilErrors(f); len(got) != want {
			t.Errorf("%s: found %d, want %d", body, len(got), want)
		}
	}
}

// nilErrors are the calls that wrap, with %w, a variable which may be nil by the condition that they are under.
func nilErrors(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			for _, name := range mayBeNil(n.Cond) {
				at = append(at, wrapsOf(n.Body, name)...)
			}
		case *ast.CaseClause:
			for _, cond := range n.List {
				for _, name := range mayBeNil(cond) {
					at = append(at, wrapsOf(&ast.BlockStmt{List: n.Body}, name)...)
				}
			}
		}
		return true
	})
	slices.Sort(at)
	return slices.Compact(at)
}

// mayBeNil are the variables that a condition looks at, and that may be nil where it holds.
func mayBeNil(cond ast.Expr) (names []string) {
	var parts []ast.Expr
	for _, op := range []token.Token{token.LOR, token.LAND} {
		if parts = split(cond, op); len(parts) < 2 {
			continue
		}
		for _, p := range parts {
			wanted := map[token.Token]token.Token{token.LOR: token.NEQ, token.LAND: token.EQL}[op]
			b, ok := p.(*ast.BinaryExpr)
			if !ok || b.Op != wanted || fmt.Sprint(b.Y) != "nil" {
				continue
			}
			if x, ok := b.X.(*ast.Ident); ok {
				names = append(names, x.Name)
			}
		}
	}
	return names
}

func split(e ast.Expr, op token.Token) []ast.Expr {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == op {
		return append(split(b.X, op), split(b.Y, op)...)
	}
	return []ast.Expr{e}
}

// wrapsOf are the calls in a block that wrap a variable, as far as the block neither sets it nor looks at it again.
func wrapsOf(block *ast.BlockStmt, name string) (at []token.Pos) {
	set := false
	ast.Inspect(block, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				set = set || isName(left, name)
			}
		case *ast.IfStmt:
			if b, ok := n.Cond.(*ast.BinaryExpr); ok && b.Op == token.NEQ && isName(b.X, name) {
				return false
			}
		case *ast.CallExpr:
			wraps := slices.ContainsFunc(n.Args, func(e ast.Expr) bool {
				text, ok := e.(*ast.BasicLit)
				return ok && strings.Contains(text.Value, "%w")
			})
			if wraps && !set && slices.ContainsFunc(n.Args, func(e ast.Expr) bool { return isName(e, name) }) {
				at = append(at, n.Pos())
			}
		}
		return true
	})
	return at
}

func isName(e ast.Expr, name string) bool {
	x, ok := e.(*ast.Ident)
	return ok && x.Name == name
}
