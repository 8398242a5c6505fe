package terse_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/terse"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestLikeJSON wants what encoding/json makes of the parameters of every method, with anything in them.
func TestLikeJSON(t *testing.T) {
	for _, m := range api.Methods {
		typ := reflect.TypeOf(m.Params)
		for seed := range 200 {
			v := reflect.New(typ)
			if seed > 0 {
				fill(rand.New(rand.NewPCG(uint64(seed), 7)), v.Elem(), 0)
			}
			same(t, m.Name, v.Elem().Interface())
			same(t, m.Name, v.Interface())
		}
	}
	same(t, "nil", nil)
	same(t, "map", map[string]any{"a": 1, "b": []string{"<", "é"}})
	same(t, "raw", json.RawMessage(`{"a":1}`))
}

func same(t *testing.T, name string, v any) {
	t.Helper()
	want, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if got, err := terse.Marshal(v); err != nil || string(got) != string(want) {
		t.Fatalf("%s: %v\n got %s\nwant %s", name, err, got, want)
	}
}

// fill sets some of what can be set.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	if _, ok := v.Interface().(time.Time); ok {
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), 0).UTC()))
		return
	}
	if _, ok := v.Interface().(json.RawMessage); ok {
		v.Set(reflect.ValueOf(json.RawMessage(`{"x":"<"}`)))
		return
	}
	if r.IntN(3) == 0 || depth > 6 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() || v.Type().Field(i).Anonymous {
				fill(r, v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(r, v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, 0)
			fill(r, elem, depth+1)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString([]string{"", "x", "a<b>&\"\\\n", "é\u2028\xff"}[r.IntN(4)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(r.Int64N(1<<31) - 5)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64N(200))
	case reflect.Float64:
		v.SetFloat([]float64{0, 1, 0.1, 1e21, -3e-9}[r.IntN(5)])
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	}
}
