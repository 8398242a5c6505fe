package probe_test

import (
	"testing"

	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// TestKind: what a host grants depends on who asks.
func TestKind(t *testing.T) {
	kind := testenv.CurrentKind()
	want := probe.Yes
	if kind == mustrun.NoSubUID {
		want = probe.No
	}
	if c := probe.SubIDs(); c.Status != want {
		t.Errorf("as %s: %+v, want %s", kind, c, want)
	}
	if c := probe.IDMapTools(); kind == mustrun.SubUID {
		testenv.Require(t, c)
	} else if kind == mustrun.Root && c.Status != probe.Yes {
		t.Errorf("root needs no tools: %+v", c)
	}
}
