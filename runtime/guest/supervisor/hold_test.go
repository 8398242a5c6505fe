package supervisor

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestHold: a hold waits for the move that is under way and says after its time which that is; no other one begins
// before the release.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMover(nil)
		if got := m.hold(time.Second); got != "" {
			t.Errorf("nothing is moved: %q", got)
		}
		m.release()
		m.moving.folder, m.moving.idle = "/w/big", make(chan struct{})
		start := time.Now()
		if got := m.hold(3 * time.Second); got != "/w/big" || time.Since(start) != 3*time.Second {
			t.Errorf("%q after %v", got, time.Since(start))
		}
		time.AfterFunc(time.Second, m.moving.end)
		if got := m.hold(3 * time.Second); got != "" {
			t.Errorf("it is over: %q", got)
		}
		begun := make(chan bool, 1)
		go func() { begun <- m.moving.begin(&move{listener: -1}) }()
		synctest.Wait()
		if len(begun) > 0 {
			t.Fatal("a move has begun")
		}
		m.release()
		if <-begun { // nobody waits for it, as far as this test's listener knows
			t.Error("a move that nobody waits for is made")
		}
	})
	var none *Supervisor
	if none.Hold(time.Hour) != "" {
		t.Error("a sandbox without overlays")
	}
	none.Release()
}
