package server

import (
	"fmt"
	"reflect"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// openRPCVersion is the version of the OpenRPC specification that rpc.discover's
// document follows (spec.open-rpc.org).
const openRPCVersion = "1.3.2"

func (s *Server) discover() (map[string]any, error) { return s.openrpc() }

type object = params.Object

// describer describes methods.
type describer struct{ *params.Schemas }

// openRPC makes the OpenRPC document of methods from their Go types.
func openRPC(methods []api.Method) (map[string]any, error) {
	g := describer{params.NewSchemas("#/components/schemas/")}
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
		"components": object{"schemas": g.Defs, "errors": errs},
	}, nil
}

func (g *describer) method(m api.Method) (object, error) {
	params, err := g.params(reflect.TypeOf(m.Params))
	if err != nil {
		return nil, err
	}
	result, err := g.Of(reflect.TypeOf(m.Result))
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
func (g *describer) params(t reflect.Type) ([]object, error) {
	list := []object{}
	for _, f := range params.Fields(t) {
		schema, err := g.Of(f.Type)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", f.Name, err)
		}
		list = append(list, object{"name": f.Name, "required": f.Required, "schema": schema})
	}
	return list, nil
}
