package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markdown is docs/rpc.md, made of the document.
func (s *source) markdown(doc object) (string, error) {
	m := &markdown{schemas: doc["components"].(object)["schemas"].(object), refs: map[string]int{}}
	text, err := json.Marshal(doc)
	if err != nil {
		return "", err
	}
	for name := range m.schemas {
		m.refs[name] = bytes.Count(text, fmt.Appendf(nil, "%q", reference+name))
	}
	m.head(s)
	for i, method := range doc["methods"].([]object) {
		if g := s.calls[i].group(); i == 0 || g != s.calls[i-1].group() {
			m.printf("\n## %s\n", g)
		}
		if err := m.method(s.calls[i], method); err != nil {
			return "", err
		}
	}
	m.printf("\n## Notifications\n\nThe server sends them; they have no answer. A client sends `rpc.cancel` with the\n`id` " +
		"of a request to cancel it.\n")
	for _, n := range doc["x-notifications"].([]object) {
		m.printf("\n### %s\n\n%s\n", n["name"], wrap(n["summary"].(string), "", 120))
		m.params(n["params"].([]object))
	}
	m.printf("\n## Types\n\nA field without \"always\" is left out where it has no value; in params it may be left out.\n")
	for _, name := range slices.Sorted(maps.Keys(m.schemas)) {
		if m.refs[name] == 1 { // the result of one method, which shows it
			continue
		}
		m.printf("\n### type %s\n\n", name)
		m.printf("%s\n", wrap(m.schemas[name].(object)["description"].(string), "", 120))
		m.properties(m.schemas[name].(object))
	}
	m.errors(doc)
	return m.b.String(), nil
}

type markdown struct {
	b       strings.Builder
	schemas object
	refs    map[string]int // how often a schema is referred to
}

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(&m.b, format, args...) }

func (m *markdown) head(s *source) {
	m.printf("<!-- Made by make generate of runtime/api: change that. -->\n# RPC reference\n\n" +
		"hutchd speaks JSON-RPC 2.0 over its Unix socket, one value a line. `hutch rpc METHOD [JSON]` calls a method, and\n" +
		"`hutch rpc rpc.discover` prints all of this as OpenRPC. Params are passed by name and unknown ones are refused;\n" +
		"results may gain fields. Every method can fail with every [error](#errors).\n\n| group | methods |\n|---|---|\n")
	for _, g := range groups {
		var links []string
		for _, c := range s.calls {
			if c.group() == g {
				links = append(links, fmt.Sprintf("[%s](#%s)", strings.TrimPrefix(c.name(), g+"."), anchor(c.name())))
			}
		}
		m.printf("| [%s](#%s) | %s |\n", g, g, strings.Join(links, ", "))
	}
	m.printf("\nAlso: [notifications](#notifications), [types](#types), [errors](#errors).\n")
}

// anchor is what the web makes of a heading.
func anchor(heading string) string {
	return strings.ToLower(strings.NewReplacer(".", "", " ", "-").Replace(heading))
}

func (m *markdown) method(c *call, method object) error {
	text := fmt.Sprint(method["summary"])
	if notes, ok := method["description"].(string); ok {
		text += " " + notes
	}
	for _, flag := range []struct{ name, text string }{
		{"FDs", "File descriptors may be passed with the request."},
		{"Progress", "With `progress`, [progress notifications](#progress) are sent during the call."},
		{"EndsWithCaller", "It is cancelled when the connection is lost."},
	} {
		if c.has(flag.name) {
			text += " " + flag.text
		}
	}
	m.printf("\n### %s\n\n%s\n", c.name(), wrap(text, "", 120))
	m.params(method["params"].([]object))
	m.result(method["result"].(object)["schema"].(object))
	var params, result bytes.Buffer
	if err := json.Indent(&result, []byte(c.example("Returns")), "", "  "); err != nil {
		return err
	}
	params.WriteString(c.example("Example"))
	if params.Len() > 80 {
		params.Reset()
		if err := json.Indent(&params, []byte(c.example("Example")), "", "  "); err != nil {
			return err
		}
	}
	m.printf("\n```console\n$ hutch rpc %s '%s'\n%s\n```\n", c.name(), params.String(), result.String())
	return nil
}

// result is a link to a type, or what it has where nothing else refers to it.
func (m *markdown) result(schema object) {
	ref, _ := schema["$ref"].(string)
	name := strings.TrimPrefix(ref, reference)
	switch def, _ := m.schemas[name].(object); {
	case m.refs[name] == 1 && def["properties"] != nil:
		m.printf("Result:\n\n")
		m.properties(def)
	default:
		m.printf("Result: %s\n", m.kind(schema))
	}
}

func (m *markdown) params(list []object) {
	if len(list) == 0 {
		return
	}
	m.printf("| param | type | |\n|---|---|---|\n")
	for _, p := range list {
		m.row(p["name"].(string), p["schema"].(object), p["required"].(bool), "required", p["description"])
	}
	m.printf("\n")
}

func (m *markdown) properties(schema object) {
	props, _ := schema["properties"].(object)
	if len(props) == 0 {
		return
	}
	required, _ := schema["required"].([]string)
	m.printf("| field | type | |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(props)) {
		p := props[name].(object)
		always := false
		for _, r := range required {
			always = always || r == name
		}
		m.row(name, p, always, "always", p["description"])
	}
}

func (m *markdown) row(name string, schema object, flag bool, word string, text any) {
	if flag {
		text = fmt.Sprintf("%s; %v", word, text)
	}
	m.printf("| `%s` | %s | %s |\n", name, m.kind(schema), strings.ReplaceAll(fmt.Sprint(text), "|", "\\|"))
}

// kind is a type in words, with a link to what it refers to.
func (m *markdown) kind(schema object) string {
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, reference)
		return fmt.Sprintf("[%s](#%s)", name, anchor("type "+name))
	}
	if values, ok := schema["enum"].([]string); ok {
		return "`" + strings.Join(values, "` `") + "`"
	}
	switch typ, _ := schema["type"].(string); typ {
	case "":
		return "any"
	case "array":
		return "list of " + m.kind(schema["items"].(object))
	case "object":
		if values, ok := schema["additionalProperties"].(object); ok {
			return "map to " + m.kind(values)
		}
		return typ
	default:
		if format, ok := schema["format"].(string); ok {
			return format
		}
		return typ
	}
}

func (m *markdown) errors(doc object) {
	m.printf("\n## Errors\n\n`error.data` has `code`, `hint` (what to do), and where they help `op`, `field`.\n\n" +
		"| number | code |\n|---|---|\n")
	errs := doc["components"].(object)["errors"].(object)
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		m.printf("| %d | `%s` |\n", errs[name].(object)["code"], name)
	}
	m.printf("| -32700, -32600, -32601, -32602 | those of JSON-RPC: no JSON, no request, unknown method, params |\n")
}
