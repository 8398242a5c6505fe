package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What a target makes in a second: wanted of all, and least of those that state why they make fewer.
const (
	wanted = 1000
	least  = 100
)

// target is one fuzz target of the module.
type target struct {
	pkg     string // its folder below the module's root
	name    string
	rate    int    // executions a second that it should make
	because string // why those are fewer than wanted
	cost    bool   // asserts what an input costs, or says why not
}

func (t target) String() string { return t.pkg + "." + t.name }

// The line of a target's doc comment about its rate, which may go on in further lines.
var (
	rateLine   = regexp.MustCompile(`(?m)^Rate:`)
	rateReason = regexp.MustCompile(`(?s)(?:^|\n)Rate: ([0-9]+)/s, because (.+?)\s*(?:\n[A-Z]\w*: .*|\n\n.*)?$`)
	costLine   = regexp.MustCompile(`(?m)^Cost: \S`)
)

// list finds the targets that match keep in the packages of the module.
func list(ctx context.Context, root string, keep *regexp.Regexp) ([]target, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-tags", tags, "-json=Dir,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	var all []target
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                       string
			TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			slices.SortFunc(all,
				func(a, b target) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) })
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list says: %w", err)
		}
		pkg, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
			src, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			found, err := inFile(filepath.ToSlash(filepath.Join(pkg, name)), src)
			if err != nil {
				return nil, err
			}
			for _, t := range found {
				if keep.MatchString(t.String()) {
					all = append(all, t)
				}
			}
		}
	}
}

// inFile finds the targets in a test's source. path is below the module's root.
func inFile(path string, src []byte) ([]target, error) {
	if !bytes.Contains(src, []byte("testing.F)")) {
		return nil, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	funcs := map[string]*ast.FuncDecl{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
			funcs[f.Name.Name] = f
		}
	}
	var all []target
	for _, name := range slices.Sorted(maps.Keys(funcs)) {
		f := funcs[name]
		if !isTarget(f) {
			continue
		}
		t := target{pkg: filepath.ToSlash(filepath.Dir(path)), name: f.Name.Name,
			cost: costLine.MatchString(f.Doc.Text()) || measures(f, funcs)}
		if t.rate, t.because, err = rateOf(f.Doc.Text()); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, t.name, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// isTarget reports whether f is a func FuzzX(*testing.F).
func isTarget(f *ast.FuncDecl) bool {
	if !strings.HasPrefix(f.Name.Name, "Fuzz") || len(f.Type.Params.List) != 1 {
		return false
	}
	star, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := star.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "F"
}

// measures reports whether something of package cost is called in f, or in a function of its file that f calls.
func measures(f *ast.FuncDecl, funcs map[string]*ast.FuncDecl) (found bool) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && x.Name == "cost"
		case *ast.CallExpr:
			if to, ok := n.Fun.(*ast.Ident); ok && funcs != nil && funcs[to.Name] != nil {
				found = found || measures(funcs[to.Name], nil) // nil: no further
			}
		}
		return !found
	})
	return found
}

// rateOf reads "Rate: 100/s, because REASON" in a doc comment.
func rateOf(doc string) (rate int, because string, err error) {
	if !rateLine.MatchString(doc) {
		return wanted, "", nil
	}
	m := rateReason.FindStringSubmatch(doc)
	if m == nil {
		return 0, "", fmt.Errorf("%q: want \"Rate: %d/s, because REASON\"", doc, least)
	}
	if rate, err = strconv.Atoi(m[1]); err != nil || rate < least || rate >= wanted {
		return 0, "", fmt.Errorf("a rate of %s/s: want %d to %d", m[1], least, wanted-1)
	}
	return rate, strings.Join(strings.Fields(m[2]), " "), nil
}
