package server

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// openRPCVersion is the version of the OpenRPC specification that rpc.discover's
// document follows (spec.open-rpc.org).
const openRPCVersion = "1.3.2"

func (s *Server) discover() (map[string]any, error) { return s.openrpc() }

type object = map[string]any

// openRPC makes the OpenRPC document of methods from their Go types.
func openRPC(methods []api.Method) (map[string]any, error) {
	g := schemas{defs: object{}, names: map[string]reflect.Type{}}
	var list []object
	for _, m := range methods {
		doc, err := g.method(m)
		if err != nil {
			return nil, fmt.Errorf("describe %s: %w", m.Name, err)
		}
		list = append(list, doc)
	}
	errs := object{}
	for _, c := range api.Codes() {
		errs[string(c)] = object{"code": c.Number(), "message": string(c), "data": object{
			"code": string(c), "hint": "what to do about it"}}
	}
	return object{
		"openrpc": openRPCVersion,
		"info": object{
			"title":       "hutch",
			"version":     fmt.Sprintf("%d.0.0", api.Version),
			"description": "JSON-RPC 2.0, one value a line, over a Unix socket. Version " + version.Version + ".",
			"license":     object{"name": "Apache-2.0"},
		},
		"methods":    list,
		"components": object{"schemas": g.defs, "errors": errs},
	}, nil
}

// schemas collects one JSON Schema definition per named struct.
type schemas struct {
	defs  object
	names map[string]reflect.Type
}

func (g *schemas) method(m api.Method) (object, error) {
	params, err := g.params(reflect.TypeOf(m.Params))
	if err != nil {
		return nil, err
	}
	result, err := g.schema(reflect.TypeOf(m.Result))
	if err != nil {
		return nil, err
	}
	var errs []object
	for _, c := range api.Codes() {
		errs = append(errs, object{"$ref": "#/components/errors/" + string(c)})
	}
	doc := object{
		"name": m.Name, "summary": m.Summary, "paramStructure": "by-name",
		"params": params, "errors": errs,
		"result": object{"name": "result", "schema": result},
	}
	if m.FDs {
		doc["x-fds"] = true
	}
	return doc, nil
}

// params are a method's parameters: the fields of its params struct.
func (g *schemas) params(t reflect.Type) ([]object, error) {
	list := []object{}
	for _, f := range fieldList(t) {
		schema, err := g.schema(f.typ)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", f.name, err)
		}
		list = append(list, object{"name": f.name, "required": f.required, "schema": schema})
	}
	return list, nil
}

// schema is the JSON Schema of a Go type; named structs become definitions.
func (g *schemas) schema(t reflect.Type) (object, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}, nil
	case reflect.TypeFor[json.RawMessage]():
		return object{}, nil // any JSON value
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.schema(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}, nil
	case reflect.String:
		return object{"type": "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}, nil
	case reflect.Slice, reflect.Array:
		items, err := g.schema(t.Elem())
		return object{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("no JSON Schema for %v", t)
		}
		if t.Elem().Kind() == reflect.Interface {
			return object{"type": "object"}, nil
		}
		values, err := g.schema(t.Elem())
		return object{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return g.define(t)
	}
	return nil, fmt.Errorf("no JSON Schema for %v", t)
}

// define adds t to the definitions and returns a reference to it.
func (g *schemas) define(t reflect.Type) (object, error) {
	name := t.Name()
	if name == "" {
		return nil, fmt.Errorf("struct without a name: %v", t)
	}
	ref := object{"$ref": "#/components/schemas/" + name}
	if old, ok := g.names[name]; ok {
		if old != t {
			return nil, fmt.Errorf("two types are called %s: %v and %v", name, old, t)
		}
		return ref, nil
	}
	g.names[name] = t // before its fields, which may refer to it
	props, required := object{}, []string{}
	for _, f := range fieldList(t) {
		schema, err := g.schema(f.typ)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", name, f.name, err)
		}
		props[f.name] = schema
		if f.required {
			required = append(required, f.name)
		}
	}
	def := object{"type": "object", "properties": props}
	if len(required) > 0 {
		def["required"] = required
	}
	g.defs[name] = def
	return ref, nil
}

type field struct {
	name     string
	typ      reflect.Type
	required bool // its zero value is not left out of JSON
}

// fieldList are a struct's fields in order, those of embedded structs in place
// of these.
func fieldList(t reflect.Type) []field {
	var list []field
	for _, f := range reflect.VisibleFields(t) {
		name, embedded := jsonName(f)
		if name == "" || embedded {
			continue
		}
		_, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		tags := strings.Split(opts, ",")
		optional := slices.Contains(tags, "omitempty") || slices.Contains(tags, "omitzero")
		list = append(list, field{name, f.Type, !optional})
	}
	return list
}
