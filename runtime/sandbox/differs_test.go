package sandbox

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDiffers: each field of a spec is compared, also those that come, but for some.
func TestDiffers(t *testing.T) {
	free := []string{"labels", "scope", "ttl_s", "idle_s", "ttl_action", "idle_action", "pull", "keep"}
	fields := reflect.TypeFor[api.Spec]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		var want, has api.Spec
		if got := differs(&want, &has); got != "" {
			t.Fatalf("two empty specs differ in %s", got)
		}
		fill(t, reflect.ValueOf(&want).Elem().Field(i))
		expected := name
		if slices.Contains(free, name) {
			expected = ""
		}
		if got := differs(&want, &has); got != expected {
			t.Errorf("%s: differs in %q, want %q", name, got, expected)
		}
		if got := differs(&has, &want); got != "" { // what is not mentioned is as it is
			t.Errorf("%s: differs in %q from a spec that does not mention it", name, got)
		}
		if got := differs(&want, &want); got != "" {
			t.Errorf("%s: differs in %q from itself", name, got)
		}
	}
}

// TestDiffersFolders: how a folder came here, and what of it was settled, makes no difference; another folder does.
func TestDiffersFolders(t *testing.T) {
	one, two := 1, 2
	was := api.Spec{Workspace: &api.Workspace{Mode: api.ModeRW, Path: "/a", FD: &one, GuardNew: api.GuardRefuse},
		Mounts: []api.Mount{{Source: "/b", Target: "/b", FD: &one}}}
	again := api.Spec{Workspace: &api.Workspace{Mode: api.ModeRW, Path: "/a", FD: &two},
		Mounts: []api.Mount{{Source: "/b", Target: "/b", FD: &two}}}
	if got := differs(&again, &was); got != "" {
		t.Errorf("the same folders differ in %q", got)
	}
	again.Workspace.Path = "/c"
	if got := differs(&again, &was); got != "workspace" {
		t.Errorf("another workspace differs in %q", got)
	}
	again.Workspace, again.Mounts[0].Target = nil, "/c"
	if got := differs(&again, &was); got != "mounts" {
		t.Errorf("another mount differs in %q", got)
	}
}

// fill gives v, and the first field of what it is made of, a value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), reflect.ValueOf("b"))
	case reflect.Struct:
		fill(t, v.Field(0))
	default:
		t.Fatalf("a %s is new here", v.Type())
	}
}
