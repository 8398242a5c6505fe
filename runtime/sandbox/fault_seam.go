//go:build hutch_faults

package sandbox

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/hutch-sh/hutch/runtime/api"
)

var faults atomic.Int64

// fault makes a step of a create fail, so that tests can show for every step that
// nothing is left: HUTCH_FAULT_STEP is "STEP" or "STEP,TIMES", after which the
// daemon is well again. len(steps) is the point after the last step.
func fault(step int) error {
	var want, times int64
	n, _ := fmt.Sscanf(os.Getenv("HUTCH_FAULT_STEP"), "%d,%d", &want, &times)
	if n == 0 || int64(step) != want || n == 2 && faults.Add(1) > times {
		return nil
	}
	return api.Errorf(api.Internal, "fault injected before step %d", step)
}
