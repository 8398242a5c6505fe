// Package testplan decides which tests run as whom, and where: from what tests declare beside themselves (their axes,
// their suite, their machine) and from .ci/budget, which says how often a suite runs.
package testplan

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// Test is one top-level test of the module and what it declares.
type Test struct {
	Pkg      string // the package's folder below the module's root, with slashes
	Name     string
	Axes     []testenv.Axis
	Suite    string   // of .ci/budget; empty: runs every time
	Machines []string // of integration/vm, when it runs nowhere else
	Smoke    bool     // runs in each machine that repeats it, whether that is due or not
	Parallel bool     // runs beside others of its package
}

// On reports whether the test declares an axis.
func (t Test) On(a testenv.Axis) bool { return slices.Contains(t.Axes, a) }

// EndToEnd reports whether the test drives the built binaries: it is in one of the stories below integration.
func (t Test) EndToEnd() bool {
	return strings.HasPrefix(t.Pkg, "integration/") && t.Pkg != "integration/vm" && t.Pkg != "integration/bench"
}

// declared is the path of the package whose calls declare something.
const declared = "github.com/hutch-sh/hutch/internal/testenv"

// skipped are folders without tests of this module.
var skipped = []string{".git", ".cache", "bin", "dist", "testdata", "node_modules", "internal/tools"}

// ReadTests returns the tests of every package below root, a module's root folder, by package and name. Files count
// whatever their build constraints. A declaration in the wrong place, or one that cannot be read, is an error that
// names the line.
func ReadTests(root string) ([]Test, error) {
	var all []Test
	var errs []error
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if slices.Contains(skipped, filepath.ToSlash(rel)) || slices.Contains(skipped, d.Name()) {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && rel != "." {
			return filepath.SkipDir // a module of its own
		}
		tests, err := readFolder(path, filepath.ToSlash(rel))
		all = append(all, tests...)
		errs = append(errs, err)
		return nil
	})
	slices.SortFunc(all, func(a, b Test) int {
		return strings.Compare(a.Pkg+"\x00"+a.Name, b.Pkg+"\x00"+b.Name)
	})
	return all, errors.Join(append(errs, err)...)
}

// readFolder reads the test files of one package folder.
func readFolder(dir, pkg string) ([]Test, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var tests []Test
	var common []testenv.Axis
	var errs []error
	for _, name := range names {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		r := reader{fset: fset, name: importName(file)}
		ast.Inspect(file, r.findStray(file))
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.GenDecl:
				common = append(common, r.packageAxes(decl)...)
			case *ast.FuncDecl:
				if isTest(decl) {
					tests = append(tests, r.test(pkg, decl))
				}
			}
		}
		errs = append(errs, r.errs...)
	}
	for i := range tests {
		if tests[i].Axes == nil {
			tests[i].Axes = common
		}
	}
	return tests, errors.Join(errs...)
}

// reader reads one file.
type reader struct {
	fset *token.FileSet
	name string // by which the file knows testenv; empty: it does not
	errs []error
}

func (r *reader) fail(at ast.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s: %s", r.fset.Position(at.Pos()), fmt.Sprintf(format, args...)))
}

// importName is the name by which a file knows testenv.
func importName(file *ast.File) string {
	for _, spec := range file.Imports {
		if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == declared {
			if spec.Name != nil {
				return spec.Name.Name
			}
			return "testenv"
		}
	}
	return ""
}

// isTest reports whether the go command runs a function as a test: tests, the seeds of fuzz targets, and examples.
func isTest(f *ast.FuncDecl) bool {
	if f.Recv != nil || f.Name.Name == "TestMain" || f.Body == nil {
		return false
	}
	for prefix, params := range map[string]int{"Test": 1, "Fuzz": 1, "Example": 0} {
		name, ok := strings.CutPrefix(f.Name.Name, prefix)
		if ok && f.Type.Params.NumFields() == params && (name == "" || name[0] < 'a' || name[0] > 'z') {
			return true
		}
	}
	return false
}

// test reads the declarations at the head of a test.
func (r *reader) test(pkg string, f *ast.FuncDecl) Test {
	t := Test{Pkg: pkg, Name: f.Name.Name, Parallel: slices.ContainsFunc(f.Body.List, isParallel)}
	for _, stmt := range f.Body.List {
		expr, ok := stmt.(*ast.ExprStmt)
		if !ok {
			break
		}
		called, call := r.called(expr.X)
		switch called {
		case "Axes":
			t.Axes = append([]testenv.Axis{}, r.axes(call.Args[1:])...)
		case "Suite":
			t.Suite = strings.Join(r.strings(call.Args[1:]), " ")
		case "Machine":
			t.Machines = r.strings(call.Args[1:])
		case "Smoke":
			t.Smoke = true
		default:
			return t
		}
	}
	return t
}

// isParallel reports whether a statement is t.Parallel().
func isParallel(stmt ast.Stmt) bool {
	expr, ok := stmt.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := expr.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Parallel" && len(call.Args) == 0
}

// called is the function of testenv that an expression calls, if any, and the call.
func (r *reader) called(e ast.Expr) (string, *ast.CallExpr) {
	call, ok := e.(*ast.CallExpr)
	if !ok || r.name == "" {
		return "", nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", nil
	}
	if x, ok := sel.X.(*ast.Ident); !ok || x.Name != r.name {
		return "", nil
	}
	return sel.Sel.Name, call
}

// axes are the constants that a call names.
func (r *reader) axes(args []ast.Expr) []testenv.Axis {
	var list []testenv.Axis
	for _, arg := range args {
		sel, ok := arg.(*ast.SelectorExpr)
		if !ok {
			r.fail(arg, "an axis is testenv.User, Privilege, Kernel, Cgroup or EBPF")
			continue
		}
		switch sel.Sel.Name {
		case "User":
			list = append(list, testenv.User)
		case "Privilege":
			list = append(list, testenv.Privilege)
		case "Kernel":
			list = append(list, testenv.Kernel)
		case "Cgroup":
			list = append(list, testenv.Cgroup)
		case "EBPF":
			list = append(list, testenv.EBPF)
		default:
			r.fail(arg, "no axis %s: there are testenv.User, Privilege, Kernel, Cgroup and EBPF", sel.Sel.Name)
		}
	}
	return list
}

// strings are the literals that a call names.
func (r *reader) strings(args []ast.Expr) []string {
	var list []string
	for _, arg := range args {
		lit, ok := arg.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			r.fail(arg, "the runner reads this from the source: write a string literal")
			continue
		}
		s, err := strconv.Unquote(lit.Value)
		if err != nil {
			r.fail(arg, "%v", err)
		}
		list = append(list, s)
	}
	return list
}

// packageAxes reads `var _ = testenv.PackageAxes(...)`.
func (r *reader) packageAxes(decl *ast.GenDecl) []testenv.Axis {
	var list []testenv.Axis
	for _, spec := range decl.Specs {
		value, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for _, v := range value.Values {
			if called, call := r.called(v); called == "PackageAxes" {
				list = append(list, r.axes(call.Args)...)
			}
		}
	}
	return list
}

// findStray fails for declarations that stand anywhere but at the head of a test, where nothing reads them.
func (r *reader) findStray(file *ast.File) func(ast.Node) bool {
	heads := map[ast.Node]bool{}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !isTest(f) {
			continue
		}
		for _, stmt := range f.Body.List {
			expr, ok := stmt.(*ast.ExprStmt)
			if !ok {
				break
			}
			if called, call := r.called(expr.X); slices.Contains([]string{"Axes", "Suite", "Machine", "Smoke"},
				called) {
				heads[call] = true
				continue
			}
			break
		}
	}
	return func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && !heads[call] {
			if called, _ := r.called(call); called == "Axes" || called == "Suite" || called == "Smoke" {
				r.fail(call, "testenv.%s must be among the first statements of a test: elsewhere the runner does not see it", called)
			}
		}
		return true
	}
}
