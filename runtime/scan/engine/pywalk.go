package engine

import "strings"

func (f *pyFile) onImport(n *node) {
	for _, k := range n.inner() {
		module, _ := f.imported(k)
		if n.kind == "future_import_statement" {
			module = "__future__"
		}
		if module != "" {
			f.onModule(module, k)
		}
	}
}

func (f *pyFile) onFrom(n *node) {
	from := n.child("module_name")
	if from == nil {
		return
	}
	if from.kind != "dotted_name" {
		f.imports(f.src[from.start:from.end], from)
		f.on(pyRelative, from)
		return
	}
	module := f.dotted(from)
	tame := true // all that is imported by name is something that only computes
	for _, k := range n.inner() {
		if k == from {
			continue
		}
		if k.kind == "wildcard_import" {
			tame = false
			f.on(pyStar, k)
			continue
		}
		name, _ := f.imported(k)
		r, ok := pyMatch(module + "." + name)
		if ok {
			f.on(r, k)
		}
		tame = tame && pySafe[module+"."+name] || tame && ok && r.severity == low
	}
	if tame {
		f.imports(module, from)
		return
	}
	f.onModule(module, from)
}

// onModule reports a module that is imported.
func (f *pyFile) onModule(module string, n *node) {
	f.imports(module, n)
	root, _, _ := strings.Cut(module, ".")
	r, ok := pyMatch(module)
	switch {
	case ok:
		f.on(r, n)
	case !pySafe[root] && !pySafe[module]:
		f.on(pyRelative, n)
	}
}

func (f *pyFile) onName(n *node, chained bool) {
	f.spelling(n)
	if r, ok := pyAttributes[f.name(n)]; ok && r.id == pyInspect.id {
		f.on(r, n)
	}
	for _, v := range f.eval(n) {
		if v.is != isPath {
			continue
		}
		r, ok := pyMatch(v.path)
		switch {
		case strings.HasPrefix(v.path, "builtins.") && pyHelpers[v.path[len("builtins."):]]:
			if v.path == "builtins.getattr" && !chained {
				f.on(pyDynAttr, n) // handed on: map(getattr, ...)
			}
		case ok && strings.Contains(v.path, "."):
			f.on(r, n)
		case ok && !chained && r.severity != low, !chained &&
			(v.path == "os" || v.path == "sys" || v.path == "builtins"):
			f.on(pyModule, n)
		}
	}
}

func (f *pyFile) onAttribute(n *node) {
	name := n.child("attribute")
	if name == nil {
		return
	}
	f.spelling(name)
	known := f.about(n)
	r, bad := pyAttributes[f.name(name)]
	if bad && (!known || r.id == pyInspect.id) {
		f.on(r, name)
	}
	f.walk(n.child("object"), true)
}

func (f *pyFile) onSubscript(n *node) {
	f.about(n)
	of, index := n.child("value"), n.child("subscript")
	for _, v := range f.eval(of) {
		if v.is == isPath && only(f.eval(index)).is != isText {
			switch v.path {
			case "sys.modules", "builtins", "builtins.globals()", "builtins.locals()", "builtins.vars()":
				f.on(pyDynAttr, n)
			}
		}
	}
	f.walk(of, true)
	f.pieces(index)
	for _, k := range n.kids {
		if k != of && k.named {
			f.walk(k, false)
		}
	}
}

func (f *pyFile) onCall(n *node) {
	fn, args := n.child("function"), f.args(n)
	f.about(n)
	for _, v := range f.eval(fn) {
		if v.is == isPath {
			f.onKnownCall(v.path, n, args)
		}
	}
	f.walk(fn, true)
	list := n.child("arguments")
	if list == nil {
		return
	}
	if list.kind == "generator_expression" {
		f.walk(list, false)
		return
	}
	for i, k := range list.inner() {
		// The object of getattr with a name that is known is no value that is handed on.
		f.walk(k, i == 0 && f.isAccess(fn))
	}
}

// isAccess says that a function only reaches into its first argument.
func (f *pyFile) isAccess(fn *node) bool {
	for _, v := range f.eval(fn) {
		switch v.path {
		case "builtins.getattr", "builtins.vars", "builtins.dir", "builtins.setattr":
			return true
		}
	}
	return false
}

// onKnownCall reports what depends on the arguments.
func (f *pyFile) onKnownCall(path string, n *node, args []*node) {
	first := func(i int) (string, bool) {
		if i < len(args) {
			f.pieces(args[i])
			return onlyText(f.eval(args[i]))
		}
		return "", false
	}
	switch path {
	case "builtins.eval", "builtins.exec", "builtins.compile":
		if code, ok := first(0); ok && strings.TrimSpace(code) != "" {
			f.inside("python", strings.TrimSpace(code), n.line, n.col)
		}
	case "builtins.__import__", "importlib.import_module", "importlib.__import__", "runpy.run_module":
		if name, ok := first(0); ok {
			f.onModule(name, n)
		} else {
			f.on(pyDynImport, n)
		}
	case "builtins.getattr", "builtins.setattr", "builtins.delattr":
		name, ok := first(1)
		switch {
		case !ok:
			f.on(pyDynAttr, n)
		default:
			if r, bad := pyAttributes[name]; bad {
				f.on(r, n)
			}
		}
	}
}

// pieces reports a text that names something dangerous and is not written down as that text.
func (f *pyFile) pieces(n *node) {
	if n == nil || n.kind == "identifier" {
		return
	}
	text, ok := onlyText(f.eval(n))
	if !ok || len(text) > 64 || strings.Contains(f.src[n.start:n.end], text) {
		return
	}
	_, builtin := pyRules.exact["builtins."+text]
	_, attribute := pyAttributes[text]
	r, module := pyMatch(text)
	if builtin || attribute || module && (r.severity != low || text == "os" || text == "sys") {
		f.on(pyPieces, n)
	}
}

// onText reports texts that are written so that people do not read them.
func (f *pyFile) onText(n *node) {
	f.pieces(n)
	if n.kind != "string" {
		return
	}
	raw := false
	for _, k := range n.inner() {
		text := f.src[k.start:k.end]
		switch k.kind {
		case "string_start":
			raw = strings.ContainsAny(text, "rR")
		case "string_content":
			if _, plain := escapes(text); !raw && (plain || namedLetter(text)) {
				f.on(pyEscapes, n)
			}
		}
	}
}

// namedLetter reports whether a text has letters, digits or signs of identifiers by their names: \N{LATIN SMALL LETTER
// A}.
func namedLetter(text string) bool {
	upper := strings.ToUpper(text)
	for _, name := range []string{"LATIN ", "DIGIT ", "LOW LINE", "FULL STOP"} {
		if strings.Contains(upper, `\N{`+name) {
			return true
		}
	}
	return false
}
