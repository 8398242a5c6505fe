package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestNetworkWays: what a kernel without tproxy, or without nf_tables, can do.
func TestNetworkWays(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "slow")
	t.Parallel()
	world.Needs(t, "curl")
	world.NeedsPython(t)
	for _, way := range []string{"tproxy-hold", "tproxy", "redirect", "per-port"} {
		t.Run(way, func(t *testing.T) {
			w := newNetWorld(t, []string{"web.test"}, "HUTCH_NETWORK_WAY="+way)
			port := webServer(t, "hello")
			at := fmt.Sprintf("web.test:%d", port)
			sb := w.allowing(t, at)
			w.fetches(t, sb, "curl -sS http://"+at, "hello")
			w.denied(t, sb, "curl -sS http://other.test", "Could not resolve", byName("other.test", "mode allow"))
			w.denied(t, sb, connecting("10.0.0.1", port), "EACCES", nil)
			rec, err := w.c.GetSandbox(t.Context(), sb)
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(rec.Isolation.Walls,
				func(w api.Wall) bool { return w.Name == "network" }); i < 0 ||
				!strings.Contains(rec.Isolation.Walls[i].Detail, way) {
				t.Errorf("walls %+v", rec.Isolation.Walls)
			}
			w.OK(t, "rm", "-f", sb)
		})
	}
}
