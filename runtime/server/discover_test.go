package server

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// schema is a JSON Schema, as much of it as the document has.
type schema struct {
	Ref         string `json:"$ref"`
	Type        string
	Enum        []string
	Description string
	Values      map[string]string `json:"x-enum-descriptions"`
	Properties  map[string]*schema
	Required    []string
	Items       *schema
	Additional  *schema `json:"additionalProperties"`
	Default     any
}

type field struct {
	Name, Description string
	Required          bool
	Schema            *schema
}

type value struct {
	Name  string
	Value any
}

type method struct {
	Name, Summary, ParamStructure string
	Params                        []field
	Result                        field
	Errors                        []*schema
	Ends                          bool `json:"x-ends-with-caller"`
	Examples                      []struct {
		Params []value
		Result value
	}
}

// openRPC is the document of rpc.discover.
type openRPC struct {
	OpenRPC       string
	Info          struct{ Title, Version, Description string }
	Methods       []method
	Notifications []method `json:"x-notifications"`
	Components    struct {
		Schemas map[string]*schema
		Errors  map[string]struct {
			Code    int
			Message string
		}
	}
}

func discovered(t *testing.T) *openRPC {
	t.Helper()
	p := serve(t, newServer(t, &engines{}))
	p.send(request(1, "rpc.discover", `{}`))
	doc := new(openRPC)
	if err := json.Unmarshal(p.recvOK("1"), doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestDiscover checks the document as OpenRPC 1.3, against the table of methods, and that it says what everything is.
func TestDiscover(t *testing.T) {
	doc := discovered(t)
	if !strings.HasPrefix(doc.OpenRPC, "1.3.") || doc.Info.Title == "" || doc.Info.Version == "" ||
		!strings.Contains(doc.Info.Description, version.Version) {
		t.Errorf("head: %q %+v", doc.OpenRPC, doc.Info)
	}
	if len(doc.Methods) != len(api.Methods) || len(doc.Notifications) != 5 {
		t.Fatalf("%d methods and %d notifications", len(doc.Methods), len(doc.Notifications))
	}
	for i, m := range append(doc.Methods, doc.Notifications...) {
		if i < len(api.Methods) && (m.Name != api.Methods[i].Name || len(m.Errors) != len(api.Codes()) ||
			m.Result.Schema == nil || len(m.Examples) != 1) || m.Summary == "" || m.ParamStructure != "by-name" {
			t.Errorf("method %d: %s has no summary, result, errors or example, or is another one", i, m.Name)
		}
		for _, p := range m.Params {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", m.Name, p.Name)
			}
			doc.described(t, m.Name+"."+p.Name, p.Schema)
		}
		doc.described(t, m.Name, m.Result.Schema)
	}
	for name, s := range doc.Components.Schemas {
		doc.described(t, name, s)
	}
	for _, c := range api.Codes() {
		if e := doc.Components.Errors[string(c)]; e.Code != c.Number() {
			t.Errorf("error %s has number %d", c, e.Code)
		}
	}
}

// described wants a description of each property and value.
func (doc *openRPC) described(t *testing.T, at string, s *schema) {
	if s == nil {
		return
	}
	if s.Ref != "" && doc.resolve(s) == nil {
		t.Errorf("%s: nothing is at %s", at, s.Ref)
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			t.Errorf("%s.%s has no description", at, name)
		}
		doc.described(t, at+"."+name, p)
	}
	for _, v := range s.Enum {
		if s.Values[v] == "" {
			t.Errorf("%s: value %q has no description", at, v)
		}
	}
	doc.described(t, at+"[]", s.Items)
	doc.described(t, at+"{}", s.Additional)
}

func (doc *openRPC) resolve(s *schema) *schema {
	for s != nil && s.Ref != "" {
		s = doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// TestExamples holds each example, of params and of results, against its schema.
func TestExamples(t *testing.T) {
	doc := discovered(t)
	for _, m := range doc.Methods {
		params, e := &schema{Type: "object", Properties: map[string]*schema{}}, m.Examples[0]
		given := map[string]any{}
		for _, p := range m.Params {
			params.Properties[p.Name] = p.Schema
			if p.Required {
				params.Required = append(params.Required, p.Name)
			}
		}
		for _, v := range e.Params {
			given[v.Name] = v.Value
		}
		if m.Name == api.MethodSandboxRun {
			given["exec"].(map[string]any)["sandbox"] = "" // which exec.run must have, and this call makes
		}
		if err := doc.valid(given, params); err != nil {
			t.Errorf("%s: params: %v", m.Name, err)
		}
		if err := doc.valid(e.Result.Value, m.Result.Schema); err != nil {
			t.Errorf("%s: result: %v", m.Name, err)
		}
	}
}

// valid holds a value against a schema.
func (doc *openRPC) valid(v any, s *schema) error {
	open := s.Properties == nil
	s = doc.resolve(s)
	types := map[string]bool{"": true}
	switch v := v.(type) {
	case map[string]any:
		types["object"] = true
		for name, member := range v {
			p := s.Properties[name]
			if p == nil {
				if p = s.Additional; p == nil {
					if s.Properties == nil && open {
						continue // any object
					}
					return fmt.Errorf("%s is no property", name)
				}
			}
			if err := doc.valid(member, p); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return fmt.Errorf("%s is missing", name)
			}
		}
	case []any:
		types["array"] = true
		for i, item := range v {
			if err := doc.valid(item, s.Items); err != nil && s.Items != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case string:
		types["string"] = true
		if s.Enum != nil && !slices.Contains(s.Enum, v) {
			return fmt.Errorf("%q is none of %q", v, s.Enum)
		}
	case float64:
		types["number"], types["integer"] = true, v == float64(int64(v))
	case bool:
		types["boolean"] = true
	}
	if !types[s.Type] {
		return fmt.Errorf("%v is no %s", v, s.Type)
	}
	return nil
}

// TestCompatible: what testdata/discover.json, the document of an older build, promises to clients is still so.
func TestCompatible(t *testing.T) {
	text, err := os.ReadFile("testdata/discover.json")
	if err != nil {
		t.Fatal(err)
	}
	old := new(openRPC)
	if err := json.Unmarshal(text, old); err != nil {
		t.Fatal(err)
	}
	for _, broken := range promises(old, discovered(t)) {
		t.Error(broken)
	}
	// The checker sees what it is for.
	for _, change := range []func(d *openRPC){
		func(d *openRPC) { d.Methods = d.Methods[1:] },
		func(d *openRPC) { d.Methods[6].Params = d.Methods[6].Params[1:] },
		func(d *openRPC) { d.Methods[6].Params[0].Required = true },
		func(d *openRPC) { d.Methods[6].Params[0].Schema.Type = "integer" },
		func(d *openRPC) { d.Methods[6].Params[0].Schema.Default = "x" },
		func(d *openRPC) { d.Components.Schemas["Sandbox"].Required = nil },
		func(d *openRPC) {
			d.Components.Schemas["Mount"].Required = append(d.Components.Schemas["Mount"].Required, "fd")
		},
		func(d *openRPC) { delete(d.Components.Schemas["Sandbox"].Properties, "id") },
		func(d *openRPC) { delete(d.Components.Errors, "not_found") },
	} {
		d := discovered(t)
		change(d)
		if len(promises(old, d)) == 0 {
			t.Error("the checker has not seen a change")
		}
	}
}

// promises are those of an old document that a new one breaks: methods, params, properties, types, what is required,
// defaults, and error codes. What is new is fine, but no new param may be required.
func promises(old, now *openRPC) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	input := map[*schema]bool{} // what clients send
	for _, m := range old.Methods {
		i := slices.IndexFunc(now.Methods, func(n method) bool { return n.Name == m.Name })
		if i < 0 {
			say("method %s is gone", m.Name)
			continue
		}
		n := now.Methods[i]
		for _, p := range m.Params {
			j := slices.IndexFunc(n.Params, func(q field) bool { return q.Name == p.Name })
			if j < 0 {
				say("%s: param %s is gone", m.Name, p.Name)
				continue
			}
			if q := n.Params[j]; q.Required && !p.Required {
				say("%s: param %s is required", m.Name, p.Name)
			}
			same(say, m.Name+"."+p.Name, p.Schema, n.Params[j].Schema)
			old.inputs(p.Schema, input)
		}
		for _, q := range n.Params {
			if q.Required && !slices.ContainsFunc(m.Params, func(p field) bool { return p.Name == q.Name }) {
				say("%s: new param %s is required", m.Name, q.Name)
			}
		}
		same(say, m.Name, m.Result.Schema, n.Result.Schema)
	}
	for name, s := range old.Components.Schemas {
		n := now.Components.Schemas[name]
		same(say, name, s, n)
		for i := 0; n != nil && input[s] && i < len(n.Required); i++ {
			if r := n.Required[i]; !slices.Contains(s.Required, r) {
				say("%s.%s is required", name, r)
			}
		}
	}
	for name, e := range old.Components.Errors {
		if now.Components.Errors[name] != e {
			say("error %s is %v", name, now.Components.Errors[name])
		}
	}
	return broken
}

// inputs collects a schema and those that it refers to.
func (doc *openRPC) inputs(s *schema, into map[*schema]bool) {
	if s = doc.resolve(s); s == nil || into[s] {
		return
	}
	into[s] = true
	for _, p := range s.Properties {
		doc.inputs(p, into)
	}
	doc.inputs(s.Items, into)
	doc.inputs(s.Additional, into)
}

// same compares schemas. What was always there stays.
func same(say func(string, ...any), at string, old, now *schema) {
	switch {
	case old == nil:
		return
	case now == nil:
		say("%s is gone", at)
		return
	case old.Ref != now.Ref || old.Type != now.Type || old.Default != now.Default:
		say("%s was %s%s %v and is %s%s %v", at, old.Type, old.Ref, old.Default, now.Type, now.Ref, now.Default)
	}
	for name, p := range old.Properties {
		same(say, at+"."+name, p, now.Properties[name])
	}
	for _, name := range old.Required {
		if !slices.Contains(now.Required, name) {
			say("%s.%s is not always there", at, name)
		}
	}
	for _, v := range old.Enum {
		if !slices.Contains(now.Enum, v) {
			say("%s: value %q is gone", at, v)
		}
	}
	same(say, at+"[]", old.Items, now.Items)
	same(say, at+"{}", old.Additional, now.Additional)
}
