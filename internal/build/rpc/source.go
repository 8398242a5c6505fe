// Package rpc writes what is made of the descriptors of runtime/api (api.Call): the constants and the table of methods,
// the client's methods, the document of rpc.discover and docs/rpc.md. Its test fails when one of them is old.
package rpc

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:generate go test -run ^TestMethods$ . -update
//go:generate go test -run ^TestDocuments$ . -update

// groups are the groups of methods in the order in which readers want them.
var groups = []string{"system", "sandbox", "snapshot", "checkpoint", "template", "pool", "workspace", "scope", "volume",
	"code", "tools", "exec", "shell", "fs", "network", "port", "events", "audit", "image", "rpc"}

// call is one descriptor.
type call struct {
	Var            string // CallSandboxGet
	Params, Result string // types, as in package api
	fields         map[string]string
}

func (c *call) name() string { return c.fields["Name"] }

func (c *call) group() string { g, _, _ := strings.Cut(c.name(), "."); return g }

// constant is the name of the constant that has the method's name.
func (c *call) constant() string { return "Method" + strings.TrimPrefix(c.Var, "Call") }

func (c *call) has(flag string) bool { return c.fields[flag] == "true" }

// example is the JSON of a field, which is {} by default.
func (c *call) example(field string) string {
	if text := c.fields[field]; text != "" {
		return text
	}
	return "{}"
}

// source is what package api says in its source text.
type source struct {
	calls  []*call
	docs   map[string]string   // of Type, Type.Field and Constant
	consts map[string]string   // the values of constants that are strings
	values map[string][]string // constants of a type, in order
	fields map[string][]string // of a type, in order
	blocks map[string]string   // the comment before a constant's block
}

// read parses package api.
func read(dir string) (*source, error) {
	s := &source{docs: map[string]string{}, consts: map[string]string{}, values: map[string][]string{},
		fields: map[string][]string{}, blocks: map[string]string{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	fset := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_gen.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	// Examples are made of constants.
	for _, visit := range []func(*ast.GenDecl, ast.Spec) error{s.declare, s.descriptor} {
		for _, f := range files {
			for _, d := range f.Decls {
				gen, ok := d.(*ast.GenDecl)
				for i := 0; ok && i < len(gen.Specs); i++ {
					if err := visit(gen, gen.Specs[i]); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	slices.SortStableFunc(s.calls, func(a, b *call) int {
		return slices.Index(groups, a.group()) - slices.Index(groups, b.group())
	})
	return s, nil
}

// declare notes a type with its fields, or a constant.
func (s *source) declare(gen *ast.GenDecl, spec ast.Spec) error {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		s.docs[spec.Name.Name] = comment(spec.Doc, gen.Doc)
		if st, ok := spec.Type.(*ast.StructType); ok {
			s.structure(spec.Name.Name, st)
		}
	case *ast.ValueSpec:
		if gen.Tok != token.CONST || len(spec.Values) != 1 {
			return nil
		}
		name := spec.Names[0].Name
		s.docs[name] = comment(spec.Doc, spec.Comment)
		s.blocks[name] = comment(gen.Doc)
		if text, err := s.text(spec.Values[0]); err == nil {
			s.consts[name] = text
			if of, ok := spec.Type.(*ast.Ident); ok {
				s.values[of.Name] = append(s.values[of.Name], name)
			}
		}
	}
	return nil
}

func (s *source) structure(owner string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		for _, n := range f.Names {
			s.fields[owner] = append(s.fields[owner], n.Name)
			text := comment(f.Comment) // of this field; the other one may be of those that follow, too
			if more := comment(f.Doc); text != "" && more != "" {
				text += ". " + more
			}
			s.docs[owner+"."+n.Name] = cmp.Or(text, comment(f.Doc))
		}
	}
}

// descriptor notes a method.
func (s *source) descriptor(gen *ast.GenDecl, spec ast.Spec) error {
	v, ok := spec.(*ast.ValueSpec)
	if !ok || gen.Tok != token.VAR || len(v.Values) != 1 {
		return nil
	}
	lit, ok := v.Values[0].(*ast.CompositeLit)
	if !ok {
		return nil
	}
	typ, ok := lit.Type.(*ast.IndexListExpr)
	if !ok || len(typ.Indices) != 2 {
		return nil
	}
	c := &call{Var: v.Names[0].Name, Params: expr(typ.Indices[0]), Result: expr(typ.Indices[1]),
		fields: map[string]string{}}
	for _, e := range lit.Elts {
		kv := e.(*ast.KeyValueExpr)
		text, err := s.text(kv.Value)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", c.Var, expr(kv.Key), err)
		}
		c.fields[expr(kv.Key)] = text
	}
	if !slices.Contains(groups, c.group()) {
		return fmt.Errorf("method %s: add its group to groups", c.name())
	}
	s.calls = append(s.calls, c)
	return nil
}

// text is the value of a constant expression.
func (s *source) text(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
	case *ast.Ident:
		if known, ok := s.consts[e.Name]; ok {
			return known, nil
		}
		return e.Name, nil // true
	case *ast.BinaryExpr:
		x, errX := s.text(e.X)
		y, errY := s.text(e.Y)
		if errX == nil && errY == nil && e.Op == token.ADD {
			return x + y, nil
		}
	}
	return "", fmt.Errorf("no constant text")
}

func expr(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return "*" + expr(e.X)
	case *ast.MapType:
		return "map[" + expr(e.Key) + "]" + expr(e.Value)
	}
	return "?"
}

// comment is the text of the first comment that there is, in one line.
func comment(groups ...*ast.CommentGroup) string {
	for _, g := range groups {
		if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
			return text
		}
	}
	return ""
}

var goName = regexp.MustCompile(`\b([A-Z]\w+(\.[A-Z]\w+)*|nil)\b`)

// words replaces what Go programs call things by what they are called in JSON. names are those of a type's fields.
func (s *source) words(text string, names map[string]string) string {
	return goName.ReplaceAllStringFunc(text, func(word string) string {
		if json, ok := names[word]; ok {
			return json
		}
		if value, ok := s.consts[word]; ok {
			return strconv.Quote(value)
		}
		return word
	})
}
