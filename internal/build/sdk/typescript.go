package sdk

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv/openrpc"
)

const typescriptMark = "// Made by make generate of rpc.discover: change runtime/api.\n"

// typescriptTypes is the module of the types.
func typescriptTypes(doc *openrpc.Document) string {
	var b strings.Builder
	b.WriteString(typescriptMark + `
/** The types of the daemon's JSON-RPC: what Client.rpc takes and returns. */
`)
	list := records(doc)
	for _, m := range doc.Methods {
		if params := options(&m); len(params) > 0 {
			list = append(list, record{camel(m.Name) + "Params", "The params of " + m.Name + ".", params})
		}
	}
	for _, r := range list {
		typescript{&b}.record(r)
	}
	return b.String()
}

type typescript struct{ *strings.Builder }

func (b typescript) printf(format string, args ...any) { fmt.Fprintf(b, format, args...) }

// record writes an interface.
func (b typescript) record(r record) {
	b.printf("\n")
	b.comment(r.doc, "")
	b.printf("export interface %s {\n", r.name)
	for _, m := range r.members {
		b.comment(m.Description, "  ")
		optional := "?"
		if m.Required {
			optional = ""
		}
		line := fmt.Sprintf("%s%s: %s;", m.Name, optional, tsType(m.Schema, ""))
		b.printf("  %s\n", strings.Join(fold(line, 117), "\n    "))
	}
	b.printf("}\n")
}

// comment writes what tools show of what comes after it.
func (b typescript) comment(text, indent string) {
	text = strings.ReplaceAll(text, "*/", "* /")
	lines := fold(text, 117-len(indent))
	switch {
	case len(lines) == 0:
	case len(lines) == 1 && len(indent)+len(text) <= 113:
		b.printf("%s/** %s */\n", indent, lines[0])
	default:
		b.printf("%s/**\n%s * %s\n%s */\n", indent, indent, strings.Join(lines, "\n"+indent+" * "), indent)
	}
}

// tsType is a type as the module types names it, or with a prefix as others do.
func tsType(s *openrpc.Schema, prefix string) string {
	switch {
	case s == nil:
		return "any"
	case s.Ref != "":
		return prefix + strings.TrimPrefix(s.Ref, reference)
	case len(s.Enum) > 0:
		return strings.ReplaceAll(literals(s.Enum), ", ", " | ")
	}
	switch s.Type {
	case "string":
		return "string"
	case "integer", "number":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		if s.Items != nil && len(s.Items.Enum) > 0 {
			return "(" + tsType(s.Items, prefix) + ")[]"
		}
		return tsType(s.Items, prefix) + "[]"
	case "object":
		if s.Additional != nil {
			return "Record<string, " + tsType(s.Additional, prefix) + ">"
		}
		return "Record<string, any>"
	}
	return "any"
}

// typescriptMethods is the module of the methods.
func typescriptMethods(doc *openrpc.Document) string {
	var b strings.Builder
	b.WriteString(typescriptMark + `
import type { CallOptions } from "./connection.js";
import type * as t from "./types.js";

type Call = (method: string, params: object, options?: CallOptions) => Promise<any>;

/**
 * The daemon's methods, a function each, by the protocol's own names. docs/rpc.md describes them. Params that are about
 * file descriptors are of no use here: Node cannot send any.
 */
export class Rpc {
  readonly #call: Call;

  constructor(call: Call) {
    this.#call = call;
  }
`)
	var groups []string
	methods := map[string][]*openrpc.Method{}
	for i := range doc.Methods {
		m := &doc.Methods[i]
		group, _, _ := strings.Cut(m.Name, ".")
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		methods[group] = append(methods[group], m)
	}
	for _, group := range groups {
		b.WriteString("\n  readonly " + group + " = {\n")
		for _, m := range methods[group] {
			typescript{&b}.method(m)
		}
		b.WriteString("  };\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (b typescript) method(m *openrpc.Method) {
	result := "any"
	switch s := m.Result.Schema; {
	case s == nil, m.Name == "rpc.discover": // whose schema is that of any document
	case s.Ref == "" && s.Properties != nil:
		result = "t." + camel(m.Name) + "Result"
	default:
		result = tsType(s, "t.")
	}
	params, given := "", "{}"
	if list := options(m); len(list) > 0 {
		params, given = "params: t."+camel(m.Name)+"Params", "params"
		if !list[0].Required {
			params += " = {}"
		}
		params += ", "
	}
	_, name, _ := strings.Cut(m.Name, ".")
	doc := m.Summary
	if m.Description != "" {
		doc += " " + m.Description
	}
	b.comment(doc, "    ")
	b.printf("    %s: (%soptions?: CallOptions): Promise<%s> =>\n      this.#call(%q, %s, options),\n",
		name, params, result, m.Name, given)
}
