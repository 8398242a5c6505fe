package engine

import (
	"errors"
	"sync"

	sitter "github.com/tree-sitter/go-tree-sitter"
	javascript "github.com/tree-sitter/tree-sitter-javascript/bindings/go"
	python "github.com/tree-sitter/tree-sitter-python/bindings/go"
)

// maxDepth is how deep code may nest. What people write stays below fifty; the rules recurse, and so do interpreters.
const maxDepth = 1500

// errDepth says that code nests deeper than maxDepth.
var errDepth = errors.New("nests too deep")

// node is one node of a syntax tree. The trees of tree-sitter are copied once, so that the rules need no C and no
// finding of a child costs more than its place.
type node struct {
	kind, field string
	named       bool
	start, end  int // bytes
	line, col   int // from 0
	bad         bool
	kids        []*node
}

// child is the first child of a field, or nil.
func (n *node) child(field string) *node {
	if n == nil {
		return nil
	}
	for _, k := range n.kids {
		if k.field == field {
			return k
		}
	}
	return nil
}

// inner are the named children but for comments.
func (n *node) inner() []*node {
	if n == nil {
		return nil
	}
	var all []*node
	for _, k := range n.kids {
		if k.named && k.kind != "comment" && k.kind != "html_comment" {
			all = append(all, k)
		}
	}
	return all
}

// first is the first named child, or nil.
func (n *node) first() *node {
	if all := n.inner(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// has reports whether a token is among the children.
func (n *node) has(token string) bool {
	for _, k := range n.kids {
		if k.kind == token && !k.named {
			return true
		}
	}
	return false
}

// grammar is a language of tree-sitter's with the names of its numbers.
type grammar struct {
	lang          *sitter.Language
	kinds, fields []string
}

var (
	pythonGrammar = sync.OnceValue(func() *grammar { return newGrammar(sitter.NewLanguage(python.Language())) })
	jsGrammar     = sync.OnceValue(func() *grammar { return newGrammar(sitter.NewLanguage(javascript.Language())) })
)

func newGrammar(l *sitter.Language) *grammar {
	g := &grammar{lang: l}
	for i := range l.NodeKindCount() {
		g.kinds = append(g.kinds, l.NodeKindForId(uint16(i)))
	}
	for i := range l.FieldCount() + 1 {
		g.fields = append(g.fields, l.FieldNameForId(uint16(i)))
	}
	return g
}

// parse is the tree of a source; the first place that is no code of the language is bad, unless nil.
func (g *grammar) parse(src []byte) (root, bad *node, err error) {
	p := sitter.NewParser()
	defer p.Close()
	if err := p.SetLanguage(g.lang); err != nil {
		return nil, nil, err
	}
	tree := p.Parse(src, nil)
	if tree == nil {
		return nil, nil, errors.New("the parser gave up")
	}
	defer tree.Close()
	c := tree.Walk()
	defer c.Close()
	root = g.copyOf(c)
	stack := []*node{root}
	note := func(n *node) {
		if n.bad && bad == nil {
			bad = n
		}
	}
	note(root)
	for {
		switch {
		case c.GotoFirstChild():
			if len(stack) >= maxDepth {
				return root, stack[len(stack)-1], errDepth
			}
			n := g.copyOf(c)
			note(n)
			top := stack[len(stack)-1]
			top.kids = append(top.kids, n)
			stack = append(stack, n)
			continue
		default:
		}
		for !c.GotoNextSibling() {
			if len(stack) == 1 || !c.GotoParent() {
				return root, bad, nil
			}
			stack = stack[:len(stack)-1]
		}
		n := g.copyOf(c)
		note(n)
		stack[len(stack)-1] = n
		parent := stack[len(stack)-2]
		parent.kids = append(parent.kids, n)
	}
}

func (g *grammar) copyOf(c *sitter.TreeCursor) *node {
	n := c.Node()
	at := n.StartPosition()
	start, end := n.ByteRange()
	out := &node{named: n.IsNamed(), start: int(start), end: int(end), line: int(at.Row), col: int(at.Column),
		bad: n.IsError() || n.IsMissing()}
	if id := int(n.KindId()); id < len(g.kinds) {
		out.kind = g.kinds[id]
	} else {
		out.kind = "ERROR" // 65535, ts_builtin_sym_error
	}
	if f := int(c.FieldId()); f < len(g.fields) {
		out.field = g.fields[f]
	}
	return out
}
