package main

import (
	"context"
	"sync"

	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// questions are hutchd's to the monitor, which answers one after the other. One is under way at a time: callers that
// give up do not fill the channel. An answer has the number of its question, and what has another is nobody's: who
// gave up is not followed by one that takes the answer for its own. Both ends are of one build, since a monitor starts
// the hutchd that lies beside it.
type questions struct {
	send func(monitorapi.Message) error
	turn chan struct{} // held until the monitor has answered, also when who asked has given up

	mu    sync.Mutex
	last  uint64                  // number of the question under way, or of the one before
	asker chan monitorapi.Message // with room for the answer; nil when none is under way
}

func newQuestions(send func(monitorapi.Message) error) *questions {
	return &questions{send: send, turn: make(chan struct{}, 1)}
}

// ask waits for the answer to q, or for the end of ctx.
func (qs *questions) ask(ctx context.Context, q monitorapi.Message) (monitorapi.Message, error) {
	select {
	case qs.turn <- struct{}{}:
	case <-ctx.Done():
		return monitorapi.Message{}, context.Cause(ctx)
	}
	answer := make(chan monitorapi.Message, 1)
	qs.mu.Lock()
	qs.last++
	q.Question, qs.asker = qs.last, answer
	qs.mu.Unlock()
	if err := qs.send(q); err != nil {
		qs.answer(monitorapi.Message{Question: q.Question}) // there will be none
		return monitorapi.Message{}, err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-ctx.Done():
		return monitorapi.Message{}, context.Cause(ctx)
	}
}

// answer hands an answer to who has asked. It reports whether it was one to the question that is under way.
func (qs *questions) answer(a monitorapi.Message) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.asker == nil || a.Question != qs.last {
		return false
	}
	qs.asker <- a
	qs.asker = nil
	<-qs.turn
	return true
}
