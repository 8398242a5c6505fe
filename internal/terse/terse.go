// Package terse encodes and decodes values as encoding/json does, for processes of one call.
//
// encoding/json prepares, once in a process, for every type that may be met below a value's: 0.2 ms for the parameters
// of a sandbox, most of which a call does not name, and as much for a result. This looks at what is there.
package terse

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// Marshal returns what json.Marshal does. Structs may embed others, but no two fields may have the same name in JSON.
func Marshal(v any) ([]byte, error) { return appendValue(nil, reflect.ValueOf(v)) }

var (
	marshaler       = reflect.TypeFor[json.Marshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func appendValue(to []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(to, "null"...), nil
	}
	t := v.Type()
	if t.Implements(marshaler) || t.Implements(textMarshaler) {
		return appendStd(to, v)
	}
	if p := reflect.PointerTo(t); v.CanAddr() && (p.Implements(marshaler) || p.Implements(textMarshaler)) {
		return appendStd(to, v.Addr())
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(to, "null"...), nil
		}
		return appendValue(to, v.Elem())
	case reflect.Struct:
		to, _, err := appendFields(append(to, '{'), v, true)
		return append(to, '}'), err
	case reflect.Slice:
		if v.IsNil() || t.Elem().Kind() == reflect.Uint8 {
			return appendStd(to, v)
		}
		return appendList(to, v)
	case reflect.Bool:
		return strconv.AppendBool(to, v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(to, v.Int(), 10), nil
	}
	return appendStd(to, v)
}

func appendStd(to []byte, v reflect.Value) ([]byte, error) {
	text, err := json.Marshal(v.Interface())
	return append(to, text...), err
}

func appendList(to []byte, v reflect.Value) (_ []byte, err error) {
	to = append(to, '[')
	for i := range v.Len() {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = appendValue(to, v.Index(i)); err != nil {
			return to, err
		}
	}
	return append(to, ']'), nil
}

// appendFields appends the members of a struct; first says that none has been before.
func appendFields(to []byte, v reflect.Value, first bool) (_ []byte, _ bool, err error) {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			member := v.Field(i)
			for member.Kind() == reflect.Pointer && !member.IsNil() {
				member = member.Elem()
			}
			if member.Kind() == reflect.Struct {
				if to, first, err = appendFields(to, member, first); err != nil {
					return to, first, err
				}
			}
			continue
		}
		if !f.IsExported() || name == "-" && options == "" || left(v.Field(i), options) {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if !first {
			to = append(to, ',')
		}
		first = false
		to = append(append(append(to, '"'), name...), '"', ':')
		if to, err = appendValue(to, v.Field(i)); err != nil {
			return to, first, err
		}
	}
	return to, first, nil
}

// left says that a member is left out.
func left(v reflect.Value, options string) bool {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			switch v.Kind() {
			case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
				return v.Len() == 0
			case reflect.Struct:
				return false
			}
			return v.IsZero()
		case "omitzero":
			if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
				return z.IsZero()
			}
			if v.CanAddr() {
				if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok {
					return z.IsZero()
				}
			}
			return v.IsZero()
		}
	}
	return false
}
