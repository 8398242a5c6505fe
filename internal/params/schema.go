package params

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Object is a JSON object.
type Object = map[string]any

// Schemas makes JSON Schemas of Go types.
type Schemas struct {
	// Defs has one definition per named struct.
	Defs Object
	// Describe, where it is not nil, knows more of fields and types than their tags.
	Describe Describer
	// Name, where it is not nil, is what a field is called instead of its name in JSON.
	Name  func(f Field) string
	ref   string // where Defs will be found; "" writes each struct where it is used
	names map[string]reflect.Type
}

// Describer knows what the source text says.
type Describer interface {
	Field(f Field) string
	Type(t reflect.Type) string // a struct
	// Values are those that a type of strings has, each with what it means; none are any string.
	Values(t reflect.Type) ([]string, Object)
}

// NewSchemas returns a Schemas whose definitions will be found below ref.
func NewSchemas(ref string) *Schemas {
	return &Schemas{Defs: Object{}, ref: ref, names: map[string]reflect.Type{}}
}

// Inline is the JSON Schema of a struct whole, as readers want it who follow no references. Members that
// it does not name are refused where it is closed.
func Inline(t reflect.Type, closed bool) (Object, error) {
	g := NewSchemas("")
	schema, err := g.Of(t)
	if err == nil && closed {
		schema["additionalProperties"] = false
	}
	return schema, err
}

// Of is the JSON Schema of a Go type; named structs become definitions.
func (g *Schemas) Of(t reflect.Type) (Object, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return Object{"type": "string", "format": "date-time"}, nil
	case reflect.TypeFor[json.RawMessage]():
		return Object{}, nil // any JSON value
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.Of(t.Elem())
	case reflect.Bool:
		return Object{"type": "boolean"}, nil
	case reflect.String:
		schema := Object{"type": "string"}
		if g.Describe != nil {
			if values, docs := g.Describe.Values(t); values != nil {
				schema["enum"], schema["x-enum-descriptions"] = values, docs
			}
		}
		return schema, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Object{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Object{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return Object{"type": "number"}, nil
	case reflect.Slice, reflect.Array:
		items, err := g.Of(t.Elem())
		return Object{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("no JSON Schema for %v", t)
		}
		if t.Elem().Kind() == reflect.Interface {
			return Object{"type": "object"}, nil
		}
		values, err := g.Of(t.Elem())
		return Object{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return g.define(t)
	}
	return nil, fmt.Errorf("no JSON Schema for %v", t)
}

// define adds t to the definitions and returns a reference to it.
func (g *Schemas) define(t reflect.Type) (Object, error) {
	name := t.Name()
	if name == "" {
		return nil, fmt.Errorf("struct without a name: %v", t)
	}
	if g.ref == "" {
		return g.object(t)
	}
	ref := Object{"$ref": g.ref + name}
	if old, ok := g.names[name]; ok {
		if old != t {
			return nil, fmt.Errorf("two types are called %s: %v and %v", name, old, t)
		}
		return ref, nil
	}
	g.names[name] = t // before its fields, which may refer to it
	def, err := g.object(t)
	if err != nil {
		return nil, err
	}
	if g.Describe != nil {
		def["description"] = g.Describe.Type(t)
	}
	g.Defs[name] = def
	return ref, nil
}

// object is the schema of a struct's fields.
func (g *Schemas) object(t reflect.Type) (Object, error) {
	props, required := Object{}, []string{}
	for _, f := range Fields(t) {
		schema, err := g.Of(f.Type)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t.Name(), f.Name, err)
		}
		if f.Doc != "" && schema["$ref"] == nil {
			schema["description"] = f.Doc
		}
		if g.Describe != nil {
			schema["description"] = g.Describe.Field(f)
		}
		if f.Enum != nil {
			schema["enum"] = f.Enum
		}
		if err := f.rules(schema); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", t.Name(), f.Name, err)
		}
		name := f.Name
		if g.Name != nil {
			name = g.Name(f)
		}
		props[name] = schema
		if f.Required {
			required = append(required, name)
		}
	}
	def := Object{"type": "object", "properties": props}
	if len(required) > 0 {
		def["required"] = required
	}
	return def, nil
}

// Field is one member of the JSON object that a struct is.
type Field struct {
	Name     string
	GoName   string
	Owner    reflect.Type // the struct that it is written in
	Type     reflect.Type
	Required bool     // its zero value is not left out of JSON
	Doc      string   // the tag `doc`
	Enum     []string // the tag `enum`, words separated by |
	Rules    string   // the tag `schema`, such as minimum=1,maximum=100
}

// rules adds what the tag says of a value that is a number or a length.
func (f *Field) rules(schema Object) error {
	for rule := range strings.SplitSeq(f.Rules, ",") {
		name, text, ok := strings.Cut(rule, "=")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return fmt.Errorf("schema: %w", err)
		}
		schema[name] = v
	}
	return nil
}

// Always says that JSON has a field also where it has its zero value.
func Always(f reflect.StructField) bool {
	_, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
	tags := strings.Split(opts, ",")
	return !slices.Contains(tags, "omitempty") && !slices.Contains(tags, "omitzero")
}

// Fields are a struct's fields in order, those of embedded structs in place
// of these.
func Fields(t reflect.Type) []Field {
	var list []Field
	for _, f := range reflect.VisibleFields(t) {
		name, embedded := jsonName(f)
		if name == "" || embedded {
			continue
		}
		member := Field{Name: name, GoName: f.Name, Owner: t, Type: f.Type, Required: Always(f), Doc: f.Tag.Get("doc"),
			Rules: f.Tag.Get("schema")}
		for _, i := range f.Index[:len(f.Index)-1] {
			if member.Owner = member.Owner.Field(i).Type; member.Owner.Kind() == reflect.Pointer {
				member.Owner = member.Owner.Elem()
			}
		}
		if words := f.Tag.Get("enum"); words != "" {
			member.Enum = strings.Split(words, "|")
		}
		list = append(list, member)
	}
	return list
}
