// Package params knows parameters by their Go types: it decodes them strictly, and describes them as JSON Schema.
package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Decode decodes params strictly: names are compared exactly and unknown
// ones refused, at every depth. Absent params are the empty object. If the type
// has a Validate method its word counts, too.
func Decode(raw json.RawMessage, into any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	if raw[0] != '{' {
		return Invalid("", "Pass parameters by name, in an object.", "the parameters are not an object")
	}
	t := reflect.TypeOf(into).Elem()
	if err := walk(raw, t, "", func(json.RawMessage, reflect.Type, string) error { return nil }); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		// What encoding/json calls the field has Go names and no indexes in it.
		if err := walk(raw, t, "", checkValue); err != nil {
			return err
		}
		return Invalid("", "See rpc.discover for the types of the parameters.", "%v", err)
	}
	if v, ok := into.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// DecodeWhole is Decode, and refuses an object in which a member is missing that has no default (no omitempty).
func DecodeWhole(raw json.RawMessage, into any) error {
	if err := Decode(raw, into); err != nil {
		return err
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // Decode could
	for _, f := range Fields(reflect.TypeOf(into).Elem()) {
		if _, ok := members[f.Name]; f.Required && !ok {
			return Invalid(f.Name, f.Doc, "field %q is missing", f.Name)
		}
	}
	return nil
}

// walk visits every value in raw that is not an object of ours, with its path,
// and refuses members that no field of t has.
func walk(raw json.RawMessage, t reflect.Type, path string,
	visit func(json.RawMessage, reflect.Type, string) error) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !structured(t) || string(raw) == "null" {
		return visit(raw, t, path)
	}
	if t.Kind() == reflect.Slice {
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return visit(raw, t, path)
		}
		for i, item := range items {
			if err := walk(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i), visit); err != nil {
				return err
			}
		}
		return nil
	}
	members, ok := jsonrpc.Members(raw)
	if !ok {
		return visit(raw, t, path)
	}
	fields := fieldsOf(t)
	for _, name := range sortedKeys(members) {
		field, ok := fields[name]
		full := strings.TrimPrefix(path+"."+name, ".")
		if !ok {
			return unknownField(full, path, sortedKeys(fields))
		}
		if err := walk(members[name], field, full, visit); err != nil {
			return err
		}
	}
	return nil
}

// checkValue says what is wrong with a value that does not fit its field.
func checkValue(raw json.RawMessage, t reflect.Type, path string) error {
	var te *json.UnmarshalTypeError
	switch err := json.Unmarshal(raw, reflect.New(t).Interface()); {
	case err == nil:
		return nil
	case errors.As(err, &te):
		return Invalid(path, fmt.Sprintf("Give a %s.", jsonKind(te.Type)),
			"field %q: %s where a %s belongs", path, te.Value, jsonKind(te.Type))
	default:
		return Invalid(path, "See rpc.discover for the type.", "field %q: %v", path, err)
	}
}

// structured reports whether JSON objects with fixed names can be in t.
func structured(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// fieldsOf are the JSON names of a struct's fields, those of embedded structs
// included, as encoding/json sees them.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if known, ok := seen.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, embedded := jsonName(f)
		if name != "" && !embedded {
			fields[name] = f.Type
		}
	}
	seen.Store(t, fields)
	return fields
}

// seen are the fields of types, which callers do not change: as many as the API has.
var seen sync.Map

// jsonName is the field's name in JSON, "" for none. embedded is true when the
// field's own fields take its place.
func jsonName(f reflect.StructField) (name string, embedded bool) {
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case f.Anonymous && tag == "":
		return "", true
	case tag == "-" || !f.IsExported():
		return "", false
	case tag == "":
		return f.Name, false
	}
	return tag, false
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func unknownField(full, parent string, known []string) error {
	where := "This method"
	if parent != "" {
		where = parent
	}
	hint := where + " takes no fields."
	if len(known) > 0 {
		hint = fmt.Sprintf("%s takes: %s.", where, strings.Join(known, ", "))
	}
	return Invalid(full, hint, "unknown field %q", full)
}

// jsonKind is the JSON word for a Go type.
func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "whole number from 0"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "list"
	}
	return "object"
}

// Invalid is the error of parameters that are not possible; field, where it is not "", is the one.
func Invalid(field, hint, format string, args ...any) error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf(format, args...),
		Data:    api.ErrorData{Field: field, Hint: hint},
	}
}
