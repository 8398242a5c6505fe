package sandbox

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
		c, start := newClock(clockState{}), time.Now()
		why := errors.New("over")
		ctx, cancel := c.limit(t.Context(), start.Add(10*time.Second), 0, why)
		defer cancel()
		early, cancelEarly := c.limit(t.Context(), start.Add(time.Second), 0, why)
		defer cancelEarly()
		never, cancelNever := c.limit(t.Context(), start.Add(5*time.Second), 0, why)
		cancelNever()
		<-early.Done()
		testenv.Elapse(2 * time.Second) // 3 s on the clock
		c.stop(time.Now())
		testenv.Elapse(time.Minute)
		if ctx.Err() != nil {
			t.Fatal("the deadline came while the clock stood still")
		}
		// A new hutchd reads what this one has written.
		next := newClock(c.state())
		again, cancelAgain := next.limit(t.Context(), start.Add(10*time.Second), 0, why)
		defer cancelAgain()
		select {
		case <-next.runs():
			t.Error("the next hutchd's clock runs")
		default:
		}
		testenv.Elapse(time.Minute)
		c.goOn(time.Now())
		next.goOn(time.Now())
		<-next.runs()
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
		later, cancelLater := c.limit(t.Context(), time.Now().Add(time.Second), c.state().Total, why)
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

// Whoever is in keeps a pause waiting; whoever comes then waits for the pause.
func TestDoor(t *testing.T) {
	s := &Sandbox{admission: newAdmission()}
	s.record.State = "running"
	m := &Manager{}
	leave, err := m.enter(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	more := s.again()
	leave()
	leave()
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.closeAdmission(short); err == nil {
		t.Error("the admission was closed on somebody")
	}
	s.openAdmission()
	closed := make(chan error)
	go func() { closed <- s.closeAdmission(t.Context()) }()
	for { // until it waits
		s.mu.Lock()
		waits := s.admission.empty != nil
		s.mu.Unlock()
		if waits {
			break
		}
	}
	more()
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
