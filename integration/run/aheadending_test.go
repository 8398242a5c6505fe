package run_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// TestAheadEnding: a create that comes when its daemon ends may have taken a sandbox that was launched ahead, which
// then goes with the daemon: it is not left to be removed beside the daemon's folder.
func TestAheadEnding(t *testing.T) {
	w := world.New(t)
	w.LogOnFailure(t) // an error in the daemon's log fails the test
	made := 0
	for i := range world.Rounds(60) {
		w.Inside(t, "true") // sandboxes are launched ahead from the first one on
		w.AwaitReady(t, 1)
		c, caller := w.Connect(t), w.Connect(t)
		var sb api.Sandbox
		var err error
		var wg sync.WaitGroup
		wg.Go(func() {
			sb, err = caller.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{Image: "host"}}, nil, nil)
		})
		testenv.Moment(time.Duration(i%30) * 20 * time.Microsecond)
		if err := c.Shutdown(t.Context(), api.ShutdownParams{Mode: "keep"}); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		switch {
		case err == nil: // it was first, and the next daemon has it
			made++
			w.OK(t, "rm", "-f", sb.ID)
		case hutch.NotRun(err), errors.Is(err, hutch.ErrLost), api.ErrorCode(err) == api.Unavailable:
		default:
			t.Fatalf("round %d: %v", i, err)
		}
	}
	t.Logf("%d of %d were made", made, world.Rounds(60))
	w.AwaitNoSandbox(t)
}
