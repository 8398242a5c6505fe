// Package openrpc reads the document of rpc.discover, for tests, and holds values against its schemas.
package openrpc

import (
	"fmt"
	"slices"
	"strings"
)

// Schema is a JSON Schema, as much of it as the document has.
type Schema struct {
	Ref         string `json:"$ref"`
	Type        string
	Enum        []string
	Description string
	Values      map[string]string `json:"x-enum-descriptions"`
	Properties  map[string]*Schema
	Required    []string
	Items       *Schema
	Additional  *Schema `json:"additionalProperties"`
	Default     any
}

// Field is a param, or the result.
type Field struct {
	Name, Description string
	Required          bool
	Schema            *Schema
}

// Value is that of a param, or of the result.
type Value struct {
	Name  string
	Value any
}

// Method is one method, or a notification.
type Method struct {
	Name, Summary, Description, ParamStructure string
	Params                                     []Field
	Result                                     Field
	Errors                                     []*Schema
	FDs                                        bool `json:"x-fds"`
	Progress                                   bool `json:"x-progress"`
	Ends                                       bool `json:"x-ends-with-caller"`
	Examples                                   []struct {
		Params []Value
		Result Value
	}
}

// Document is the document of rpc.discover.
type Document struct {
	OpenRPC       string
	Info          struct{ Title, Version, Description string }
	Methods       []Method
	Notifications []Method `json:"x-notifications"`
	Components    struct {
		Schemas map[string]*Schema
		Errors  map[string]struct {
			Code    int
			Message string
		}
	}
}

// Resolve follows references.
func (doc *Document) Resolve(s *Schema) *Schema {
	for s != nil && s.Ref != "" {
		s = doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// Valid holds a value against a schema.
func (doc *Document) Valid(v any, s *Schema) error {
	open := s.Properties == nil
	s = doc.Resolve(s)
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
			if err := doc.Valid(member, p); err != nil {
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
			if err := doc.Valid(item, s.Items); err != nil && s.Items != nil {
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

// Example is a method's: its params, and their schema.
func (m *Method) Example() (params map[string]any, s *Schema) {
	params, s = map[string]any{}, &Schema{Type: "object", Properties: map[string]*Schema{}}
	for _, p := range m.Params {
		s.Properties[p.Name] = p.Schema
		if p.Required {
			s.Required = append(s.Required, p.Name)
		}
	}
	for _, v := range m.Examples[0].Params {
		params[v.Name] = v.Value
	}
	return params, s
}
