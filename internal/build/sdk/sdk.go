// Package sdk writes the parts of the Python and TypeScript packages that are made of the document of rpc.discover: a
// type for each schema, a method for each method. Its test fails when one of them is old.
package sdk

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/testenv/openrpc"
)

//go:generate go test -run ^TestGenerated$ . -update

// reference begins references to schemas of the document.
const reference = "#/components/schemas/"

// read returns the document that hutchd serves, which internal/build/rpc makes.
func read(path string) (*openrpc.Document, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	doc := new(openrpc.Document)
	if err := json.NewDecoder(z).Decode(doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return doc, nil
}

// record is a type with named members.
type record struct {
	name, doc string
	members   []openrpc.Field
}

// records are the types of the document: its schemas, what methods return that is no schema of its own, and the
// params of notifications.
func records(doc *openrpc.Document) []record {
	var list []record
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		s := doc.Components.Schemas[name]
		list = append(list, record{name, s.Description, members(s)})
	}
	for _, m := range doc.Methods {
		if s := m.Result.Schema; s != nil && s.Ref == "" && s.Properties != nil {
			list = append(list, record{camel(m.Name) + "Result", "The result of " + m.Name + ".", members(s)})
		}
	}
	for _, n := range doc.Notifications {
		list = append(list, record{camel(n.Name) + "Notification", n.Summary, n.Params})
	}
	return list
}

// members are the properties of a schema, by name.
func members(s *openrpc.Schema) []openrpc.Field {
	var list []openrpc.Field
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		list = append(list, openrpc.Field{Name: name, Description: p.Description, Schema: p,
			Required: slices.Contains(s.Required, name)})
	}
	return list
}

// options are a method's params without those that the package sets itself, the required ones first.
func options(m *openrpc.Method) []openrpc.Field {
	var required, rest []openrpc.Field
	for _, p := range m.Params {
		switch {
		case m.FDs && p.Name == "fds", m.Progress && p.Name == "progress":
		case p.Required:
			required = append(required, p)
		default:
			rest = append(rest, p)
		}
	}
	return append(required, rest...)
}

// camel is a name of the protocol as a type's: "exec.output" is ExecOutput.
func camel(name string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '_' }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// fold breaks a text at blanks into lines of at most width bytes.
func fold(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
