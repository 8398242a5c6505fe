package launch_test

import (
	"fmt"
	"os"
	"testing"
)

// insideChurn makes and destroys many sandboxes and expects hutch-launch to hold
// no more than before.
func insideChurn(t *testing.T, d *hutchd) {
	const rounds = 60
	count := func(what string) int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", os.Getppid(), what))
		must(t, err)
		return len(entries)
	}
	round := func(n int) {
		for i := range n {
			id := fmt.Sprintf("sb_%d", i)
			d.create(t, id).Close()
			d.destroy(t, id)
		}
	}
	round(5) // filters are made, threads started
	fds, threads := count("fd"), count("task")
	round(rounds)
	// libcontainer leaves a pidfd for each to the garbage collector, which runs
	// now and then.
	if now := count("fd"); now > fds+rounds/2 {
		t.Errorf("fds %d, then %d", fds, now)
	}
	if now := count("task"); now > threads+rounds/4 {
		t.Errorf("threads %d, then %d", threads, now)
	}
}
