package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// TestKilledShutdown: a daemon of which a part is killed while it ends has ended, or goes on; whoever calls next is
// served. What was to be kept is, and what was to be removed is gone once the call was answered, unless the monitor
// went, too.
func TestKilledShutdown(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	testenv.Suite(t, "slow")
	t.Parallel()
	for _, mode := range []string{"kill", "keep"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := world.New(t)
			w.LogOnFailure(t)
			w.Tolerated = append(w.Tolerated, "take over a sandbox; it is removed")
			var took time.Duration
			answered := 0
			for round := range killRounds() + 2 {
				w.OK(t, "ps")
				c := w.Reconnect(t)
				list, err := c.ListSandboxes(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					w.Create(t, "--name", "box", "host")
					world.Ran(t, c, "box", "echo mine >/tmp/f")
				}
				d, victim := w.OneDaemon(t), world.Victims[round%len(world.Victims)]
				done := make(chan error, 1)
				start := time.Now()
				go func() { done <- c.Shutdown(t.Context(), api.ShutdownParams{Mode: mode}) }()
				if round < 2 { // undisturbed
					if err := <-done; err != nil {
						t.Fatalf("the daemon does not end: %v", err)
					}
					world.AwaitEnd(t, d.Hutchd, "hutchd")
					took = max(took, time.Since(start))
					continue
				}
				testenv.RandomMoment(took + took/4)
				world.KillNow(t, victim.PIDs(d))
				for _, pid := range victim.PIDs(d) {
					world.Kill(t, pid)
				}
				err = <-done
				what := fmt.Sprintf("round %d, %s was killed; the call: %v", round, victim.Name, err)
				w.OK(t, "ps")
				list, lerr := w.Reconnect(t).ListSandboxes(t.Context(), nil)
				switch {
				case lerr != nil:
					t.Fatalf("%s; %v", what, lerr)
				case mode == "kill" && err == nil && victim.Name == "hutchd" && len(list) > 0:
					t.Fatalf("%s; sandboxes live on: %+v", what, list)
				case mode == "keep" && victim.Name == "hutchd" && len(list) != 1:
					t.Fatalf("%s; the sandbox is gone", what)
				}
				switch {
				case mode == "kill" && len(list) > 0 && list[0].State == api.Failed && victim.Name != "hutchd":
					// half removed
					w.OK(t, "rm", "-f", "box")
				case len(list) > 0:
					if got := w.OK(t, "exec", "box", "--", "cat", "/tmp/f"); got != "mine\n" {
						t.Fatalf("%s; %q", what, got)
					}
				}
				if err == nil {
					answered++
				}
			}
			t.Logf("%d of %d were answered; an end takes %s", answered, killRounds(), took)
		})
	}
}
