package server

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv/openrpc"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

func discovered(t *testing.T) *openrpc.Document {
	t.Helper()
	p := serve(t, newServer(t, &engines{}))
	p.send(request(1, "rpc.discover", `{}`))
	doc := new(openrpc.Document)
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
		takes := func(name string) bool {
			return slices.ContainsFunc(m.Params, func(p openrpc.Field) bool { return p.Name == name })
		}
		if m.FDs != takes("fds") || m.Progress && !takes("progress") {
			t.Errorf("%s: fds %v, progress %v: its params say other", m.Name, m.FDs, m.Progress)
		}
		for _, p := range m.Params {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", m.Name, p.Name)
			}
			described(t, doc, m.Name+"."+p.Name, p.Schema)
		}
		described(t, doc, m.Name, m.Result.Schema)
	}
	for name, s := range doc.Components.Schemas {
		described(t, doc, name, s)
	}
	for _, c := range api.Codes() {
		if e := doc.Components.Errors[string(c)]; e.Code != c.Number() {
			t.Errorf("error %s has number %d", c, e.Code)
		}
	}
}

// described wants a description of each property and value.
func described(t *testing.T, doc *openrpc.Document, at string, s *openrpc.Schema) {
	if s == nil {
		return
	}
	if s.Ref != "" && doc.Resolve(s) == nil {
		t.Errorf("%s: nothing is at %s", at, s.Ref)
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			t.Errorf("%s.%s has no description", at, name)
		}
		described(t, doc, at+"."+name, p)
	}
	for _, v := range s.Enum {
		if s.Values[v] == "" {
			t.Errorf("%s: value %q has no description", at, v)
		}
	}
	described(t, doc, at+"[]", s.Items)
	described(t, doc, at+"{}", s.Additional)
}

// TestExamples holds each example, of params and of results, against its schema.
func TestExamples(t *testing.T) {
	doc := discovered(t)
	for _, m := range doc.Methods {
		given, params := m.Example()
		if m.Name == api.MethodSandboxRun {
			given["exec"].(map[string]any)["sandbox"] = "" // which exec.run must have, and this call makes
		}
		if err := doc.Valid(given, params); err != nil {
			t.Errorf("%s: params: %v", m.Name, err)
		}
		if err := doc.Valid(m.Examples[0].Result.Value, m.Result.Schema); err != nil {
			t.Errorf("%s: result: %v", m.Name, err)
		}
	}
}

// TestCompatible: what testdata/discover.json, the document of an older build, promises to clients is still so.
func TestCompatible(t *testing.T) {
	text, err := os.ReadFile("testdata/discover.json")
	if err != nil {
		t.Fatal(err)
	}
	old := new(openrpc.Document)
	if err := json.Unmarshal(text, old); err != nil {
		t.Fatal(err)
	}
	for _, broken := range promises(old, discovered(t)) {
		t.Error(broken)
	}
	// The checker sees what it is for.
	for _, change := range []func(d *openrpc.Document){
		func(d *openrpc.Document) { d.Methods = d.Methods[1:] },
		func(d *openrpc.Document) { d.Methods[6].Params = d.Methods[6].Params[1:] },
		func(d *openrpc.Document) { d.Methods[6].Params[0].Required = true },
		func(d *openrpc.Document) { d.Methods[6].Params[0].Schema.Type = "integer" },
		func(d *openrpc.Document) { d.Methods[6].Params[0].Schema.Default = "x" },
		func(d *openrpc.Document) { d.Components.Schemas["Sandbox"].Required = nil },
		func(d *openrpc.Document) {
			d.Components.Schemas["Mount"].Required = append(d.Components.Schemas["Mount"].Required, "fd")
		},
		func(d *openrpc.Document) { delete(d.Components.Schemas["Sandbox"].Properties, "id") },
		func(d *openrpc.Document) { delete(d.Components.Errors, "not_found") },
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
func promises(old, now *openrpc.Document) (broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	input := map[*openrpc.Schema]bool{} // what clients send
	for _, m := range old.Methods {
		i := slices.IndexFunc(now.Methods, func(n openrpc.Method) bool { return n.Name == m.Name })
		if i < 0 {
			say("method %s is gone", m.Name)
			continue
		}
		n := now.Methods[i]
		for _, p := range m.Params {
			j := slices.IndexFunc(n.Params, func(q openrpc.Field) bool { return q.Name == p.Name })
			if j < 0 {
				say("%s: param %s is gone", m.Name, p.Name)
				continue
			}
			if q := n.Params[j]; q.Required && !p.Required {
				say("%s: param %s is required", m.Name, p.Name)
			}
			same(say, m.Name+"."+p.Name, p.Schema, n.Params[j].Schema)
			inputs(old, p.Schema, input)
		}
		for _, q := range n.Params {
			if q.Required && !slices.ContainsFunc(m.Params, func(p openrpc.Field) bool { return p.Name == q.Name }) {
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
func inputs(doc *openrpc.Document, s *openrpc.Schema, into map[*openrpc.Schema]bool) {
	if s = doc.Resolve(s); s == nil || into[s] {
		return
	}
	into[s] = true
	for _, p := range s.Properties {
		inputs(doc, p, into)
	}
	inputs(doc, s.Items, into)
	inputs(doc, s.Additional, into)
}

// same compares schemas. What was always there stays.
func same(say func(string, ...any), at string, old, now *openrpc.Schema) {
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
