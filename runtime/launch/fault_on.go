//go:build hutch_faults

package launch

import (
	"fmt"
	"os"
	"strconv"
)

// FaultVar is the index of the step of create that shall fail after it was
// done, from 0. hutch-launch's own environment has it (bootstrap.Options.Env).
const FaultVar = "HUTCH_FAULT_LAUNCH"

// faultAt fails step i when FaultVar names it.
func faultAt(i int) error {
	if n, err := strconv.Atoi(os.Getenv(FaultVar)); err == nil && n == i {
		return fmt.Errorf("fault injected after step %d", i)
	}
	return nil
}
