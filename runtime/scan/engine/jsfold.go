package engine

import (
	"strconv"
	"strings"
)

// jsFile is what is known of a JavaScript source.
type jsFile struct {
	*scan
	names map[string][]value
	owned map[string]bool
	memo
}

// name is an identifier as JavaScript reads it.
func (f *jsFile) name(n *node) string {
	s, _ := escapes(f.src[n.start:n.end])
	return s
}

func (f *jsFile) bind(name string, values []value) {
	if len(values) == 0 {
		f.owned[name] = true
		return
	}
	for _, v := range values {
		known := false
		for _, have := range f.names[name] {
			known = known || same(have, v)
		}
		if !known && len(f.names[name]) < maxValues {
			f.names[name] = append(f.names[name], v)
		}
	}
}

// lookup is what a name may be: also the global one, which a binding of another scope does not change.
func (f *jsFile) lookup(name string) []value {
	values := f.names[name]
	if _, ok := jsRules.exact[name]; ok || jsGlobals[name] || jsHelpers[name] {
		p := name
		if jsGlobals[name] {
			p = "globalThis"
		}
		values = union(one(pathOf(p)), values)
	}
	if f.owned[name] && len(values) == 1 && values[0].is != isPath {
		return nil
	}
	return values
}

// jsHelpers are global names that matter to what a value is.
var jsHelpers = setOf("String Object Array setTimeout setInterval setImmediate decodeURIComponent")

func (f *jsFile) eval(n *node) []value { return f.of(n, f.evalNew) }

func (f *jsFile) evalNew(n *node) []value {
	switch n.kind {
	case "identifier", "shorthand_property_identifier":
		return f.lookup(f.name(n))
	case "this":
		return one(pathOf("this"))
	case "string", "template_string":
		return f.evalString(n)
	case "number":
		if i, err := strconv.ParseInt(strings.ReplaceAll(f.src[n.start:n.end], "_", ""), 0, 32); err == nil {
			return one(numOf(int(i)))
		}
	case "parenthesized_expression", "await_expression":
		return f.eval(n.first())
	case "sequence_expression":
		if k := n.inner(); len(k) > 0 {
			return f.eval(k[len(k)-1])
		}
	case "assignment_expression":
		return f.eval(n.child("right"))
	case "ternary_expression":
		return union(f.eval(n.child("consequence")), f.eval(n.child("alternative")))
	case "array":
		return f.evalArray(n)
	case "binary_expression":
		return f.evalBinary(n)
	case "member_expression":
		if p := n.child("property"); p != nil {
			return f.member(f.eval(n.child("object")), f.name(p))
		}
	case "subscript_expression":
		return f.evalSubscript(n)
	case "call_expression", "new_expression":
		return f.evalCall(n)
	}
	return nil
}

func (f *jsFile) evalString(n *node) []value {
	var b strings.Builder
	for _, k := range n.inner() {
		switch text := f.src[k.start:k.end]; k.kind {
		case "string_fragment", "escape_sequence":
			text, _ = escapes(text)
			b.WriteString(text)
		case "template_substitution":
			inner, ok := onlyText(f.eval(k.first()))
			if !ok {
				return nil
			}
			b.WriteString(inner)
		}
		if b.Len() > maxFolded {
			return nil
		}
	}
	return one(textOf(b.String()))
}

func (f *jsFile) evalArray(n *node) []value {
	kids := n.inner()
	if len(kids) > 4096 {
		return nil
	}
	var all []value
	for _, k := range kids {
		all = append(all, only(f.eval(k)))
	}
	return one(listOf(all))
}

func (f *jsFile) evalBinary(n *node) []value {
	l, r := f.eval(n.child("left")), f.eval(n.child("right"))
	switch {
	case n.has("||"), n.has("&&"), n.has("??"):
		return union(l, r)
	case n.has("+"):
		if v, ok := join("", []value{only(l), only(r)}); ok {
			return one(v)
		}
	}
	return nil
}

// member is a property of things.
func (f *jsFile) member(of []value, name string) []value {
	var all []value
	for _, v := range of {
		if v.is != isPath {
			continue
		}
		switch {
		case v.path == "globalThis":
			all = union(all, f.lookup(name))
			if len(all) == 0 {
				all = one(pathOf(name))
			}
		case v.path == "this":
			if _, ok := jsRules.exact[name]; ok {
				all = append(all, pathOf(name))
			}
		case name == "prototype", name == "default" && strings.HasPrefix(v.path, "module:"):
			all = append(all, v)
		case strings.Count(v.path, ".") < 16:
			all = append(all, pathOf(v.path+"."+name))
		}
	}
	return all
}

func (f *jsFile) evalSubscript(n *node) []value {
	of, key := f.eval(n.child("object")), only(f.eval(n.child("index")))
	switch key.is {
	case isText:
		return f.member(of, *key.text)
	case isNumber:
		if e, ok := element(only(of), *key.num); ok && e.is != isNothing {
			return one(e)
		}
	}
	var all []value
	if v := only(of); v.is == isList { // any of them
		for _, e := range v.list {
			if e.is != isNothing && len(all) < maxValues {
				all = append(all, e)
			}
		}
	}
	return all
}

func (f *jsFile) args(n *node) []*node {
	list := n.child("arguments")
	if list == nil || list.kind != "arguments" {
		return nil
	}
	return list.inner()
}

// evalCall is what calls of what makes names give.
func (f *jsFile) evalCall(n *node) []value {
	args := f.args(n)
	arg := func(i int) value {
		if i < len(args) {
			return only(f.eval(args[i]))
		}
		return value{}
	}
	fn := n.child("function")
	if fn == nil {
		return nil
	}
	if fn.kind == "import" {
		if v := arg(0); v.is == isText {
			return one(pathOf(modulePath(*v.text)))
		}
		return nil
	}
	for _, v := range f.eval(fn) {
		if v.is == isPath {
			if out := f.result(v.path, arg, args); out != nil {
				return out
			}
		}
	}
	if fn.kind == "member_expression" && fn.child("property") != nil {
		return f.method(only(f.eval(fn.child("object"))), f.name(fn.child("property")), args)
	}
	return nil
}

// modulePath is the path of a module of this name.
func modulePath(name string) string { return "module:" + strings.TrimPrefix(name, "node:") }

func (f *jsFile) result(path string, arg func(int) value, args []*node) []value {
	first := arg(0)
	var v value
	ok := false
	switch path {
	case "require", "module.require", "process.mainModule.require", "process.getBuiltinModule":
		if first.is == isText {
			return one(pathOf(modulePath(*first.text)))
		}
	case "Reflect.get":
		if name := arg(1); name.is == isText {
			return f.member(f.eval(args[0]), *name.text)
		}
	case "String.fromCharCode", "String.fromCodePoint":
		var all []value
		for i := range args {
			all = append(all, arg(i))
		}
		v, ok = charCodes(all)
	case "String":
		v, ok = first, first.is == isText
	case "atob":
		if first.is == isText {
			v, ok = unbase64(*first.text)
		}
	case "unescape", "decodeURIComponent":
		if first.is == isText {
			v, ok = unpercent(*first.text), true
		}
	case "Buffer.from":
		v, ok = first, first.is == isText
		if as := arg(1); ok && as.is == isText {
			v, ok = decodeBy(*first.text, *as.text)
		}
	}
	if !ok {
		return nil
	}
	return one(v)
}

func unpercent(s string) value {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			if r, n := digits(s, i+1, 2, 16); n > 0 {
				b.WriteByte(byte(r))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return textOf(b.String())
}

// method is what a method of a text or a list gives.
func (f *jsFile) method(of value, name string, args []*node) []value {
	arg := func(i int) value {
		if i < len(args) {
			return only(f.eval(args[i]))
		}
		return value{}
	}
	first := arg(0)
	var v value
	ok := false
	switch {
	case of.is == isList && name == "join":
		sep := ","
		if first.is == isText {
			sep = *first.text
		}
		v, ok = join(sep, of.list)
	case of.is == isList && name == "reverse":
		v, ok = reversed(of), true
	case of.is != isText:
	case name == "split" && first.is == isText && *first.text == "":
		if all, good := characters(of); good {
			v, ok = listOf(all), true
		}
	case name == "concat":
		all := []value{of}
		for i := range args {
			all = append(all, arg(i))
		}
		v, ok = join("", all)
	case name == "toString", name == "trim", name == "valueOf":
		v, ok = of, true
	case name == "toLowerCase":
		v, ok = textOf(strings.ToLower(*of.text)), true
	case name == "toUpperCase":
		v, ok = textOf(strings.ToUpper(*of.text)), true
	case (name == "replace" || name == "replaceAll") && first.is == isText && arg(1).is == isText && *first.text != "":
		n := 1
		if name == "replaceAll" {
			n = -1
		}
		out := strings.Replace(*of.text, *first.text, *arg(1).text, n)
		v, ok = textOf(out), len(out) <= maxFolded
	}
	if !ok {
		return nil
	}
	return one(v)
}
