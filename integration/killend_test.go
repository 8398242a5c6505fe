package integration_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestKilledShutdown: a daemon of which a part is killed while it ends has ended, or goes on; whoever calls next is served. What
// was to be kept is, and what was to be removed is gone once the call was answered, unless the monitor went, too.
func TestKilledShutdown(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"kill", "keep"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.logOnFailure(t)
			w.tolerated = append(w.tolerated, "take over a sandbox; it is removed")
			var took time.Duration
			answered := 0
			for round := range killRounds() + 2 {
				w.ok(t, "ps")
				c := w.reconnect(t)
				list, err := c.ListSandboxes(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 0 {
					w.create(t, "--name", "box", "host")
					ran(t, c, "box", "echo mine >/tmp/f")
				}
				d, victim := w.oneDaemon(t), victims[round%len(victims)]
				done := make(chan error, 1)
				start := time.Now()
				go func() { done <- c.Shutdown(t.Context(), api.ShutdownParams{Mode: mode}) }()
				if round < 2 { // undisturbed
					if err := <-done; err != nil || !ended(d.hutchd, patience) {
						t.Fatalf("the daemon does not end: %v", err)
					}
					took = max(took, time.Since(start))
					continue
				}
				<-time.After(rand.N(took + took/4))
				strike(t, victim.pids(d))
				for _, pid := range victim.pids(d) {
					kill(t, pid)
				}
				err = <-done
				what := fmt.Sprintf("round %d, %s was killed; the call: %v", round, victim.name, err)
				w.ok(t, "ps")
				list, lerr := w.reconnect(t).ListSandboxes(t.Context(), nil)
				switch {
				case lerr != nil:
					t.Fatalf("%s; %v", what, lerr)
				case mode == "kill" && err == nil && victim.name == "hutchd" && len(list) > 0:
					t.Fatalf("%s; sandboxes live on: %+v", what, list)
				case mode == "keep" && victim.name == "hutchd" && len(list) != 1:
					t.Fatalf("%s; the sandbox is gone", what)
				}
				switch {
				case mode == "kill" && len(list) > 0 && list[0].State == api.Failed && victim.name != "hutchd": // half removed
					w.ok(t, "rm", "-f", "box")
				case len(list) > 0:
					if got := w.ok(t, "exec", "box", "--", "cat", "/tmp/f"); got != "mine\n" {
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
