package sandbox

import (
	"slices"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestDebugPhases: what a client may stop behind are the steps that there are.
func TestDebugPhases(t *testing.T) {
	var names []string
	for _, st := range steps {
		names = append(names, st.name)
	}
	if !slices.Equal(names, api.DebugPhases) {
		t.Errorf("steps %q, phases %q", names, api.DebugPhases)
	}
}
