//go:build hutch_faults

package sandbox

import (
	"os"
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
)

// fault makes step HUTCH_FAULT_STEP of a create fail, so that tests can show for
// every step that nothing is left. len(steps) is the point after the last one.
func fault(step int) error {
	if want, err := strconv.Atoi(os.Getenv("HUTCH_FAULT_STEP")); err == nil && want == step {
		return api.Errorf(api.Internal, "fault injected before step %d", step)
	}
	return nil
}
