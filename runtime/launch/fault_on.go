//go:build hutch_faults

package launch

import (
	"fmt"
	"os"
	"sync/atomic"
)

// FaultVar is the index of the step of create that shall fail after it was done,
// from 0, and, behind a comma, how many times. hutch-launch's own environment has
// it (bootstrap.Options.Env).
const FaultVar = "HUTCH_FAULT_LAUNCH"

var faults atomic.Int64

// faultAt fails step i when FaultVar names it.
func faultAt(i int) error {
	var want, times int64
	n, _ := fmt.Sscanf(os.Getenv(FaultVar), "%d,%d", &want, &times)
	if n == 0 || int64(i) != want || n == 2 && faults.Add(1) > times {
		return nil
	}
	return fmt.Errorf("fault injected after step %d", i)
}
