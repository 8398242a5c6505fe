package engine

import "strings"

// javascript looks through s.src.
func (s *scan) javascript() {
	s.src = strings.ReplaceAll(strings.ReplaceAll(s.src, "\r\n", "\n"), "\r", "\n")
	root := s.tree(jsGrammar(), jsSyntax)
	if root == nil {
		return
	}
	f := &jsFile{scan: s, names: map[string][]value{}, owned: map[string]bool{}}
	for range 3 {
		f.known = map[*node][]value{}
		f.bindings(root)
	}
	f.known = map[*node][]value{}
	f.walk(root, false)
}

// bindings notes what names are bound to.
func (f *jsFile) bindings(n *node) {
	switch n.kind {
	case "variable_declarator":
		f.bindTarget(n.child("name"), f.eval(n.child("value")))
	case "assignment_expression":
		f.bindTarget(n.child("left"), f.eval(n.child("right")))
	case "augmented_assignment_expression":
		if left := n.child("left"); left != nil && left.kind == "identifier" {
			f.bindTarget(left, f.eval(n.child("right")))
			f.owned[f.name(left)] = true
		}
	case "assignment_pattern": // a default
		f.bindTarget(n.child("left"), f.eval(n.child("right")))
		if left := n.child("left"); left != nil && left.kind == "identifier" {
			f.owned[f.name(left)] = true
		}
	case "import_statement":
		f.bindImport(n)
	}
	for _, k := range n.kids {
		f.bindings(k)
	}
}

func (f *jsFile) bindImport(n *node) {
	module, ok := onlyText(f.eval(n.child("source")))
	clause := n.first()
	if !ok || clause == nil || clause.kind != "import_clause" {
		return
	}
	path := modulePath(module)
	for _, k := range clause.inner() {
		switch k.kind {
		case "identifier":
			f.bind(f.name(k), one(pathOf(path)))
		case "namespace_import":
			if id := k.first(); id != nil {
				f.bind(f.name(id), one(pathOf(path)))
			}
		case "named_imports":
			for _, spec := range k.inner() {
				name, alias := spec.child("name"), spec.child("alias")
				if name == nil {
					continue
				}
				if alias == nil {
					alias = name
				}
				f.bind(f.name(alias), f.member(one(pathOf(path)), f.name(name)))
			}
		}
	}
}

// bindTarget notes an assignment, also of members by their names.
func (f *jsFile) bindTarget(left *node, values []value) {
	if left == nil {
		return
	}
	switch left.kind {
	case "identifier", "shorthand_property_identifier_pattern":
		f.bind(f.name(left), values)
	case "object_pattern":
		for _, k := range left.inner() {
			switch k.kind {
			case "shorthand_property_identifier_pattern":
				f.bind(f.name(k), f.member(values, f.name(k)))
			case "pair_pattern":
				if key, ok := f.key(k.child("key")); ok {
					f.bindTarget(k.child("value"), f.member(values, key))
				}
			}
		}
	case "array_pattern":
		v := only(values)
		for i, k := range left.inner() {
			if e, ok := element(v, i); ok && v.is == isList && e.is != isNothing {
				f.bindTarget(k, one(e))
			}
		}
	}
}

// key is the name of a property in a pattern or an object.
func (f *jsFile) key(n *node) (string, bool) {
	switch {
	case n == nil:
		return "", false
	case n.kind == "computed_property_name":
		return onlyText(f.eval(n.first()))
	case n.kind == "string":
		return onlyText(f.eval(n))
	}
	return f.name(n), true
}

// walk reports what n and its children do. chained says that n is the object of a member or what is called, and so is
// not handed on.
func (f *jsFile) walk(n *node, chained bool) {
	if n == nil {
		return
	}
	switch n.kind {
	case "comment":
		return
	case "html_comment":
		f.on(jsHTML, n)
		return
	case "with_statement":
		f.on(jsWith, n)
	case "import_statement", "export_statement":
		if source := n.child("source"); source != nil {
			if name, ok := onlyText(f.eval(source)); ok {
				f.onModule(name, source)
			}
			return
		}
	case "identifier", "shorthand_property_identifier":
		f.onName(n, chained)
		return
	case "property_identifier", "shorthand_property_identifier_pattern", "private_property_identifier":
		f.spelling(n)
		return
	case "member_expression":
		f.onMember(n, n.child("property"))
		return
	case "subscript_expression":
		f.onSubscript(n)
		return
	case "call_expression", "new_expression":
		f.onCall(n)
		return
	case "pair_pattern":
		f.onPattern(n)
	case "string", "template_string", "binary_expression":
		f.onText(n)
	case "variable_declarator", "assignment_expression":
		f.onAssignment(n)
		return
	}
	for _, k := range n.kids {
		if k.named && !isJSLabel(n, k) {
			f.walk(k, chained && n.kind == "parenthesized_expression")
		}
	}
}

// isJSLabel says that a child is a name and no value.
func isJSLabel(n, k *node) bool {
	switch n.kind {
	case "function_declaration", "function_expression", "generator_function_declaration", "generator_function",
		"class_declaration", "class":
		return k.field == "name"
	case "formal_parameters":
		return k.kind == "identifier"
	case "arrow_function":
		return k.field == "parameter"
	case "assignment_pattern":
		return k.field == "left" && k.kind == "identifier"
	case "catch_clause":
		return k.field == "parameter" && k.kind == "identifier"
	}
	return false
}

func (f *jsFile) onAssignment(n *node) {
	left, right := n.child("left"), n.child("right")
	if left == nil {
		left, right = n.child("name"), n.child("value")
	}
	if left != nil && left.kind == "identifier" {
		f.spelling(left)
		if right != nil && right.kind == "identifier" { // an alias, which is known
			f.onName(right, true)
			return
		}
		f.walk(right, false)
		return
	}
	f.walk(left, false)
	f.walk(right, left != nil && left.kind == "object_pattern")
}

func (f *jsFile) spelling(n *node) {
	if f.name(n) != f.src[n.start:n.end] {
		f.on(jsLookalike, n)
	}
}

// about reports the rules of what n is.
func (f *jsFile) about(n *node) (known bool) {
	for _, v := range f.eval(n) {
		if v.is != isPath {
			continue
		}
		known = true
		if r, ok := jsMatch(v.path); ok {
			f.on(r, n)
		}
	}
	return known
}

func (f *jsFile) onName(n *node, chained bool) {
	f.spelling(n)
	for _, v := range f.eval(n) {
		if v.is != isPath {
			continue
		}
		r, ok := jsMatch(v.path)
		if ok && (r.severity != low || !chained) {
			f.on(r, n)
		}
		if !chained && (v.path == "globalThis" || v.path == "require" || v.path == "process" || v.path == "module" ||
			strings.HasPrefix(v.path, "module:")) {
			f.on(jsValue, n)
		}
	}
}

// onModule reports a module that is imported.
func (f *jsFile) onModule(name string, n *node) {
	name = strings.TrimPrefix(name, "node:")
	f.imports(name, n)
	r, ok := jsMatch(modulePath(name))
	switch {
	case ok:
		f.on(r, n)
	case !jsSafe[name]:
		f.on(jsUnknown, n)
	}
}

func (f *jsFile) onMember(n, name *node) {
	if name == nil {
		return
	}
	f.spelling(name)
	known := f.about(n)
	f.onMemberName(f.name(name), known, name)
	f.walk(n.child("object"), true)
}

func (f *jsFile) onMemberName(name string, known bool, n *node) {
	if r, ok := jsMembers[name]; ok && (!known || r.id != "javascript.method") {
		f.on(r, n)
	}
}

func (f *jsFile) onSubscript(n *node) {
	of, index := n.child("object"), n.child("index")
	known := f.about(n)
	key, ok := onlyText(f.eval(index))
	if ok {
		f.onMemberName(key, known, n)
	}
	for _, v := range f.eval(of) {
		if v.is == isPath && !ok && v.path != "this" {
			f.on(jsDynMember, n)
		}
	}
	f.walk(of, true)
	f.pieces(index)
	f.walk(index, false)
}

func (f *jsFile) onCall(n *node) {
	fn, args := n.child("function"), f.args(n)
	if fn == nil {
		fn = n.child("constructor")
	}
	if fn == nil {
		return
	}
	if fn.kind == "import" {
		f.onRequire(n, args)
	} else {
		for _, v := range f.eval(fn) {
			if v.is == isPath {
				f.onKnownCall(v.path, n, args)
			}
		}
		if fn.kind == "subscript_expression" && only(f.eval(fn.child("index"))).is == isNothing {
			f.on(jsCall, n)
		}
		f.walk(fn, true)
	}
	if list := n.child("arguments"); list != nil {
		for _, k := range list.inner() {
			f.walk(k, false)
		}
	}
}

func (f *jsFile) onRequire(n *node, args []*node) {
	if len(args) > 0 {
		f.pieces(args[0])
		if name, ok := onlyText(f.eval(args[0])); ok {
			f.onModule(name, n)
			return
		}
	}
	f.on(jsDynImport, n)
}

// onKnownCall reports what depends on the arguments.
func (f *jsFile) onKnownCall(path string, n *node, args []*node) {
	switch path {
	case "require", "module.require", "process.mainModule.require", "process.getBuiltinModule":
		f.onRequire(n, args)
	case "setTimeout", "setInterval", "setImmediate":
		if len(args) > 0 {
			if v := only(f.eval(args[0])); v.is == isText || args[0].kind == "template_string" ||
				args[0].kind == "binary_expression" {
				f.on(jsTimer, n)
			}
		}
	case "eval", "Function":
		if len(args) > 0 {
			if code, ok := onlyText(f.eval(args[len(args)-1])); ok && strings.TrimSpace(code) != "" {
				f.inside("javascript", code, n.line, n.col)
			}
		}
	}
}

func (f *jsFile) onPattern(n *node) {
	key := n.child("key")
	if key == nil {
		return
	}
	if name, ok := f.key(key); ok {
		f.onMemberName(name, false, key)
		if key.kind == "computed_property_name" {
			f.pieces(key.first())
		}
	}
}

// pieces reports a text that names something dangerous and is not written down as that text.
func (f *jsFile) pieces(n *node) {
	if n == nil || n.kind == "identifier" {
		return
	}
	text, ok := onlyText(f.eval(n))
	if !ok || len(text) > 64 || text == "" || strings.Contains(f.src[n.start:n.end], text) {
		return
	}
	_, global := jsRules.exact[text]
	_, module := jsMatch(modulePath(text))
	_, member := jsMembers[text]
	if global || module || member {
		f.on(jsPieces, n)
	}
}

// onText reports texts that are written so that people do not read them.
func (f *jsFile) onText(n *node) {
	f.pieces(n)
	for _, k := range n.inner() {
		if k.kind == "escape_sequence" {
			if _, plain := escapes(f.src[k.start:k.end]); plain {
				f.on(jsEscapes, n)
			}
		}
	}
}
