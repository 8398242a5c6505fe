package terse

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Unmarshal does what json.Unmarshal does, but prepares only for what is in the data. Names of members are as they were written by Marshal:
// upper and lower case differ, and no two are the same.
func Unmarshal(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() || !plain(p.Elem().Type()) {
		return json.Unmarshal(data, v)
	}
	return decode(data, p.Elem())
}

// plain reports whether a type is a struct that decodes as its members do.
func plain(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler) && !reflect.PointerTo(t).Implements(textUnmarshaler)
}

// decode decodes into a plain struct.
func decode(data []byte, v reflect.Value) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return err
	}
	if members == nil { // null changes nothing
		return nil
	}
	return decodeMembers(members, v)
}

func decodeMembers(members map[string]json.RawMessage, v reflect.Value) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && plain(f.Type) {
			if err := decodeMembers(members, v.Field(i)); err != nil {
				return err
			}
			continue
		}
		if !f.IsExported() || name == "-" && options == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		raw, there := members[name]
		if !there {
			continue
		}
		if err := decodeMember(raw, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func decodeMember(raw json.RawMessage, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && plain(v.Type().Elem()) && string(raw) != "null" {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	if plain(v.Type()) {
		return decode(raw, v)
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}
