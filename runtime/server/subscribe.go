package server

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// maxSubscriptions bounds what one connection follows at once. Each costs a
// goroutine and no buffer.
const maxSubscriptions = 1024

var (
	errConnectionEnded = errors.New("the connection has ended")
	errDetached        = errors.New("detached by the client")
)

// subscription is something that a connection hears about as it happens, for as
// long as it has credit: whoever serves it waits, and keeps nothing meanwhile.
type subscription struct {
	id      string
	subject string // eventsSubject, or execSubject
	cancel  context.CancelCauseFunc
	release func()

	mu     sync.Mutex
	credit int64
	more   chan struct{} // capacity 1: there is more credit
}

// left is the credit that is left.
func (s *subscription) left() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.credit
}

func (s *subscription) spend(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit -= n
}

func (s *subscription) give(n int64) {
	s.mu.Lock()
	s.credit = min(s.credit+min(n, api.MaxCreditBytes), api.MaxCreditBytes)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// subscriptions are those of one connection. They end with it.
type subscriptions struct {
	ch     *jsonrpc.Channel
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	next uint64
	byID map[string]*subscription
	// ended are subjects of subscriptions that ended by themselves, lately: credit
	// for them crossed the news on its way.
	ended map[string]bool
}

func newSubscriptions(ch *jsonrpc.Channel) *subscriptions {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &subscriptions{ch: ch, ctx: ctx, cancel: cancel, byID: map[string]*subscription{}, ended: map[string]bool{}}
}

// close ends all subscriptions and waits for their goroutines. No call is under
// way any more.
func (s *subscriptions) close() {
	s.cancel(errConnectionEnded)
	s.wg.Wait()
}

// open makes a subscription whose serve runs when the reply to c is on its way. It
// is forgotten when serve returns.
func (s *subscriptions) open(c *Call, prefix, subject string, credit int64,
	serve func(context.Context, *subscription)) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= maxSubscriptions {
		return nil, api.Errorf(api.ResourceExhausted, "%d subscriptions are open on this connection", len(s.byID)).
			WithHint("end some, or use another connection")
	}
	s.next++
	ctx, cancel := context.WithCancelCause(s.ctx)
	sub := &subscription{
		id: fmt.Sprintf("%s%d", prefix, s.next), subject: subject, cancel: cancel, credit: credit,
		more: make(chan struct{}, 1), release: s.ch.KeepOpen(),
	}
	s.byID[sub.id] = sub
	c.afterReply(func() {
		s.wg.Go(func() {
			defer s.forget(sub)
			serve(ctx, sub)
		})
	})
	return sub, nil
}

func (s *subscriptions) forget(sub *subscription) {
	s.mu.Lock()
	delete(s.byID, sub.id)
	if len(s.ended) >= maxSubscriptions {
		clear(s.ended)
	}
	s.ended[sub.subject] = true
	s.mu.Unlock()
	sub.cancel(nil)
	sub.release()
}

// execSubject is what attachments to an exec are about.
func execSubject(exec string) string { return "exec " + exec }

// find returns the attachment with this id, or, without one, the only one of the
// exec.
func (s *subscriptions) find(id, exec string) (*subscription, error) {
	subject := execSubject(exec)
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		sub := s.byID[id]
		if sub == nil || sub.subject != subject {
			return nil, api.Errorf(api.NotFound, "no attachment %q of %s on this connection", id, exec).
				WithField("attachment").WithHint("it ends with exec.exited, exec.detach and its connection")
		}
		return sub, nil
	}
	var only *subscription
	for _, sub := range s.byID {
		switch {
		case sub.subject != subject:
		case only != nil:
			return nil, api.Errorf(api.InvalidArgument,
				"attachment: %s is attached to several times on this connection", exec).
				WithField("attachment").WithHint("say which: exec.attach returned its id")
		default:
			only = sub
		}
	}
	if only == nil {
		return nil, api.Errorf(api.NotFound, "%s is not attached to on this connection", exec).
			WithHint("exec.attach attaches; it ends with exec.exited, exec.detach and its connection")
	}
	return only, nil
}

func (s *subscriptions) credit(p api.CreditParams) error {
	sub, err := s.find(p.Attachment, p.Exec)
	if err == nil {
		sub.give(p.Bytes)
	}
	return s.unlessEnded(execSubject(p.Exec), err)
}

// unlessEnded forgives that what a client found is no longer there: it could not
// know.
func (s *subscriptions) unlessEnded(subject string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[subject] && errors.Is(err, &api.Error{Code: api.NotFound}) {
		return nil
	}
	return err
}

func (s *subscriptions) detach(p api.DetachParams) error {
	sub, err := s.find(p.Attachment, p.Exec)
	if err == nil {
		sub.cancel(errDetached)
	}
	return s.unlessEnded(execSubject(p.Exec), err)
}
