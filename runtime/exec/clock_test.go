package exec

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv"
)

// A deadline is put off by as long as the clock has stood still.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := NewClock(ClockState{}), time.Now()
		why := errors.New("over")
		ctx, cancel := c.Limit(t.Context(), start.Add(10*time.Second), 0, why)
		defer cancel()
		early, cancelEarly := c.Limit(t.Context(), start.Add(time.Second), 0, why)
		defer cancelEarly()
		never, cancelNever := c.Limit(t.Context(), start.Add(5*time.Second), 0, why)
		cancelNever()
		<-early.Done()
		testenv.Elapse(2 * time.Second) // 3 s on the clock
		c.Stop(time.Now())
		testenv.Elapse(time.Minute)
		if ctx.Err() != nil {
			t.Fatal("the deadline came while the clock stood still")
		}
		// A new hutchd reads what this one has written.
		next := NewClock(c.State())
		again, cancelAgain := next.Limit(t.Context(), start.Add(10*time.Second), 0, why)
		defer cancelAgain()
		select {
		case <-next.Runs():
			t.Error("the next hutchd's clock runs")
		default:
		}
		testenv.Elapse(time.Minute)
		c.GoOn(time.Now())
		next.GoOn(time.Now())
		<-next.Runs()
		resumed := time.Now()
		<-ctx.Done()
		if left := time.Since(resumed); left != 7*time.Second || !errors.Is(context.Cause(ctx), why) {
			t.Errorf("%v after it went on, %v; want 7s", left, context.Cause(ctx))
		}
		<-again.Done()
		if left := time.Since(resumed); left != 7*time.Second {
			t.Errorf("with the next hutchd %v, want 7s", left)
		}
		if context.Cause(never) == why {
			t.Error("a deadline that was taken back came")
		}
		// Who comes later has not been paused before.
		later, cancelLater := c.Limit(t.Context(), time.Now().Add(time.Second), c.State().Total, why)
		defer cancelLater()
		began := time.Now()
		<-later.Done()
		if time.Since(began) != time.Second {
			t.Errorf("a later deadline took %v, want 1s", time.Since(began))
		}
		if len(c.alarms) > 0 {
			t.Errorf("%d alarms are left", len(c.alarms))
		}
	})
}
