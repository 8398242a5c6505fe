package sandbox

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestStarts: who waits is told when the last run has started, and not before; nobody waits for nothing.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s starts
		if s.await(t.Context()) {
			t.Error("nobody starts, and that was waited for")
		}
		first, second := s.begin(), s.begin()
		var over atomic.Int32
		for range 2 {
			go func() {
				s.await(context.Background())
				over.Add(1)
			}()
		}
		first()
		first() // counts once
		synctest.Wait()
		if over.Load() != 0 {
			t.Error("one is still starting")
		}
		second()
		synctest.Wait()
		if over.Load() != 2 {
			t.Error("not everybody is told that all have started")
		}
		third := s.begin()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(nil)
		s.await(ctx)
		third()
		s.await(t.Context())
	})
}
