package engine

import (
	"errors"
	"path"
	"reflect"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shWord is a word of a command, as far as it can be told.
type shWord struct {
	text    string
	dynamic bool // what it is, or how many words, is decided while the script runs
	pieces  bool // it is written otherwise than it is read
}

// shFile is a script.
type shFile struct {
	*scan
	functions map[string]bool
	piped     map[*syntax.Stmt]bool // gets its input from another command
	data      map[string]bool       // variables that hold what was read, or what a command has written
	numbers   map[string]bool       // variables that evaluate what is assigned to them: integers, and other names
	clean     uint                  // up to here no arithmetic has data in it
}

// shell looks through s.src.
func (s *scan) shell() {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(s.src), "")
	if err != nil {
		line, col := 0, 0
		var p syntax.ParseError
		if errors.As(err, &p) {
			line, col = int(p.Pos.Line())-1, int(p.Pos.Col())-1
		}
		s.report(shSyntax, max(line, 0), max(col, 0), err.Error())
	}
	if file == nil {
		return
	}
	f := &shFile{scan: s, functions: map[string]bool{}, piped: map[*syntax.Stmt]bool{}, data: map[string]bool{},
		numbers: map[string]bool{}}
	syntax.Walk(file, func(n syntax.Node) bool {
		if d, ok := n.(*syntax.FuncDecl); ok && d.Name != nil {
			f.functions[d.Name.Value] = true
		}
		return true
	})
	f.findData(file)
	syntax.Walk(file, f.visit)
}

func (f *shFile) where(n syntax.Node) (line, col int) {
	return int(n.Pos().Line()) - 1, int(n.Pos().Col()) - 1
}

// about reports a node.
func (f *shFile) about(r rule, n syntax.Node) {
	line, col := f.where(n)
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from > to || to > len(f.src) {
		from, to = 0, 0
	}
	f.report(r, max(line, 0), max(col, 0), f.src[from:to])
}

func (f *shFile) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			f.piped[n.Y] = true
		}
	case *syntax.Stmt:
		f.stmt(n)
	case *syntax.CmdSubst:
		f.about(shSubst, n)
	case *syntax.ProcSubst:
		f.about(shSubst, n)
	case *syntax.ParamExp:
		if n.Excl && n.Names == 0 {
			f.about(shIndirect, n)
		}
		if n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
			if n.Exp.Word == nil || f.word(n.Exp.Word).text == "P" {
				f.about(shPrompt, n)
			}
		}
		if n.Index != nil {
			f.arithmetic(n, n.Index)
		}
		if n.Slice != nil {
			f.arithmetic(n, n.Slice.Offset)
			f.arithmetic(n, n.Slice.Length)
		}
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause:
		f.arithmetic(n, n)
	case *syntax.BinaryTest:
		if n.Op >= syntax.TsEql && n.Op <= syntax.TsGtr {
			f.arithmetic(n, n)
		}
	case *syntax.DeclClause:
		f.declared(n)
	case *syntax.UnaryTest:
		if n.Op == syntax.TsVarSet {
			f.subscripts(n, n.X)
		}
	case *syntax.CStyleLoop:
		f.arithmetic(n, n.Init)
		f.arithmetic(n, n.Cond)
		f.arithmetic(n, n.Post)
	case *syntax.FuncDecl:
		f.about(shFunction, n)
	case *syntax.Assign:
		if n.Name != nil && shVars[n.Name.Value] {
			f.about(shVar, n)
		}
		if n.Index != nil {
			f.arithmetic(n, n.Index)
		}
		if n.Name != nil && f.numbers[n.Name.Value] && n.Value != nil {
			f.arithmetic(n, n.Value)
		}
	}
	return true
}

// names says that arithmetic has variables in it.
func names(n syntax.Node) (found bool) {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return false
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Lit:
			found = found || strings.Trim(n.Value, "0123456789@*#-") != ""
		case *syntax.ParamExp, *syntax.SglQuoted, *syntax.CmdSubst:
			found = true
		}
		return !found
	})
	return found
}

// stmt reports a command with what is redirected.
func (f *shFile) stmt(st *syntax.Stmt) {
	call, _ := st.Cmd.(*syntax.CallExpr)
	for _, r := range st.Redirs {
		f.redirect(r)
	}
	if call == nil || len(call.Args) == 0 {
		return
	}
	words := make([]shWord, len(call.Args))
	for i, w := range call.Args {
		words[i] = f.word(w)
	}
	c := shCommand{words: words, piped: f.piped[st], at: call, file: f}
	for _, r := range st.Redirs {
		if r.Hdoc != nil {
			c.here, c.hereAt = f.heredoc(r), r
		} else if r.Op == syntax.WordHdoc {
			w := f.word(r.Word)
			c.here, c.hereAt = &w, r
		}
	}
	f.run(&c)
}

func (f *shFile) heredoc(r *syntax.Redirect) *shWord {
	w := shWord{}
	for _, p := range r.Hdoc.Parts {
		f.part(&w, p, true)
	}
	return &w
}

func (f *shFile) redirect(r *syntax.Redirect) {
	if r.Word == nil {
		return
	}
	w := f.word(r.Word)
	switch {
	case strings.HasPrefix(w.text, "/dev/tcp/"), strings.HasPrefix(w.text, "/dev/udp/"):
		f.about(shSocket, r)
		return
	}
	switch r.Op {
	case syntax.DplOut:
		if w.text == "-" || w.text != "" && !w.dynamic && strings.Trim(strings.TrimSuffix(w.text, "-"),
			"0123456789") == "" {
			return // another of its files, or none
		}
		f.about(shWriteAway, r)
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll, syntax.RdrInOut:
		if !w.dynamic && (w.text == "/dev/null" || w.text == "/dev/stdout" || w.text == "/dev/stderr") {
			return
		}
		if w.dynamic || elsewhere(w.text) {
			f.about(shWriteAway, r)
		} else {
			f.about(shWrite, r)
		}
	case syntax.RdrIn:
		if w.dynamic || elsewhere(w.text) {
			f.about(shElsewhere, r)
		} else {
			f.about(shRead, r)
		}
	}
}

// elsewhere says that a path may lead out of the working folder.
func elsewhere(p string) bool {
	if strings.HasPrefix(p, "-") {
		_, p, _ = strings.Cut(p, "=")
	}
	return strings.HasPrefix(p, "/") && p != "/dev/null" || strings.HasPrefix(p, "~") || p == ".." ||
		strings.HasPrefix(p, "../") || strings.Contains(p, "/..")
}

// word is what a word is.
func (f *shFile) word(w *syntax.Word) shWord {
	out := shWord{}
	for _, p := range w.Parts {
		f.part(&out, p, false)
	}
	if len(w.Parts) > 1 && !out.dynamic {
		out.pieces = true
	}
	return out
}

func (f *shFile) part(w *shWord, p syntax.WordPart, quoted bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		text := p.Value
		if strings.Contains(text, `\`) {
			w.pieces = !quoted
			text = unbackslash(text, quoted)
		} else if !quoted && strings.ContainsAny(text, "*?[{") && text != "[" && text != "{" && text != "[[" {
			w.dynamic = true // globs and braces
		}
		w.text += text
	case *syntax.SglQuoted:
		text := p.Value
		if p.Dollar {
			text, _ = escapes(text)
			w.pieces = w.pieces || text != p.Value
		}
		w.text += text
	case *syntax.DblQuoted:
		for _, k := range p.Parts {
			f.part(w, k, true)
		}
	default:
		w.dynamic = true
	}
}

// unbackslash takes away what only quotes: of texts in quotes what the shell does.
func unbackslash(s string, quoted bool) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (!quoted || strings.IndexByte("$`\"\\\n", s[i+1]) >= 0) {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// command looks at a command that no shell reads.
func (s *scan) command(argv []string) {
	f := &shFile{scan: s, functions: map[string]bool{}}
	words := make([]shWord, len(argv))
	for i, a := range argv {
		words[i] = shWord{text: a}
	}
	f.run(&shCommand{words: words, file: f})
}

// base is the name of a command without its folder and version.
func base(name string) string {
	name = path.Base(name)
	if rest, ok := strings.CutPrefix(name, "python3."); ok && strings.Trim(rest, "0123456789") == "" {
		return "python3"
	}
	return name
}
