package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDiscover checks the document as OpenRPC 1.3 and against the method table.
func TestDiscover(t *testing.T) {
	p := serve(t, newServer(t, &engines{}))
	p.send(request(1, "rpc.discover", `{}`))
	raw := p.recvOK("1")
	var doc struct {
		OpenRPC string `json:"openrpc"`
		Info    struct{ Title, Version string }
		Methods []struct {
			Name, Summary, ParamStructure string
			Params                        []struct {
				Name     string
				Required bool
				Schema   map[string]any
			}
			Result struct {
				Name   string
				Schema map[string]any
			}
			Errors []map[string]string
		}
		Components struct {
			Schemas map[string]map[string]any
			Errors  map[string]struct {
				Code    int
				Message string
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenRPC, "1.3.") || doc.Info.Title == "" || doc.Info.Version == "" {
		t.Errorf("head: %q %+v", doc.OpenRPC, doc.Info)
	}
	if len(doc.Methods) != len(api.Methods) {
		t.Fatalf("%d methods, want %d", len(doc.Methods), len(api.Methods))
	}
	for i, m := range doc.Methods {
		want := api.Methods[i]
		if m.Name != want.Name || m.Summary != want.Summary || m.ParamStructure != "by-name" || m.Result.Name == "" ||
			m.Result.Schema == nil {
			t.Errorf("method %d: %+v", i, m)
		}
		var names []string
		for _, p := range m.Params {
			names = append(names, p.Name)
			if p.Schema == nil {
				t.Errorf("%s.%s has no schema", m.Name, p.Name)
			}
		}
		// What encoding/json writes for a filled value is what must be listed.
		if got, want := slices.Sorted(slices.Values(names)), jsonFields(t, want.Params); !slices.Equal(got, want) {
			t.Errorf("%s takes %v, documented are %v", m.Name, want, got)
		}
		if len(m.Errors) != len(api.Codes()) {
			t.Errorf("%s lists %d errors", m.Name, len(m.Errors))
		}
	}
	for _, c := range api.Codes() {
		if e := doc.Components.Errors[string(c)]; e.Code != c.Number() {
			t.Errorf("error %s has number %d", c, e.Code)
		}
	}
	limits := doc.Components.Schemas["Limits"]["properties"].(map[string]any)
	sameJSON(t, mustJSON(limits["cpus"]), `{"type":"number"}`)
	sameJSON(t, mustJSON(limits["memory_bytes"]), `{"type":"integer"}`)
	box := doc.Components.Schemas["Sandbox"]["properties"].(map[string]any)
	sameJSON(t, mustJSON(box["created"]), `{"format":"date-time","type":"string"}`)
	sameJSON(t, mustJSON(box["limits"]), `{"$ref":"#/components/schemas/Limits"}`)

	var all any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, ref := range refsIn(all) {
		if err := resolveRef(all, ref); err != nil {
			t.Errorf("$ref %s: %v", ref, err)
		}
	}
}

// jsonFields are the members that encoding/json writes for a value of this type
// in which nothing is empty.
func jsonFields(t *testing.T, zero any) []string {
	t.Helper()
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	fill(v)
	var m map[string]any
	if err := json.Unmarshal(mustJSON(v.Interface()), &m); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(m))
}

func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte("1"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		val := reflect.New(v.Type().Elem()).Elem()
		fill(val)
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), val)
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else if v.CanUint() {
			v.SetUint(1)
		}
	}
}

func refsIn(v any) []string {
	var refs []string
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if s, ok := e.(string); ok && k == "$ref" {
				refs = append(refs, s)
			}
			refs = append(refs, refsIn(e)...)
		}
	case []any:
		for _, e := range v {
			refs = append(refs, refsIn(e)...)
		}
	}
	return refs
}

func resolveRef(doc any, ref string) error {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return fmt.Errorf("not in this document")
	}
	for _, name := range strings.Split(path, "/") {
		m, ok := doc.(map[string]any)
		if !ok || m[name] == nil {
			return fmt.Errorf("no %s", name)
		}
		doc = m[name]
	}
	return nil
}

func TestDiscoverRefusesWhatJSONCanNotSay(t *testing.T) {
	for _, zero := range []any{struct{ F func() }{}, struct{ M map[int]string }{}, struct{ S []struct{ X int } }{}} {
		if _, err := openRPC([]api.Method{{Name: "x", Params: zero, Result: api.Empty{}}}); err == nil {
			t.Errorf("%T has a schema", zero)
		}
	}
}
