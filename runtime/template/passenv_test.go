package template

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestPassEnv: shipped agents get the keys of their models, also where the configuration changes them otherwise, and
// nothing where it says so; names are valid.
func TestPassEnv(t *testing.T) {
	of := func(configured ...api.TemplateSpec) []string {
		list := Shipped(configured)
		i := slices.IndexFunc(list, func(s api.TemplateSpec) bool { return s.Name == "claude" })
		return list[i].PassEnv
	}
	if !slices.Contains(of(), "ANTHROPIC_API_KEY") ||
		!slices.Contains(of(api.TemplateSpec{Name: "claude", PoolSize: 1}), "ANTHROPIC_API_KEY") {
		t.Error("the key is not passed")
	}
	own := []string{"MY_KEY"}
	if got := of(api.TemplateSpec{Name: "claude", PassEnv: own}); !slices.Equal(got, own) {
		t.Errorf("%q", got)
	}
	for name, list := range passEnv {
		spec := api.TemplateSpec{Name: name, Image: "host", PassEnv: list}
		if err := spec.Validate(); err != nil || !slices.IsSorted(list) {
			t.Errorf("%s: %q, %v", name, list, err)
		}
	}
	for _, bad := range []string{"", "A=b", "a b", "é"} {
		spec := api.TemplateSpec{Name: "x", Image: "host", PassEnv: []string{bad}}
		if spec.Validate() == nil {
			t.Errorf("%q is a name", bad)
		}
	}
	many := api.TemplateSpec{Name: "x", Image: "host", PassEnv: slices.Repeat([]string{"A"}, api.MaxPassEnv+1)}
	if many.Validate() == nil {
		t.Error("there is no bound")
	}
}
