package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/hutch-sh/hutch/internal/build/busy"
	"github.com/hutch-sh/hutch/internal/build/testreport"
	"github.com/hutch-sh/hutch/internal/testenv/mustrun"
)

// How a failed test is looked at again:
//
//   - what failed decides, not the test's name. Only a wait that ran out (testenv.Late) may have been the machine;
//     every other failure, a panic and a package that was cut short are final at once;
//   - a late test is run three times more at once, the first time under the load that it failed in. Failed again, it is
//     red;
//   - passed thrice it is unstable: named at the end with all outputs, and green while there are at most three of them;
//   - .ci/unstable is the memory. A name that is in it and is unstable again is red.

// again runs the late tests of a job again, and reports whether nothing of it failed for good.
func (r *runner) again(ctx context.Context, out io.Writer, j *job) bool {
	late, all := testreport.Late(j.outcome)
	if len(late) == 0 || !all || ctx.Err() != nil {
		return false
	}
	r.late.Lock()
	defer r.late.Unlock()
	stable := true
	load := busy.Load()
	for _, name := range late {
		var text bytes.Buffer
		passed := true
		for round := range 3 {
			threads := 0
			if round == 0 {
				threads = load
			}
			fmt.Fprintf(&text, "--- again %d of 3, beside %d busy threads: %s\n", round+1, threads, name)
			stop := busy.Threads(threads)
			read, cpu, err := r.binary(ctx, &text, j, "-test.run=^"+name+"$")
			stop()
			j.cpu += cpu
			if err != nil || read.Failed {
				passed = false
				break
			}
		}
		full := mustrun.Name(j.pkg, name)
		if !passed {
			fmt.Fprintf(out, "%sFAIL: %s failed again\n", text.String(), full)
			stable = false
			continue
		}
		testreport.MarkUnstable(j.outcome, full, text.String())
	}
	return stable
}
