package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// eventWindow is how many events may wait for a reader. What comes meanwhile stays
// in the daemon's log.
const eventWindow = 512

// Events reads what happens in the daemon. Its methods are for one goroutine at a
// time, but for Close. It ends with its connection; Seq then says from where
// another one has to go on.
type Events struct {
	c   *Client
	sub api.Subscribed

	// Of the reader:
	seq  int64 // of the next event wanted
	owed int64 // events that were read and whose credit was not given back

	mu     sync.Mutex // guards what follows
	queue  []api.Event
	ended  *api.EventsEnd
	closed bool
	wake   chan struct{} // capacity 1
}

// Subscribe starts to read events. p.Credit is its own business.
func (c *Client) Subscribe(ctx context.Context, p api.SubscribeParams) (*Events, error) {
	p.Credit = eventWindow
	e := &Events{c: c, wake: make(chan struct{}, 1)}
	err := c.Call(ctx, api.MethodEvents, p, nil, withReply(func(result json.RawMessage) error {
		if err := json.Unmarshal(result, &e.sub); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events[e.sub.Subscription] = e
		return nil
	}))
	if err != nil {
		e.mu.Lock()
		e.closed = true // should it have been made all the same
		e.mu.Unlock()
		e.forget()
		return nil, err
	}
	e.seq = e.sub.NextSeq
	if p.FromSeq != nil {
		e.seq = *p.FromSeq
	}
	return e, nil
}

// Subscribed says which log is read, and what was in it when it began.
func (e *Events) Subscribed() api.Subscribed { return e.sub }

// Seq is the number of the first event that Next has not returned yet. Those in
// between may have been of other kinds.
func (e *Events) Seq() int64 { return e.seq }

// Next returns the next event, of the kind api.EventGap in the place of those that
// are lost. It returns io.EOF at the end of a subscription without follow.
func (e *Events) Next(ctx context.Context) (api.Event, error) {
	if e.owed >= eventWindow/2 {
		err := e.c.Call(ctx, api.MethodEventsCredit, api.EventCreditParams{Subscription: e.sub.Subscription,
			Events: e.owed}, nil)
		var answer *api.Error
		switch {
		case err == nil:
			e.owed = 0
		case !errors.As(err, &answer): // else it has just ended, which the queue tells
			return api.Event{}, err
		}
	}
	for {
		lost := isClosed(e.c.read) // before the queue: all that came is in it then
		if ev, err := e.take(); err != nil || ev.Kind != "" {
			return ev, err
		}
		if lost {
			return api.Event{}, e.c.unreachable(api.MethodEvents, e.c.why())
		}
		select {
		case <-e.wake:
		case <-e.c.read:
		case <-ctx.Done():
			return api.Event{}, context.Cause(ctx)
		}
	}
}

// take returns what is there; no kind means nothing.
func (e *Events) take() (api.Event, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return api.Event{}, ErrDetached
	case len(e.queue) > 0:
		ev := e.queue[0]
		e.queue = e.queue[1:]
		e.seq = ev.Seq + 1
		e.owed++
		return ev, nil
	case e.ended != nil && e.ended.Error != "":
		return api.Event{}, api.Errorf(api.Unavailable, "no more events: %s", e.ended.Error).WithOp(api.MethodEvents).
			WithHint("subscribe again from the next number; the daemon's log may say more")
	case e.ended != nil:
		return api.Event{}, io.EOF
	}
	return api.Event{}, nil
}

// All ranges over the events until the end, or an error.
func (e *Events) All(ctx context.Context) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for {
			ev, err := e.Next(ctx)
			if errors.Is(err, io.EOF) || !yield(ev, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the subscription.
func (e *Events) Close() error {
	e.mu.Lock()
	over := e.ended != nil || e.closed
	e.closed = true
	e.queue = nil
	e.mu.Unlock()
	signal(e.wake)
	e.forget()
	if over {
		return nil
	}
	return e.c.release(api.MethodEventsEnd, api.SubscriptionParams{Subscription: e.sub.Subscription})
}

func (e *Events) forget() {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	delete(e.c.events, e.sub.Subscription)
}

// event gives an event to its subscription, on the reading goroutine.
func (c *Client) event(ev api.Event) {
	c.mu.Lock()
	e := c.events[ev.Subscription]
	c.mu.Unlock()
	if e == nil || ev.Kind == "" {
		return
	}
	e.mu.Lock()
	if !e.closed {
		e.queue = append(e.queue, ev)
	}
	e.mu.Unlock()
	signal(e.wake)
}

func (c *Client) eventsEnd(end api.EventsEnd) {
	c.mu.Lock()
	e := c.events[end.Subscription]
	delete(c.events, end.Subscription)
	c.mu.Unlock()
	if e == nil {
		return
	}
	e.mu.Lock()
	e.ended = &end
	e.mu.Unlock()
	signal(e.wake)
}

// release ends something that the daemon does for this client. That it has ended by
// itself, or with the connection, is no error.
func (c *Client) release(method string, params any) error {
	ctx, cancel := context.WithTimeout(context.Background(), cancelWait)
	defer cancel()
	err := c.Call(ctx, method, params, nil)
	if errors.Is(err, &api.Error{Code: api.NotFound}) || errors.Is(err, &api.Error{Code: api.Unavailable}) {
		return nil
	}
	return err
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
