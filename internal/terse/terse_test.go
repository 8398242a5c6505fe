package terse_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/terse"
	"github.com/hutch-sh/hutch/internal/testenv/cost"
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

// TestDecodeLikeJSON wants of every result, with anything in it, what encoding/json makes of it.
func TestDecodeLikeJSON(t *testing.T) {
	for _, m := range api.Methods {
		typ := reflect.TypeOf(m.Result)
		for seed := range 200 {
			v := reflect.New(typ)
			if seed > 0 {
				fill(rand.New(rand.NewPCG(uint64(seed), 9)), v.Elem(), 0)
			}
			data, err := json.Marshal(v.Interface())
			if err != nil {
				t.Fatal(err)
			}
			decoded(t, m.Name, typ, data)
		}
		for _, data := range []string{`null`, `{}`, ` { "unknown" : [1] } `} {
			decoded(t, m.Name, typ, []byte(data))
		}
		for _, data := range []string{``, `{`, `[]`, `1`, `{"a":}`} {
			got, want := reflect.New(typ), reflect.New(typ)
			if (terse.Unmarshal([]byte(data), got.Interface()) == nil) != (json.Unmarshal([]byte(data),
				want.Interface()) == nil) {
				t.Errorf("%s: %q", m.Name, data)
			}
		}
	}
	var list []int
	if err := terse.Unmarshal([]byte(`[1]`), &list); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if err := terse.Unmarshal([]byte(`{"exit_code":"x"}`), &api.ExecResult{}); err == nil {
		t.Error("a number that is none")
	}
}

func decoded(t *testing.T, name string, typ reflect.Type, data []byte) {
	t.Helper()
	got, want := reflect.New(typ), reflect.New(typ)
	if err := json.Unmarshal(data, want.Interface()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := terse.Unmarshal(data, got.Interface()); err != nil ||
		!reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Fatalf("%s: %v\n got %+v\nwant %+v", name, err, got.Elem(), want.Elem())
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

// FuzzDecode wants what encoding/json makes of any text, but for names that are there twice or in another case.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"exec":"ex_1","exit_code":3,"peaks":{"memory_bytes":1,"cpu_ms":1.5},"killed":[],"denials":null,"limit":{"name":"a\u0062"}}`, ` {"stdout" : "\ud800" , "killed":[1,2]} `, `{"exit_code":1e2}`, `{"st\u0064out":"x"}`, "null", `{"timed_out":null,"exec":null}`, `{"exec":0,"exit_code":"","timed_out":1,"killed":{},"peaks":[]}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !ordinary(text) {
			return
		}
		var got, want api.ExecResult
		var gerr error
		cost.Input(t, text, func(text string) {
			got = api.ExecResult{}
			gerr = terse.Unmarshal([]byte(text), &got)
		})
		werr := json.Unmarshal([]byte(text), &want)
		if (gerr == nil) != (werr == nil) {
			t.Fatalf("%q: %v, want %v", text, gerr, werr)
		}
		if gerr == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\n got %+v\nwant %+v", text, got, want)
		}
	})
}

// ordinary reports whether all names of objects in text are in lower case, and there once each.
func ordinary(text string) bool {
	dec := json.NewDecoder(strings.NewReader(text))
	type level struct {
		object, value bool
		seen          map[string]bool
	}
	var levels []level
	for {
		tok, err := dec.Token()
		if err != nil {
			return true
		}
		top := len(levels) - 1
		if d, ok := tok.(json.Delim); ok {
			if d == '{' || d == '[' {
				if top >= 0 {
					levels[top].value = false
				}
				levels = append(levels, level{object: d == '{', seen: map[string]bool{}})
				continue
			}
			levels = levels[:top]
			continue
		}
		if top < 0 || !levels[top].object {
			continue
		}
		if levels[top].value {
			levels[top].value = false
			continue
		}
		name, _ := tok.(string)
		folded := strings.ToLower(name)
		if folded != name || levels[top].seen[name] || !isASCII(name) {
			return false
		}
		levels[top].seen[name], levels[top].value = true, true
	}
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 126 })
}
