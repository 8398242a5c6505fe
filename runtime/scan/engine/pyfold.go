package engine

import (
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// pyFile is what is known of a Python source.
type pyFile struct {
	*scan
	names map[string][]value // what names are bound to, anywhere in the file
	owned map[string]bool    // names that are bound to something that is not known, too
	memo
}

// memo are the values of expressions: a chain of calls would be evaluated twice for each of its links.
type memo struct {
	depth   int
	limited bool // something was too deep: what is found then is not kept
	known   map[*node][]value
}

// of is n's value by make, once.
func (m *memo) of(n *node, make func(*node) []value) []value {
	if n == nil {
		return nil
	}
	if v, ok := m.known[n]; ok {
		return v
	}
	if m.depth > maxFold {
		m.limited = true
		return nil
	}
	m.depth++
	v := make(n)
	if m.depth--; !m.limited {
		m.known[n] = v
	}
	if m.depth == 0 {
		m.limited = false
	}
	return v
}

// name is an identifier as Python reads it (PEP 3131).
func (f *pyFile) name(n *node) string { return norm.NFKC.String(f.src[n.start:n.end]) }

// bind notes that a name may be something.
func (f *pyFile) bind(name string, values []value) {
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

func same(a, b value) bool {
	switch {
	case a.is != b.is:
		return false
	case a.is == isText:
		return *a.text == *b.text
	case a.is == isNumber:
		return *a.num == *b.num
	case a.is == isList:
		return len(a.list) == len(b.list)
	}
	return a.path == b.path
}

// lookup is what a name may be: also the builtin, which a binding of another scope does not change.
func (f *pyFile) lookup(name string) []value {
	values := f.names[name]
	_, builtin := pyRules.exact["builtins."+name]
	if builtin || pyHelpers[name] {
		values = union(one(pathOf("builtins."+name)), values)
	}
	if name == "__builtins__" {
		values = union(one(pathOf("builtins")), values)
	}
	if f.owned[name] && len(values) == 1 && values[0].is != isPath { // a text that it need not be
		return nil
	}
	return values
}

// pyHelpers are builtins that matter to what a value is.
var pyHelpers = setOf("getattr setattr delattr chr str bytes bytearray list tuple reversed map type object super ord int dir sorted repr format")

// eval is what an expression may be; nothing is anything.
func (f *pyFile) eval(n *node) []value { return f.of(n, f.evalNew) }

func (f *pyFile) evalNew(n *node) []value {
	switch n.kind {
	case "identifier":
		return f.lookup(f.name(n))
	case "string":
		return f.evalString(n)
	case "concatenated_string":
		return f.concat(n.inner())
	case "integer":
		if i, err := strconv.ParseInt(strings.ReplaceAll(f.src[n.start:n.end], "_", ""), 0, 32); err == nil {
			return one(numOf(int(i)))
		}
	case "parenthesized_expression", "await", "expression_statement":
		return f.eval(n.first())
	case "named_expression":
		return f.eval(n.child("value"))
	case "conditional_expression":
		if k := n.inner(); len(k) == 3 {
			return union(f.eval(k[0]), f.eval(k[2]))
		}
	case "boolean_operator":
		return union(f.eval(n.child("left")), f.eval(n.child("right")))
	case "unary_operator":
		if v := only(f.eval(n.child("argument"))); v.is == isNumber && n.has("-") {
			return one(numOf(-*v.num))
		}
	case "list", "tuple", "set":
		return f.evalList(n)
	case "binary_operator":
		return f.evalBinary(n)
	case "attribute":
		return f.evalAttribute(n)
	case "subscript":
		return f.evalSubscript(n)
	case "call":
		return f.evalCall(n)
	case "list_comprehension", "generator_expression", "set_comprehension":
		return f.evalComprehension(n)
	}
	return nil
}

func (f *pyFile) evalString(n *node) []value {
	prefix, body := "", strings.Builder{}
	for _, k := range n.inner() {
		text := f.src[k.start:k.end]
		switch k.kind {
		case "string_start":
			prefix = strings.ToLower(strings.TrimRight(text, `'"`))
		case "string_content":
			if !strings.Contains(prefix, "r") {
				text, _ = escapes(text)
			}
			body.WriteString(text)
		case "interpolation":
			inner, ok := onlyText(f.eval(k.child("expression")))
			if !ok || k.child("format_specifier") != nil || k.child("type_conversion") != nil {
				return nil
			}
			body.WriteString(inner)
		}
		if body.Len() > maxFolded {
			return nil
		}
	}
	return one(textOf(body.String()))
}

func (f *pyFile) concat(parts []*node) []value {
	var all []value
	for _, p := range parts {
		all = append(all, only(f.eval(p)))
	}
	if v, ok := join("", all); ok {
		return one(v)
	}
	return nil
}

func (f *pyFile) evalList(n *node) []value {
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

func (f *pyFile) evalBinary(n *node) []value {
	l, r := only(f.eval(n.child("left"))), only(f.eval(n.child("right")))
	switch op := f.operator(n); {
	case op == "+" && l.is == isText && r.is == isText:
		if v, ok := join("", []value{l, r}); ok {
			return one(v)
		}
	case op == "+" && l.is == isList && r.is == isList && len(l.list)+len(r.list) <= 4096:
		return one(listOf(append(append([]value{}, l.list...), r.list...)))
	case l.is == isNumber && r.is == isNumber:
		switch op {
		case "+":
			return one(numOf(*l.num + *r.num))
		case "-":
			return one(numOf(*l.num - *r.num))
		case "^":
			return one(numOf(*l.num ^ *r.num))
		}
	case op == "*" && l.is == isText && r.is == isNumber && *r.num >= 0 && len(*l.text)**r.num <= maxFolded:
		return one(textOf(strings.Repeat(*l.text, *r.num)))
	case op == "%" && l.is == isText:
		args := []value{r}
		if r.is == isList {
			args = r.list
		}
		return f.format(*l.text, "%s", args)
	}
	return nil
}

func (f *pyFile) operator(n *node) string {
	if op := n.child("operator"); op != nil {
		return f.src[op.start:op.end]
	}
	return ""
}

// format replaces a mark in a text by arguments.
func (f *pyFile) format(text, mark string, args []value) []value {
	if strings.Count(text, mark) != len(args) {
		return nil
	}
	for _, a := range args {
		if a.is != isText || len(text)+len(*a.text) > maxFolded {
			return nil
		}
		text = strings.Replace(text, mark, *a.text, 1)
	}
	return one(textOf(text))
}

func (f *pyFile) evalAttribute(n *node) []value {
	name := n.child("attribute")
	if name == nil {
		return nil
	}
	return f.member(f.eval(n.child("object")), f.name(name))
}

// member is an attribute of things.
func (f *pyFile) member(of []value, name string) []value {
	var all []value
	for _, v := range of {
		switch {
		case v.is != isPath:
		case name == "__dict__", v.path == "builtins" && name == "__builtins__":
			all = append(all, v) // what is found in it are the attributes
		case isModule[strings.TrimLeft(name, "_")] && !strings.HasPrefix(name, "__"):
			// Modules have what they import, under its name or with an underline before it: random._os.
			all = append(all, pathOf(strings.TrimLeft(name, "_")))
		case strings.Count(v.path, ".") < 16:
			all = append(all, pathOf(v.path+"."+name))
		}
	}
	return all
}

func (f *pyFile) evalSubscript(n *node) []value {
	of, index := f.eval(n.child("value")), n.child("subscript")
	if index == nil {
		return nil
	}
	if index.kind == "slice" {
		if strings.Join(strings.Fields(f.src[index.start:index.end]), "") == "::-1" {
			if v := reversed(only(of)); v.is != isNothing {
				return one(v)
			}
		}
		return nil
	}
	key := only(f.eval(index))
	var all []value
	for _, v := range of {
		switch {
		case v.is == isPath && key.is == isText:
			all = append(all, f.item(v.path, *key.text)...)
		case key.is == isNumber:
			if e, ok := element(v, *key.num); ok && e.is != isNothing {
				all = append(all, e)
			}
		case v.is == isList: // any of them
			for _, e := range v.list {
				if e.is != isNothing && len(all) < maxValues {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// item is what namespaces have under a text.
func (f *pyFile) item(path, key string) []value {
	switch path {
	case "sys.modules":
		return one(pathOf(key))
	case "builtins.globals()", "builtins.locals()", "builtins.vars()":
		return f.lookup(key)
	}
	return one(pathOf(path + "." + key))
}
