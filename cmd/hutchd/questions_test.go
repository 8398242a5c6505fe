package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// TestQuestions: who gives up leaves the answer to nobody, and nothing else is asked before it is there.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []monitorapi.Message
		qs := newQuestions(func(q monitorapi.Message) error { sent = append(sent, q); return nil })
		given := errors.New("given up")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := qs.ask(ctx, monitorapi.Message{Probe: &monitorapi.Probe{}})
			first <- err
		}()
		synctest.Wait()
		cancel(given)
		if err := <-first; !errors.Is(err, given) {
			t.Fatalf("a cancelled question: %v", err)
		}
		type answered struct {
			a   monitorapi.Message
			err error
		}
		second := make(chan answered, 1)
		go func() {
			a, err := qs.ask(t.Context(), monitorapi.Message{Sweep: &monitorapi.Sweep{}})
			second <- answered{a, err}
		}()
		synctest.Wait()
		if len(sent) != 1 {
			t.Fatalf("%d questions were sent while the monitor answers the first", len(sent))
		}
		late := monitorapi.Message{Question: sent[0].Question, Probed: &monitorapi.Probed{}}
		if !qs.answer(late) {
			t.Error("the late answer was not known")
		}
		synctest.Wait()
		if len(sent) != 2 || sent[1].Sweep == nil || sent[1].Question == sent[0].Question {
			t.Fatalf("sent: %+v", sent)
		}
		for _, wrong := range []monitorapi.Message{late, {Swept: &monitorapi.Swept{}}, {Question: 99}} {
			if qs.answer(wrong) {
				t.Errorf("%+v was taken for the answer to question %d", wrong, sent[1].Question)
			}
		}
		qs.answer(monitorapi.Message{Question: sent[1].Question, Swept: &monitorapi.Swept{Removed: []string{"a"}}})
		if got := <-second; got.err != nil || got.a.Swept == nil || len(got.a.Swept.Removed) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestQuestionNotSent: a question that cannot be sent does not keep others from being asked.
func TestQuestionNotSent(t *testing.T) {
	broken := errors.New("broken")
	qs := newQuestions(func(monitorapi.Message) error { return broken })
	for range 3 {
		if _, err := qs.ask(t.Context(), monitorapi.Message{Sweep: &monitorapi.Sweep{}}); !errors.Is(err, broken) {
			t.Fatalf("%v, want %v", err, broken)
		}
	}
	if qs.answer(monitorapi.Message{Question: 3, Swept: &monitorapi.Swept{}}) {
		t.Error("an answer to a question that was never sent was taken")
	}
}
