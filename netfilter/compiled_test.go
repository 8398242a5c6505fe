package netfilter

import (
	"fmt"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestCompiled: the same policy is compiled once, another one never taken for it.
func TestCompiled(t *testing.T) {
	var c compiled
	named := func(mode api.NetMode, names ...string) api.NetPolicy { return api.NetPolicy{Mode: mode, Allow: names} }
	first, err := c.of(named(api.NetAllow, "a.test", "b.test"))
	if err != nil {
		t.Fatal(err)
	}
	mine := named(api.NetAllow, "a.test", "b.test")
	again, err := c.of(mine)
	if again != first || err != nil {
		t.Errorf("compiled twice, %v", err)
	}
	mine.Allow[1] = "c.test"
	for _, p := range []api.NetPolicy{
		mine, named(api.NetOpen, "a.test", "b.test"), named(api.NetAllow, "b.test", "a.test"),
		named(api.NetAllow, "a.test"),
		{Mode: api.NetAllow, Block: []string{"a.test", "b.test"}},
	} {
		r, err := c.of(p)
		if err != nil || r == first || !same(r.Policy(), p) {
			t.Errorf("%+v: %+v, %v", p, r.Policy(), err)
		}
	}
	if _, err := c.of(named(api.NetAllow, "*")); err == nil {
		t.Error("* is allowed")
	}
	for i := range 2 * recent {
		if _, err := c.of(named(api.NetAllow, fmt.Sprintf("n%d.test", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.last) != recent {
		t.Errorf("%d policies are kept", len(c.last))
	}
}
