package engine

import (
	"strings"
)

// python looks through s.src.
func (s *scan) python() {
	// Python reads lines that end in \r; its grammar's comments do not.
	s.src = strings.ReplaceAll(strings.ReplaceAll(s.src, "\r\n", "\n"), "\r", "\n")
	s.encoding()
	root := s.tree(pythonGrammar(), pySyntax)
	if root == nil {
		return
	}
	f := &pyFile{scan: s, names: map[string][]value{}, owned: map[string]bool{}}
	for range 3 { // what names are bound to may be of names that are bound later
		f.known = map[*node][]value{}
		f.bindings(root)
	}
	f.known = map[*node][]value{}
	f.walk(root, false)
}

// encoding reports a declared encoding that is another than ASCII's (PEP 263).
func (s *scan) encoding() {
	for i, line := range strings.SplitN(s.src, "\n", 3) {
		line = strings.TrimSpace(line)
		if i == 2 || !strings.HasPrefix(line, "#") {
			continue
		}
		_, name, ok := strings.Cut(line, "coding")
		if !ok || name == "" || (name[0] != ':' && name[0] != '=') {
			continue
		}
		name = strings.TrimLeft(name[1:], " \t")
		end := strings.IndexFunc(name, func(r rune) bool {
			return !strings.ContainsRune("-_.", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
				(r < 'A' || r > 'Z')
		})
		if end >= 0 {
			name = name[:end]
		}
		switch strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name)) {
		case "utf8", "ascii", "usascii", "latin1", "iso88591":
		default:
			s.report(pyEncoding, i, 0, line)
		}
	}
}

// bindings notes what names are bound to.
func (f *pyFile) bindings(n *node) {
	switch n.kind {
	case "import_statement":
		for _, k := range n.inner() {
			module, name := f.imported(k)
			if name == "" { // import a.b binds a
				name, _, _ = strings.Cut(module, ".")
				f.bind(name, one(pathOf(name)))
			} else {
				f.bind(name, one(pathOf(module)))
			}
		}
	case "import_from_statement":
		f.bindFrom(n)
	case "assignment":
		f.bindTarget(n.child("left"), n.child("right"))
	case "named_expression":
		f.bindTarget(n.child("name"), n.child("value"))
	case "augmented_assignment":
		f.bindAugmented(n)
	case "for_statement", "for_in_clause":
		f.bindEach(n.child("left"), n.child("right"))
	case "default_parameter", "typed_default_parameter":
		f.bindTarget(n.child("name"), n.child("value"))
		if name := n.child("name"); name != nil && name.kind == "identifier" {
			f.owned[f.name(name)] = true
		}
	case "as_pattern":
		if k := n.inner(); len(k) == 2 {
			f.bindTarget(k[1].first(), k[0])
		}
	}
	for _, k := range n.kids {
		f.bindings(k)
	}
}

// imported is the module of a name of an import statement, and the name that it gets, unless "".
func (f *pyFile) imported(k *node) (module, as string) {
	if k.kind == "aliased_import" {
		if alias := k.child("alias"); alias != nil {
			as = f.name(alias)
		}
		if k = k.child("name"); k == nil {
			return "", as
		}
	}
	return f.dotted(k), as
}

// dotted is a name with points, without what may stand between.
func (f *pyFile) dotted(k *node) string {
	var parts []string
	for _, id := range k.inner() {
		parts = append(parts, f.name(id))
	}
	return strings.Join(parts, ".")
}

func (f *pyFile) bindFrom(n *node) {
	from := n.child("module_name")
	if from == nil || from.kind != "dotted_name" {
		return
	}
	module := f.dotted(from)
	for _, k := range n.inner() {
		switch {
		case k == from:
		case k.kind == "wildcard_import":
			for name := range pyRules.exact {
				if rest, ok := strings.CutPrefix(name, module+"."); ok && !strings.Contains(rest, ".") {
					f.bind(rest, one(pathOf(name)))
				}
			}
		default:
			name, as := f.imported(k)
			if as == "" {
				as = name
			}
			f.bind(as, f.member(one(pathOf(module)), name))
		}
	}
}

// bindTarget notes an assignment; of several names one by one.
func (f *pyFile) bindTarget(left, right *node) {
	if left == nil || right == nil {
		return
	}
	switch left.kind {
	case "identifier":
		f.bind(f.name(left), f.eval(right))
	case "pattern_list", "tuple_pattern", "list_pattern":
		l, r := left.inner(), right.inner()
		if right.kind == "expression_list" || right.kind == "tuple" || right.kind == "list" {
			for i := range l {
				if i < len(r) && len(l) == len(r) {
					f.bindTarget(l[i], r[i])
				}
			}
		}
	}
}

// bindAugmented is x += "text".
func (f *pyFile) bindAugmented(n *node) {
	left := n.child("left")
	if left == nil || left.kind != "identifier" {
		return
	}
	name := f.name(left)
	f.owned[name] = true
}

func (f *pyFile) bindEach(left, right *node) {
	if left == nil || left.kind != "identifier" {
		return
	}
	name := f.name(left)
	f.owned[name] = true
	if list := only(f.eval(right)); list.is == isList {
		for _, v := range list.list {
			if v.is == isPath {
				f.bind(name, one(v))
			}
		}
	}
}

// walk reports what n and its children do. chained says that n is the object of an attribute, so that a module there is
// not handed on.
func (f *pyFile) walk(n *node, chained bool) {
	if n == nil {
		return
	}
	switch n.kind {
	case "comment", "global_statement", "nonlocal_statement", "keyword_separator", "positional_separator":
		return
	case "import_statement", "future_import_statement":
		f.onImport(n)
		return
	case "import_from_statement":
		f.onFrom(n)
		return
	case "exec_statement":
		f.on(pyRules.exact["builtins.exec"], n)
	case "identifier":
		f.onName(n, chained)
		return
	case "attribute":
		f.onAttribute(n)
		return
	case "call":
		f.onCall(n)
		return
	case "subscript":
		f.onSubscript(n)
		return
	case "string", "concatenated_string", "binary_operator":
		f.onText(n)
	case "assignment":
		f.onAssignment(n)
		return
	case "parameters", "lambda_parameters":
		f.onParameters(n)
		return
	}
	for _, k := range n.kids {
		if k.named && !f.isLabel(n, k) {
			f.walk(k, chained && n.kind == "parenthesized_expression")
		}
	}
}

// isLabel says that a child is a name and no value.
func (f *pyFile) isLabel(n, k *node) bool {
	switch n.kind {
	case "function_definition", "class_definition", "keyword_argument", "named_expression":
		return k.field == "name"
	}
	return false
}

func (f *pyFile) onParameters(n *node) {
	for _, k := range n.inner() {
		switch k.kind {
		case "default_parameter", "typed_default_parameter":
			f.walk(k.child("value"), false)
			f.walk(k.child("type"), false)
		case "typed_parameter":
			f.walk(k.child("type"), false)
		}
	}
}

func (f *pyFile) onAssignment(n *node) {
	left, right := n.child("left"), n.child("right")
	f.walk(n.child("type"), false)
	if left != nil && left.kind == "identifier" {
		f.spelling(left)
		if right != nil && right.kind == "identifier" { // an alias, which is known
			f.onName(right, true)
			return
		}
	} else {
		f.walk(left, false)
	}
	f.walk(right, false)
}

// spelling reports an identifier that Python reads otherwise than it is written.
func (f *pyFile) spelling(n *node) {
	if f.name(n) != f.src[n.start:n.end] {
		f.on(pyLookalike, n)
	}
}

// about reports the rule of what n is. known says that n is something that the tables, or nothing, can be about.
func (f *pyFile) about(n *node) (known bool) {
	for _, v := range f.eval(n) {
		if v.is != isPath {
			continue
		}
		known = true
		if r, ok := pyMatch(v.path); ok && v.path != "builtins" {
			f.on(r, n)
		}
	}
	return known
}
