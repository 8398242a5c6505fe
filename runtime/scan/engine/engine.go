// Package engine looks through code for what reaches beyond the program: by real parsers, never by regular expressions
// on text. It is linked by cmd/hutch-scan alone, because its parsers read what is hostile.
//
// A scan is a hint, not a wall: whoever means to hide something from it can.
package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Request is what is looked through: code of a language, or a command.
type Request struct {
	Language       string   `json:"language,omitempty"`
	Code           string   `json:"code,omitempty"`
	Argv           []string `json:"argv,omitempty"` // a command instead of Language and Code
	AllowedImports []string `json:"allowed_imports,omitempty"`
}

// maxNested is how many languages or pieces of code may be in each other, as in bash -c 'python3 -c "..."'.
const maxNested = 4

// maxText is what a finding tells of the code, in bytes.
const maxText = 120

// rule is one line of the tables.
type rule struct {
	id       string
	category api.Category
	severity api.Severity
	why      string
}

// scan collects what is found in one piece of code.
type scan struct {
	src     string
	allowed []string
	nested  int
	// at, where code is part of other code, is where that stands: what is found in it is told there.
	at   *place
	res  *api.ScanResult
	seen map[string]bool
}

// place is a position in the code that the caller knows.
type place struct{ line, col int }

// Scan looks through code.
func Scan(req Request) api.ScanResult {
	res := api.ScanResult{Language: req.Language, Findings: []api.Finding{}, Imports: []api.ScanImport{}}
	s := &scan{src: req.Code, allowed: req.AllowedImports, res: &res, seen: map[string]bool{}}
	if req.Argv != nil {
		res.Language = "command"
		s.src = strings.Join(req.Argv, " ")
		s.command(req.Argv)
	} else {
		s.code(req.Language)
	}
	slices.SortStableFunc(res.Findings, func(a, b api.Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Rule, b.Rule))
	})
	return res
}

// code looks through s.src.
func (s *scan) code(language string) {
	if !utf8.ValidString(s.src) || strings.ContainsRune(s.src, 0) {
		s.report(ruleText, 0, 0, s.src)
		return
	}
	s.hidden()
	switch language {
	case "python":
		s.python()
	case "javascript":
		s.javascript()
	case "shell":
		s.shell()
	default:
		s.report(ruleLanguage, 0, 0, language)
	}
}

// Rules of all languages.
var (
	ruleText = newRule("text.binary", api.CategoryUnparsable, api.SeverityHigh,
		"it is no text (UTF-8 without NUL): nothing is known of it")
	ruleBidi = newRule("text.bidi", api.CategoryObfuscation, api.SeverityHigh,
		"invisible marks change the order in which people see the code")
	ruleLanguage = newRule("text.language", api.CategoryUnparsable, api.SeverityHigh,
		"there is no parser for this language: nothing is known of it")
	ruleDepth = newRule(api.RuleDepth, api.CategoryUnparsable, api.SeverityHigh,
		"it nests deeper than any program that people write: the rest is not looked at")
	ruleNested = newRule("text.nested", api.CategoryObfuscation, api.SeverityHigh,
		"code in code in code: the innermost is not looked at")
	ruleImport = newRule("import.not_allowed", api.CategoryImport, api.SeverityHigh,
		"the module is not in allowed_imports")
)

// hidden reports marks that show code in another order than it has (CVE-2021-42574).
func (s *scan) hidden() {
	line, begin := 0, 0
	for i, r := range s.src {
		switch {
		case r == '\n':
			line, begin = line+1, i+1
		case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			s.report(ruleBidi, line, i-begin, fmt.Sprintf("U+%04X", r))
		}
	}
}

// report tells of a place, whose line and column count from 0.
func (s *scan) report(r rule, line, col int, text string) {
	if s.at != nil {
		line, col = s.at.line, s.at.col
	}
	text = clip(text)
	key := fmt.Sprintf("%s %d %d", r.id, line, col)
	if s.seen[key] {
		return
	}
	s.seen[key] = true
	s.res.Risky = s.res.Risky || r.severity != api.SeverityLow
	if len(s.res.Findings) >= api.MaxFindings {
		s.res.Truncated = true
		return
	}
	s.res.Findings = append(s.res.Findings, api.Finding{
		Rule: r.id, Category: r.category, Severity: r.severity, Line: line + 1, Column: col + 1, Text: text, Why: r.why,
	})
}

// on reports a node of a tree.
func (s *scan) on(r rule, n *node) { s.report(r, n.line, n.col, s.src[n.start:n.end]) }

// imports notes a module that is imported.
func (s *scan) imports(module string, n *node) {
	line := n.line
	if s.at != nil {
		line = s.at.line
	}
	ok := len(s.allowed) == 0 || slices.ContainsFunc(s.allowed, func(a string) bool {
		return module == a || strings.HasPrefix(module, a+".") || strings.HasPrefix(module, a+"/")
	})
	found := api.ScanImport{Module: clip(module), Line: line + 1, Allowed: ok}
	switch last := len(s.res.Imports) - 1; {
	case last+1 < api.MaxScanImports:
		s.res.Imports = append(s.res.Imports, found)
	case !ok && s.res.Imports[last].Allowed: // many that are allowed do not hide one that is not
		s.res.Imports[last] = found
		fallthrough
	default:
		s.res.Truncated = true
	}
	if !ok {
		s.on(ruleImport, n)
	}
}

// inside looks through code that is part of this one.
func (s *scan) inside(language, code string, line, col int) {
	at := s.at
	if at == nil {
		at = &place{line, col}
	}
	if s.nested >= maxNested {
		s.report(ruleNested, line, col, code)
		return
	}
	(&scan{src: code, allowed: s.allowed, nested: s.nested + 1, at: at, res: s.res, seen: s.seen}).code(language)
}

// tree parses s.src. Code that is none of the language's is a finding, and what the parser has understood of it is
// looked at.
func (s *scan) tree(g *grammar, syntax rule) *node {
	root, bad, err := g.parse([]byte(s.src))
	switch {
	case errors.Is(err, errDepth):
		s.on(ruleDepth, bad)
		return nil
	case err != nil:
		s.report(syntax, 0, 0, err.Error())
		return nil
	case bad != nil:
		s.on(syntax, bad)
	}
	return root
}

// clip makes one short line of text.
func clip(text string) string {
	text, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.ToValidUTF8(text, "\uFFFD") // which can be longer
	if len(text) > maxText {
		text, more = strings.ToValidUTF8(text[:maxText-4], ""), true // of what was cut in two
	}
	if more {
		text += " ..."
	}
	return text
}
