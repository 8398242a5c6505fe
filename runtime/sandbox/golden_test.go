package sandbox

import (
	"path/filepath"
	"testing"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// TestGolden: records that the build of 3f74611 has written of sandboxes that run, wait in a pool and are stopped are
// read whole. A build that changes one of them reads both.
func TestGolden(t *testing.T) {
	for _, name := range []string{"plain", "rich", "pool", "stopped"} {
		s := testenv.Golden[saved](t, filepath.Join("testdata/golden", name+".json"))
		if s.Record.ID == "" || s.Root == nil || s.Spec.Image == "" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
