package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestExplain: a model reads what was refused, bounded; of probes only where nothing else says why something failed.
func TestExplain(t *testing.T) {
	real := api.Denial{Kind: api.KindNet, Target: "a.test", Why: "no network", HowToAllow: "--allow a.test"}
	probe := api.Denial{Kind: api.KindNet, Target: "p.test", Why: "no network", Probe: true}
	down := api.Failure{Target: "b.test:1", Why: "nothing listens"}
	said := "the sandbox refused net a.test: no network; to allow it: --allow a.test"
	for _, c := range []struct {
		denials  []api.Denial
		failures []api.Failure
		policy   string
		failed   bool
		want     string
	}{
		{want: ""},
		{failed: true, want: ""},
		{denials: []api.Denial{probe}, want: ""},
		{denials: []api.Denial{probe}, failed: true,
			want: "the sandbox refused what programs mostly do as well without: p.test"},
		{denials: []api.Denial{probe, real}, failed: true, want: said},
		{denials: []api.Denial{real}, want: said},
		{denials: []api.Denial{real}, failures: []api.Failure{down}, policy: "There is none.",
			want: said + "|b.test:1 failed: nothing listens|refused again and again, by this policy: There is none."},
	} {
		if got := strings.Join(api.Explain(c.denials, c.failures, c.policy, c.failed), "|"); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var many []api.Denial
	for i := range 12 {
		many = append(many, api.Denial{Kind: api.KindNet, Target: fmt.Sprint(i)})
	}
	if got := api.Explain(many, nil, "", false); len(got) != 11 || got[10] != "and 2 refusals more" {
		t.Errorf("%q", got)
	}
}
