package rpc

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// openRPCVersion is the version of the OpenRPC specification that the document follows (spec.open-rpc.org).
const openRPCVersion = "1.3.2"

// reference begins references to schemas of the document.
const reference = "#/components/schemas/"

type object = params.Object

// describer makes the document of the source text and the Go types.
type describer struct {
	*source
	*params.Schemas
	silent []string // what nobody has said anything about
}

// openRPC is the document of rpc.discover.
func (s *source) openRPC(methods []api.Method) (object, []string, error) {
	g := &describer{source: s, Schemas: params.NewSchemas(reference)}
	g.Describe = g
	var list []object
	for i, m := range methods {
		doc, err := g.method(s.calls[i], m)
		if err != nil {
			return nil, nil, fmt.Errorf("describe %s: %w", m.Name, err)
		}
		list = append(list, doc)
	}
	news, err := g.notifications()
	if err != nil {
		return nil, nil, err
	}
	errs := object{}
	for _, c := range api.Codes() {
		errs[string(c)] = object{"code": c.Number(), "message": string(c), "data": object{
			"code": string(c), "hint": "what to do about it"}}
	}
	return object{
		"openrpc": openRPCVersion,
		"info": object{
			"title":   "hutch",
			"version": fmt.Sprintf("%d.0.0", api.Version),
			// the server's to say
			"description": "JSON-RPC 2.0, one value a line, over a Unix socket. Version VERSION.",
			"license":     object{"name": "Apache-2.0"},
		},
		"methods":         list,
		"x-notifications": news,
		"components":      object{"schemas": g.Defs, "errors": errs},
	}, g.silent, nil
}

func (g *describer) method(c *call, m api.Method) (object, error) {
	if c.name() != m.Name {
		return nil, fmt.Errorf("api.Methods has %s: make generate again", m.Name)
	}
	result, err := g.Of(reflect.TypeOf(m.Result))
	if err != nil {
		return nil, err
	}
	var errs []object
	for _, code := range api.Codes() {
		errs = append(errs, object{"$ref": "#/components/errors/" + string(code)})
	}
	params, err := g.parameters(reflect.TypeOf(m.Params))
	if err != nil {
		return nil, err
	}
	doc := object{
		"name": m.Name, "summary": m.Summary, "paramStructure": "by-name",
		"tags": []object{{"name": c.group()}}, "params": params, "errors": errs,
		"result": object{"name": "result", "schema": result},
	}
	if notes := c.fields["Notes"]; notes != "" {
		doc["description"] = notes
	}
	for flag, name := range map[string]string{"FDs": "x-fds", "Progress": "x-progress",
		"EndsWithCaller": "x-ends-with-caller"} {
		if c.has(flag) {
			doc[name] = true
		}
	}
	doc["examples"], err = examples(c)
	return doc, err
}

// examples are one, as OpenRPC pairs params and result.
func examples(c *call) ([]object, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.example("Example")), &given); err != nil {
		return nil, fmt.Errorf("example: %w", err)
	}
	values := []object{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		values = append(values, object{"name": name, "value": given[name]})
	}
	result := json.RawMessage(c.example("Returns"))
	if !json.Valid(result) {
		return nil, fmt.Errorf("the example of a result is no JSON")
	}
	return []object{{"name": "example", "params": values, "result": object{"name": "result", "value": result}}}, nil
}

// parameters are a method's: the fields of its params struct.
func (g *describer) parameters(t reflect.Type) ([]object, error) {
	list := []object{}
	for _, f := range params.Fields(t) {
		schema, err := g.Of(f.Type)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", f.Name, err)
		}
		list = append(list, object{"name": f.Name, "required": f.Required, "schema": schema,
			"description": g.Field(f)})
	}
	return list, nil
}

// notifications are what the server sends by itself.
func (g *describer) notifications() ([]object, error) {
	var list []object
	for _, n := range []struct {
		constant, summary string
		params            any
	}{
		{"NotifyProgress", "News about a request that is still running, whose params have asked for them.",
			api.Progress{}},
		{"NotifyOutput", "Output of an exec that exec.attach follows.", api.Output{}},
		{"NotifyExited", "The end of an exec that exec.attach follows, after the last byte of its streams.",
			api.Exited{}},
		{"NotifyEvent", "An event of a subscription of events.subscribe.", api.Event{}},
		{"NotifyEventsEnd", "The end of a subscription of events.subscribe.", api.EventsEnd{}},
	} {
		params, err := g.parameters(reflect.TypeOf(n.params))
		if err != nil {
			return nil, err
		}
		list = append(list, object{"name": g.consts[n.constant], "summary": n.summary, "paramStructure": "by-name",
			"params": params})
	}
	return list, nil
}

// words are what fields of a name mean where their comments say nothing: lines of a name and a text.
//
//go:embed words.txt
var words string

var common = func() map[string]string {
	m := map[string]string{}
	for l := range strings.Lines(words) {
		name, text, _ := strings.Cut(strings.TrimSpace(l), ": ")
		m[name] = text
	}
	return m
}()

// Field is what the comment of a field says, in JSON's words; else what that of its neighbour says that names it, or
// that of its type.
func (g *describer) Field(f params.Field) string {
	owner, names := f.Owner.Name(), jsonNames(f.Owner)
	text := g.docs[owner+"."+f.GoName]
	if text == "" {
		text = g.neighbour(owner, f.GoName)
	}
	if text == "" {
		text = common[f.Name]
	}
	if text == "" {
		t := f.Type
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		text, _, _ = strings.Cut(g.Type(t), ". ")
	}
	if text == "" {
		g.silent = append(g.silent, owner+"."+f.GoName)
	}
	text = g.words(text, names)
	for _, verb := range []string{" is ", " are "} {
		text = strings.TrimPrefix(text, f.Name+verb)
	}
	return text
}

// Type is the comment of a type of package api.
func (g *describer) Type(t reflect.Type) string {
	if t.PkgPath() == "" {
		return ""
	}
	return g.words(g.docs[t.Name()], jsonNames(t))
}

// jsonNames are what JSON calls the fields of a struct, by what Go calls them.
func jsonNames(t reflect.Type) map[string]string {
	names := map[string]string{"nil": "null"}
	if t.Kind() == reflect.Struct {
		for _, f := range params.Fields(t) {
			names[f.GoName] = f.Name
		}
	}
	return names
}

// neighbour is the comment of the last field before that has one, where it speaks of this field, too.
func (g *describer) neighbour(owner, field string) string {
	fields := g.fields[owner]
	for i := slices.Index(fields, field) - 1; i >= 0; i-- {
		text := g.docs[owner+"."+fields[i]]
		if text == "" {
			continue
		}
		for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,.:;()", r) }) {
			if word == field {
				return text
			}
		}
		break
	}
	return ""
}

// Values are the constants of a type, and what each is for.
func (g *describer) Values(t reflect.Type) (values []string, docs object) {
	if t.PkgPath() == "" {
		return nil, nil
	}
	docs = object{}
	for _, name := range g.values[t.Name()] {
		value := g.consts[name]
		text := g.docs[name]
		if text == "" {
			text = g.blocks[name]
		}
		if text == "" {
			g.silent = append(g.silent, name)
		}
		values, docs[value] = append(values, value), g.words(text, nil)
	}
	return values, docs
}
