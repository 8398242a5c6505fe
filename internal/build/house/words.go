package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

// words are those that a reader of another project would have to decode, with the field's.
var words = []struct{ pattern, instead string }{
	{`\bcan n[o]t\b`, "cannot"},
	{`\btold o[f]\b`, "reported, or told about"},
}

var rules = func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, w := range words {
		all = append(all, regexp.MustCompile(`(?i)`+w.pattern))
	}
	return all
}()

// say applies the rules to one line of prose.
func (t *tree) say(file string, line int, text string) {
	for i, rule := range rules {
		if at := rule.FindStringIndex(text); at != nil {
			t.found(text[at[0]:at[1]]+" -> "+words[i].instead, file, line, strings.TrimSpace(text))
		}
	}
}

// goProse looks at what people read of Go code: comments and texts.
func (t *tree) goProse(set *token.FileSet, f *ast.File, file string) {
	for _, group := range f.Comments {
		for _, c := range group.List {
			for i, line := range strings.Split(c.Text, "\n") {
				t.say(file, set.Position(c.Pos()).Line+i, line)
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Contains(lit.Value, " ") {
			for i, line := range strings.Split(lit.Value, "\n") {
				t.say(file, set.Position(lit.Pos()).Line+i, line)
			}
		}
		return true
	})
}

// markdown looks at the prose of a document, not at its examples.
func (t *tree) markdown(file, text string) {
	example := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			example = !example
			continue
		}
		if !example {
			t.say(file, i+1, line)
		}
	}
}
