package server

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// queue starts a call that waits in l, and returns when it does. It ends its own turn.
func queue(ctx context.Context, ts *turns, l *line, name string, order *[]string) {
	go func() {
		end, err := ts.take(ctx, l)
		if err != nil {
			*order = append(*order, name+" left")
			return
		}
		*order = append(*order, name)
		end()
		end() // twice is one end
	}()
	synctest.Wait()
}

// TestTurns: who comes last on a quiet connection waits for one call of the flooding one.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := &turns{free: 1}
		var flood, quiet line
		var order []string
		end, err := ts.take(t.Context(), &flood)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		for _, name := range []string{"f1", "f2", "f3"} {
			queue(t.Context(), ts, &flood, name, &order)
		}
		queue(ctx, ts, &flood, "f4", &order)
		queue(t.Context(), ts, &quiet, "q1", &order)
		queue(t.Context(), ts, &quiet, "q2", &order)
		cancel(errors.New("no longer wanted"))
		synctest.Wait()
		end()
		synctest.Wait()
		if want := []string{"f4 left", "f1", "q1", "f2", "q2", "f3"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		if ts.free != 1 || len(ts.lines) != 0 {
			t.Errorf("free %d, lines %d", ts.free, len(ts.lines))
		}
	})
}

// TestTurnsEnd: a start that hangs does not keep its turn.
func TestTurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := &turns{free: 1}
		var hung, other line
		end, err := ts.take(t.Context(), &hung)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		next, err := ts.take(t.Context(), &other)
		if waited := time.Since(start); err != nil || waited != turnTime {
			t.Errorf("waited %v (%v), want %v", waited, err, turnTime)
		}
		end()
		next()
		if ts.free != 1 {
			t.Errorf("free %d, want 1", ts.free)
		}
	})
}
