package sdk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv/openrpc"
)

// keywords cannot be names of params and members (Python 3.13, keyword.kwlist).
var keywords = strings.Fields(`and as assert async await break class continue def del elif else except finally for from
	global if import in is lambda nonlocal not or pass raise return try while with yield`)

// pythonTypes is the module of the types.
func pythonTypes(doc *openrpc.Document) string {
	var b strings.Builder
	b.WriteString(`# Made by make generate of rpc.discover: change runtime/api.
"""The types of the daemon's JSON-RPC, as dictionaries: what hutch.Client.rpc takes and returns."""

import sys
from typing import Any, Dict, List, Literal

if sys.version_info >= (3, 12):  # pydantic wants that of typing_extensions before
    from typing import TypedDict
else:
    try:
        from typing_extensions import TypedDict
    except ImportError:
        from typing import TypedDict

`)
	for _, r := range records(doc) {
		python{&b}.record(r)
	}
	return b.String()
}

type python struct{ *strings.Builder }

func (b python) printf(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// record writes a TypedDict: one of what is always there, under one that adds the rest (NotRequired is Python 3.11's).
func (b python) record(r record) {
	var always, rest []openrpc.Field
	for _, m := range r.members {
		if m.Required {
			always = append(always, m)
		} else {
			rest = append(rest, m)
		}
	}
	base := "TypedDict"
	if len(always) > 0 && len(rest) > 0 {
		base = "_" + r.name
		b.class(base, "TypedDict", "", always)
		always = nil
	}
	total := ""
	if len(always) == 0 {
		total = ", total=False"
	}
	b.class(r.name, base+total, r.doc, append(always, rest...))
}

func (b python) class(name, base, doc string, members []openrpc.Field) {
	if slices.ContainsFunc(members, func(m openrpc.Field) bool { return slices.Contains(keywords, m.Name) }) {
		b.functional(name, base, doc, members)
		return
	}
	b.printf("\nclass %s(%s):\n", name, base)
	if doc != "" {
		b.docstring(doc, "    ")
	} else if len(members) == 0 {
		b.printf("    pass\n")
	}
	for _, m := range members {
		b.comment(m.Description, "    ")
		b.printf("    %s: %s\n", m.Name, pyType(m.Schema, "", true))
	}
	b.printf("\n")
}

// functional is a type that has a keyword among its members.
func (b python) functional(name, base, doc string, members []openrpc.Field) {
	total := ""
	base = strings.TrimSuffix(base, ", total=False")
	if base != "TypedDict" || len(members) > 0 && !members[0].Required {
		total = ", total=False"
	}
	own := name
	if base != "TypedDict" {
		own = "_" + name + "Rest"
	}
	b.printf("\n%s = TypedDict(\n    %q,\n    {\n", own, own)
	for _, m := range members {
		b.comment(m.Description, "        ")
		b.printf("        %q: %s,\n", m.Name, strings.ReplaceAll(pyType(m.Schema, "", true), `"`, `'`))
	}
	b.printf("    }%s,\n)\n\n", strings.Replace(total, ", ", ",\n    ", 1))
	if base != "TypedDict" {
		b.printf("\nclass %s(%s, %s):\n", name, base, own)
		b.docstring(doc, "    ")
		b.printf("\n")
	}
}

func (b python) docstring(doc, indent string) {
	lines := fold(strings.ReplaceAll(doc, `\`, `\\`), 116-len(indent)-6)
	b.printf("%s\"\"\"%s", indent, strings.Join(lines, "\n"+indent))
	if strings.HasSuffix(doc, `"`) {
		b.printf(" ")
	}
	b.printf("\"\"\"\n")
}

func (b python) comment(text, indent string) {
	for _, line := range fold(text, 118-len(indent)) {
		b.printf("%s# %s\n", indent, line)
	}
}

// pyType is a type as the module types names it, or with a prefix as others do. Names of the module itself are quoted:
// they may come later in it.
func pyType(s *openrpc.Schema, prefix string, quoted bool) string {
	switch {
	case s == nil:
		return "Any"
	case s.Ref != "":
		name := prefix + strings.TrimPrefix(s.Ref, reference)
		if quoted {
			return `"` + name + `"`
		}
		return name
	case len(s.Enum) > 0:
		return "Literal[" + literals(s.Enum) + "]"
	}
	switch s.Type {
	case "string":
		return "str"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "boolean":
		return "bool"
	case "array":
		return "List[" + pyType(s.Items, prefix, quoted) + "]"
	case "object":
		if s.Additional != nil {
			return "Dict[str, " + pyType(s.Additional, prefix, quoted) + "]"
		}
		return "Dict[str, Any]"
	}
	return "Any"
}

func literals(values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(list, ", ")
}

// pythonMethods is the module of the methods, for asyncio. The other one is made of it, as all of hutch/_async is.
func pythonMethods(doc *openrpc.Document) string {
	var b strings.Builder
	b.WriteString(`# Made by make generate of rpc.discover: change runtime/api.
from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, cast

from .. import types as t
from ._base import AsyncCaller


class AsyncRpc:
    """The daemon's methods, a function each: sandbox.create is sandbox_create. docs/rpc.md describes them.

    Params are given by name, None is none. Results are dictionaries (hutch.types). fds are file descriptors that ride
    on the request, to which its params refer by index; they stay the caller's.
    """

    def __init__(self, caller: AsyncCaller) -> None:
        self._call = caller.call
`)
	for _, m := range doc.Methods {
		if m.Name == "rpc.discover" {
			m.Result.Schema = nil // its schema is that of any document
		}
		python{&b}.method(&m)
	}
	return b.String()
}

func (b python) method(m *openrpc.Method) {
	result := "Any"
	if s := m.Result.Schema; s != nil {
		if s.Ref == "" && s.Properties != nil {
			result = "t." + camel(m.Name) + "Result"
		} else {
			result = pyType(s, "t.", false)
		}
	}
	params := options(m)
	star := ""
	if len(params) > 0 || m.FDs || m.Progress {
		star = "        *,\n"
	}
	b.printf("\n    async def %s(\n        self,\n%s", strings.ReplaceAll(m.Name, ".", "_"), star)
	for _, p := range params {
		kind := pyType(p.Schema, "t.", false)
		if p.Required {
			b.printf("        %s: %s,\n", pyName(p.Name), kind)
		} else {
			b.printf("        %s: Optional[%s] = None,\n", pyName(p.Name), kind)
		}
	}
	extra := ""
	if m.FDs {
		b.printf("        fds: Sequence[int] = (),\n")
		extra += ", fds=fds"
	}
	if m.Progress {
		b.printf("        on_progress: Optional[Callable[[t.ProgressNotification], None]] = None,\n")
		extra += ", on_progress=on_progress"
	}
	b.printf("    ) -> %s:\n", result)
	b.describe(m, params)
	b.printf("        params: Dict[str, Any] = {")
	for i, p := range params {
		if i > 0 {
			b.printf(", ")
		}
		b.printf("%q: %s", p.Name, pyName(p.Name))
	}
	b.printf("}\n        return cast(%s, await self._call(%q, params%s))\n", quote(result), m.Name, extra)
}

func quote(kind string) string {
	if strings.Contains(kind, `"`) || kind == "Any" {
		return kind
	}
	return `"` + kind + `"`
}

// describe is a method's docstring.
func (b python) describe(m *openrpc.Method, params []openrpc.Field) {
	doc := m.Summary
	if m.Description != "" {
		doc += " " + m.Description
	}
	lines := fold(doc, 104)
	for _, p := range params {
		if p.Description == "" {
			continue
		}
		for i, line := range fold(pyName(p.Name)+": "+p.Description, 100) {
			switch {
			case i > 0:
				line = "    " + line
			case len(lines) > 0 && p.Name == params[0].Name:
				lines = append(lines, "")
			}
			lines = append(lines, line)
		}
	}
	text := strings.ReplaceAll(strings.Join(lines, "\n        "), `\`, `\\`)
	text = strings.ReplaceAll(text, "\n        \n", "\n\n")
	if strings.HasSuffix(text, `"`) {
		text += " "
	}
	b.printf("        \"\"\"%s\"\"\"\n", text)
}

func pyName(name string) string {
	if slices.Contains(keywords, name) {
		return name + "_"
	}
	return name
}
