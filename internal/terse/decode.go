package terse

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Unmarshal does what json.Unmarshal does, but prepares only for what is in the data. Names of members are as they were
// written by Marshal: upper and lower case differ, and no two are the same.
func Unmarshal(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() || !plain(p.Elem().Type()) || !json.Valid(data) {
		return json.Unmarshal(data, v)
	}
	return decode(bytes.TrimSpace(data), p.Elem())
}

// plain reports whether a type is a struct that decodes as its members do.
func plain(t reflect.Type) bool { return t.Kind() == reflect.Struct && !special(t) }

// special reports whether a type decodes itself.
func special(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(unmarshaler) || p.Implements(textUnmarshaler)
}

// decode decodes a value, which is valid, into a plain struct.
func decode(data []byte, v reflect.Value) error {
	if data[0] != '{' {
		return json.Unmarshal(data, v.Addr().Interface()) // null changes nothing; the rest is wrong
	}
	var room [24]member
	return decodeMembers(members(room[:0], data), v)
}

func decodeMembers(all []member, v reflect.Value) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && plain(f.Type) {
			if err := decodeMembers(all, v.Field(i)); err != nil {
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
		for _, m := range all {
			if string(m.name) != name {
				continue
			}
			if err := decodeMember(m.value, v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

var rawMessage = reflect.TypeFor[json.RawMessage]()

func decodeMember(raw []byte, v reflect.Value) error {
	if v.Kind() == reflect.Pointer && plain(v.Type().Elem()) && raw[0] != 'n' {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	switch t := v.Type(); {
	case plain(t):
		return decode(raw, v)
	case t == rawMessage:
		v.SetBytes(bytes.Clone(raw))
		return nil
	case !special(t) && decodeSimple(raw, v):
		return nil
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

// decodeSimple decodes what most values are: short texts, numbers, truths and empty lists. Else it reports false.
func decodeSimple(raw []byte, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		if raw[0] != '"' {
			return false
		}
		text := raw[1 : len(raw)-1]
		if bytes.IndexByte(text, '\\') >= 0 || !utf8.Valid(text) {
			return false
		}
		v.SetString(string(text))
	case reflect.Bool:
		if raw[0] != 't' && raw[0] != 'f' {
			return false
		}
		v.SetBool(raw[0] == 't')
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
	case reflect.Float64:
		n, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return false
		}
		v.SetFloat(n)
	case reflect.Slice:
		if string(raw) != "[]" || v.Type().Elem().Kind() == reflect.Uint8 {
			return false
		}
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	default:
		return false
	}
	return true
}
