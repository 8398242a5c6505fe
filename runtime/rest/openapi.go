package rest

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/runtime/api"
)

// openAPI answers with the description of all paths.
func openAPI(s *Server, _ *http.Request) (any, error) { return answered(s.openAPI()) }

type object = params.Object

// describe makes the OpenAPI document (spec.openapis.org/oas/v3.1.0) of the routes.
func describe(routes []route) (object, error) {
	g := params.NewSchemas("#/components/schemas/")
	g.Name = func(f params.Field) string {
		if isDaemons(f.Owner) {
			return camel(f.Name)
		}
		return f.Name
	}
	problem, err := g.Of(of[Problem]())
	if err != nil {
		return nil, err
	}
	for _, t := range []reflect.Type{of[Output](), of[Event]()} { // of streams, to which no schema refers
		if _, err := g.Of(t); err != nil {
			return nil, err
		}
	}
	paths := map[string]object{}
	for i := range routes {
		r := &routes[i]
		op, err := r.operation(g, problem, routes)
		if err != nil {
			return nil, err
		}
		if paths[r.path] == nil {
			paths[r.path] = object{}
		}
		paths[r.path][strings.ToLower(r.method)] = op
	}
	for i := range routes { // what this process refuses is not in the schema either
		if b := routes[i].body; b != nil {
			closed(g.Defs, b)
		}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{"title": "hutch", "version": version.Version, "license": object{"name": "Apache-2.0"},
			"description": "Sandboxes for AI agents on this machine: their processes, files, ports and snapshots."},
		"paths": paths,
		"components": object{"schemas": g.Defs, "securitySchemes": object{
			"bearer": object{"type": "http", "scheme": "bearer"},
			"key":    object{"type": "apiKey", "in": "header", "name": "X-API-Key"}}},
		"security": []object{{"bearer": []string{}}, {"key": []string{}}},
	}, nil
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

// placeholders are what names in paths stand for.
var placeholders = map[string]string{"sandbox": "id or name of a sandbox", "process": "id of a process",
	"snapshot": "id or name of a snapshot", "port": "number of a port"}

// schema is that of a parameter.
func (p *parameter) schema() object {
	schema := object{"type": p.kind}
	switch {
	case p.most > 0:
		schema["minimum"], schema["maximum"] = p.least, p.most
	case p.kind == "number" || p.kind == "integer":
		schema["minimum"], schema["maximum"] = 0, api.MaxSeconds
	case p.required:
		schema["minLength"] = 1
	}
	if p.pattern != "" {
		schema["pattern"] = p.pattern
	}
	return schema
}

func (r *route) operation(g *params.Schemas, problem object, routes []route) (object, error) {
	op := object{"operationId": r.name, "summary": r.summary, "tags": []string{r.tag}}
	if r.notes != "" {
		op["description"] = r.notes
	}
	if r.public {
		op["security"] = []object{}
	}
	if list := r.parameters(); len(list) > 0 {
		op["parameters"] = list
	}
	content := object{}
	for _, media := range r.bodies {
		schema := object{"type": "string", "format": "binary"}
		if media == formData {
			schema = object{"type": "object", "required": []string{"file"}, "properties": object{
				"path": object{"type": "string", "description": "where the files after it go"},
				"file": object{"type": "string", "format": "binary"}}}
		}
		content[media] = object{"schema": schema}
	}
	if r.body != nil {
		schema, err := g.Of(r.body)
		if err != nil {
			return nil, err
		}
		content["application/json"] = object{"schema": schema}
	}
	if len(content) > 0 {
		needed := len(r.bodies) > 0
		for _, f := range fieldsOf(r.body) {
			needed = needed || f.Required
		}
		op["requestBody"] = object{"required": needed, "content": content}
	}
	answer, err := r.answers(g)
	if err != nil {
		return nil, err
	}
	if links := r.links(routes); links != nil {
		answer["links"] = links
	}
	responses := object{strconv.Itoa(r.status()): answer,
		"default": object{"description": "It failed.",
			"content": object{"application/problem+json": object{"schema": problem}}}}
	for status, text := range r.also {
		also := object{"description": text}
		if status == http.StatusCreated {
			schema, err := g.Of(of[Process]())
			if err != nil {
				return nil, err
			}
			also["content"] = object{"application/json": object{"schema": schema}}
		}
		responses[strconv.Itoa(status)] = also
	}
	op["responses"] = responses
	return op, nil
}

func fieldsOf(t reflect.Type) []params.Field {
	if t == nil {
		return nil
	}
	return params.Fields(t)
}

// closed says that a struct, and those in it, have no other members.
func closed(defs object, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	def, ok := defs[t.Name()].(object)
	if !ok || t.Kind() != reflect.Struct || def["additionalProperties"] != nil {
		return
	}
	def["additionalProperties"] = false
	for _, f := range params.Fields(t) {
		closed(defs, f.Type)
	}
}

// madeBy are the operations that make what a placeholder stands for, and where their answers have its id.
var madeBy = map[string]struct{ name, id string }{
	"sandbox": {"createSandbox", "sandboxID"}, "process": {"runProcess", "processID"},
	"snapshot": {"createSnapshot", "snapshotID"}, "port": {"openPort", "port"},
}

// links are the operations on what an operation has made.
func (r *route) links(routes []route) object {
	links := object{}
	for what, maker := range madeBy {
		if maker.name != r.name {
			continue
		}
		for i := range routes {
			names := placeholder.FindAllStringSubmatch(routes[i].path, -1)
			if len(names) == 0 || names[len(names)-1][1] != what {
				continue
			}
			given := object{what: "$response.body#/" + maker.id}
			for _, name := range names[:len(names)-1] {
				given[name[1]] = "$request.path." + name[1]
			}
			links[routes[i].name] = object{"operationId": routes[i].name, "parameters": given}
		}
	}
	if len(links) == 0 {
		return nil
	}
	return links
}

func (r *route) answers(g *params.Schemas) (object, error) {
	answer := object{"description": "Done."}
	content := object{}
	if r.answer != nil {
		schema, err := g.Of(r.answer)
		if err != nil {
			return nil, err
		}
		content["application/json"] = object{"schema": schema}
	}
	for _, media := range r.media {
		content[media] = object{"schema": object{"type": "string"}}
	}
	if len(content) > 0 {
		answer["content"] = content
	}
	if r.paged {
		text := object{"type": "string"}
		answer["headers"] = object{
			nextHeader: object{"description": "nextToken of the next page; none after the last", "schema": text},
			"Link":     object{"description": "the next page, with rel=next", "schema": text}}
	}
	return answer, nil
}

func (r *route) parameters() []object {
	var list []object
	for _, name := range placeholder.FindAllStringSubmatch(r.path, -1) {
		list = append(list, object{"name": name[1], "in": "path", "required": true,
			"description": placeholders[name[1]],
			"schema":      object{"type": "string"}})
	}
	for in, all := range map[string][]parameter{"query": r.queries(), "header": r.headers} {
		for _, p := range all {
			list = append(list, object{"name": p.name, "in": in, "required": p.required, "description": p.doc,
				"schema": p.schema()})
		}
	}
	slices.SortFunc(list, func(a, b object) int {
		return strings.Compare(a["in"].(string)+a["name"].(string), b["in"].(string)+b["name"].(string))
	})
	return list
}
