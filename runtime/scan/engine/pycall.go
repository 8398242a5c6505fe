package engine

import "strings"

// evalCall is what calls of what makes names give.
func (f *pyFile) evalCall(n *node) []value {
	args := f.args(n)
	fn := n.child("function")
	var all []value
	for _, v := range f.eval(fn) {
		if v.is == isPath {
			all = union(all, f.result(v.path, args))
		}
	}
	if fn != nil && fn.kind == "attribute" && len(all) == 0 {
		if name := fn.child("attribute"); name != nil {
			for _, v := range f.eval(fn.child("object")) {
				all = union(all, f.method(v, f.name(name), args))
			}
		}
	}
	return all
}

// args are the arguments of a call that have no names.
func (f *pyFile) args(n *node) []*node {
	list := n.child("arguments")
	if list == nil {
		return nil
	}
	if list.kind == "generator_expression" {
		return []*node{list}
	}
	var all []*node
	for _, k := range list.inner() {
		if k.kind != "keyword_argument" {
			all = append(all, k)
		}
	}
	return all
}

// result is what a function that is known gives.
func (f *pyFile) result(path string, args []*node) []value {
	arg := func(i int) []value {
		if i < len(args) {
			return f.eval(args[i])
		}
		return nil
	}
	switch path {
	case "builtins.__import__":
		if name, ok := onlyText(arg(0)); ok {
			root, _, _ := strings.Cut(name, ".")
			return one(pathOf(root))
		}
	case "importlib.import_module", "importlib.__import__":
		if name, ok := onlyText(arg(0)); ok {
			return one(pathOf(name))
		}
	case "builtins.getattr":
		if name, ok := onlyText(arg(1)); ok {
			return f.member(arg(0), name)
		}
	case "builtins.vars":
		if len(args) > 0 {
			return arg(0)
		}
		return one(pathOf(path + "()"))
	case "builtins.globals", "builtins.locals":
		return one(pathOf(path + "()"))
	}
	return f.made(path, arg)
}

// made are the texts that functions put together.
func (f *pyFile) made(path string, arg func(int) []value) []value {
	first := only(arg(0))
	var v value
	ok := false
	switch path {
	case "builtins.chr":
		v, ok = charCode(first)
	case "builtins.str", "builtins.list", "builtins.tuple":
		v, ok = first, first.is == isText || first.is == isList
	case "builtins.bytes", "builtins.bytearray":
		if v, ok = first, first.is == isText; first.is == isList {
			v, ok = charCodes(first.list)
		}
	case "builtins.bytes.fromhex", "builtins.bytearray.fromhex", "binascii.unhexlify", "binascii.a2b_hex",
		"base64.b16decode":
		if first.is == isText {
			v, ok = unhex(*first.text)
		}
	case "base64.b64decode", "base64.urlsafe_b64decode", "base64.standard_b64decode", "base64.decodebytes",
		"binascii.a2b_base64":
		if first.is == isText {
			v, ok = unbase64(*first.text)
		}
	case "codecs.decode", "codecs.encode":
		if name, known := onlyText(arg(1)); known && first.is == isText {
			v, ok = decodeBy(*first.text, name)
		}
	case "builtins.reversed":
		v = reversed(first)
		ok = v.is != isNothing
	case "builtins.map":
		if list := only(arg(1)); first.is == isPath && first.path == "builtins.chr" && list.is == isList {
			if text, good := charCodes(list.list); good {
				v, ok = text, true
			}
		}
	}
	if !ok {
		return nil
	}
	return one(v)
}

func decodeBy(text, codec string) (value, bool) {
	switch strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(codec)) {
	case "rot13":
		return textOf(rot13(text)), true
	case "hex", "hexcodec":
		return unhex(text)
	case "base64", "base64codec":
		return unbase64(text)
	case "utf8", "ascii", "latin1":
		return textOf(text), true
	}
	return value{}, false
}

// method is what a method of a text gives.
func (f *pyFile) method(of value, name string, args []*node) []value {
	if of.is != isText {
		return nil
	}
	var given []value
	for _, a := range args {
		given = append(given, only(f.eval(a)))
	}
	texts := len(given) > 0
	for _, g := range given {
		texts = texts && g.is == isText
	}
	var v value
	ok := false
	switch {
	case name == "join" && len(given) == 1:
		if parts, good := characters(given[0]); good {
			v, ok = join(*of.text, parts)
		}
	case name == "replace" && len(given) == 2 && texts && *given[0].text != "":
		out := strings.ReplaceAll(*of.text, *given[0].text, *given[1].text)
		v, ok = textOf(out), len(out) <= maxFolded
	case name == "lower", name == "casefold":
		v, ok = textOf(strings.ToLower(*of.text)), true
	case name == "upper":
		v, ok = textOf(strings.ToUpper(*of.text)), true
	case name == "swapcase":
		v, ok = textOf(swapCase(*of.text)), true
	case name == "strip" && len(given) == 0:
		v, ok = textOf(strings.TrimSpace(*of.text)), true
	case name == "decode" || name == "encode":
		if v, ok = of, true; texts {
			v, ok = decodeBy(*of.text, *given[0].text)
		}
	case name == "format" && texts:
		return f.format(*of.text, "{}", given)
	case name == "split" && texts && *given[0].text != "":
		var parts []value
		for _, p := range strings.Split(*of.text, *given[0].text) {
			parts = append(parts, textOf(p))
		}
		v, ok = listOf(parts), len(parts) <= 4096
	}
	if !ok {
		return nil
	}
	return one(v)
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, s)
}

// evalComprehension is chr(x) for each x of a list, or x itself.
func (f *pyFile) evalComprehension(n *node) []value {
	body := n.child("body")
	var clause *node
	for _, k := range n.inner() {
		if k.kind == "for_in_clause" && clause == nil {
			clause = k
		} else if k != body {
			return nil
		}
	}
	if body == nil || clause == nil || clause.child("left") == nil || clause.child("left").kind != "identifier" {
		return nil
	}
	name := f.name(clause.child("left"))
	list, ok := characters(only(f.eval(clause.child("right"))))
	if !ok {
		return nil
	}
	before, had := f.names[name]
	owned, kept := f.owned[name], f.known
	delete(f.owned, name)
	defer func() {
		f.known = kept
		if f.owned[name] = owned; had {
			f.names[name] = before
		} else {
			delete(f.names, name)
		}
	}()
	var out []value
	for _, v := range list {
		f.names[name], f.known = one(v), map[*node][]value{}
		out = append(out, only(f.eval(body)))
	}
	return one(listOf(out))
}
