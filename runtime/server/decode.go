package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// decodeParams decodes params strictly: names are compared exactly and unknown
// ones refused, at every depth. Absent params are the empty object. If the type
// has a Validate method its word counts, too.
func decodeParams(raw json.RawMessage, into any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	if raw[0] != '{' {
		return invalidParams("", "Pass parameters by name, in an object.", "the parameters are not an object")
	}
	if err := checkFields(raw, reflect.TypeOf(into).Elem(), ""); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return badValue(err)
	}
	if v, ok := into.(interface{ Validate() error }); ok {
		return v.Validate()
	}
	return nil
}

// checkFields looks for an object member that no field of t has.
func checkFields(raw json.RawMessage, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && structured(t.Elem()):
		var items []json.RawMessage
		if json.Unmarshal(raw, &items) != nil {
			return nil // badValue says it better
		}
		for i, item := range items {
			if err := checkFields(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	case !structured(t):
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	fields := fieldsOf(t)
	for _, name := range sortedKeys(members) {
		field, ok := fields[name]
		full := strings.TrimPrefix(path+"."+name, ".")
		if !ok {
			return unknownField(full, path, sortedKeys(fields))
		}
		if err := checkFields(members[name], field, full); err != nil {
			return err
		}
	}
	return nil
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
	fields := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(t) {
		name, embedded := jsonName(f)
		if name != "" && !embedded {
			fields[name] = f.Type
		}
	}
	return fields
}

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
	return invalidParams(full, hint, "unknown field %q", full)
}

// badValue says which field does not decode.
func badValue(err error) error {
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) {
		return invalidParams(te.Field, fmt.Sprintf("Give a %s.", jsonKind(te.Type)),
			"field %q: %s where a %s belongs", te.Field, te.Value, jsonKind(te.Type))
	}
	return invalidParams("", "See rpc.discover for the types of the parameters.", "%v", err)
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

func invalidParams(field, hint, format string, args ...any) error {
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInvalidParams,
		Message: fmt.Sprintf(format, args...),
		Data:    api.ErrorData{Field: field, Hint: hint},
	}
}
