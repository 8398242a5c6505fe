package server

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// eventsSubject is what subscriptions to events are about.
const eventsSubject = "events"

// eventLines is how much of events is put into one write, in bytes, where more than
// one are there.
const eventLines = 64 << 10

// subscribe follows the daemon's events on this connection.
func (c *Call) subscribe(ctx context.Context, events Events, p api.SubscribeParams) (api.Subscribed, error) {
	cursor, res, err := events.Subscribe(ctx, p)
	if err != nil {
		return res, err
	}
	credit := p.Credit
	if credit == 0 {
		credit = math.MaxInt64
	}
	sub, err := c.subs.open(c, "ev_", eventsSubject, credit, func(ctx context.Context, sub *subscription) {
		f := &eventFeed{ch: c.subs.ch, sub: sub, cursor: cursor, endless: p.Credit == 0}
		f.run(ctx)
	})
	if err != nil {
		return res, err
	}
	res.Subscription = sub.id
	return res, nil
}

// eventFeed sends events. What its client is too slow for stays on disk.
type eventFeed struct {
	ch      *jsonrpc.Channel
	sub     *subscription
	cursor  EventCursor
	endless bool // needs no credit
}

// run ends with the log, the subscription or the connection.
func (f *eventFeed) run(ctx context.Context) {
	for {
		events, err := f.cursor.Next(ctx)
		if errors.Is(err, io.EOF) {
			_ = f.ch.Feed(ctx, func(line []byte) ([]byte, error) { // or nobody is there
				return jsonrpc.AppendNotification(line, api.NotifyEventsEnd, api.SubscriptionParams{Subscription: f.sub.id}), nil
			})
		}
		if err != nil {
			return
		}
		for len(events) > 0 {
			if f.sub.left() == 0 {
				select {
				case <-f.sub.more:
					continue
				case <-ctx.Done():
					return
				}
			}
			if f.ch.Feed(ctx, func(line []byte) ([]byte, error) {
				line, events = f.lines(line, events)
				return line, nil
			}) != nil {
				return
			}
		}
	}
}

// lines appends the notifications of some events, as far as there is credit, and
// returns the rest of them.
func (f *eventFeed) lines(line []byte, events []api.Event) (_ []byte, rest []api.Event) {
	for len(events) > 0 && len(line) < eventLines && f.sub.left() > 0 {
		if len(line) > 0 {
			line = append(line, '\n')
		}
		e := events[0]
		e.Subscription = f.sub.id
		line = jsonrpc.AppendNotification(line, api.NotifyEvent, e)
		events = events[1:]
		if !f.endless {
			f.sub.spend(1)
		}
	}
	return line, events
}

// named checks that an id is of a subscription to events of this connection.
func (s *subscriptions) named(id string) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.byID[id]; sub != nil && sub.subject == eventsSubject {
		return sub, nil
	}
	return nil, api.Errorf(api.NotFound, "no subscription %q on this connection", id).WithField("subscription").
		WithHint("events.subscribe returned its id; it ends with events.end, events.unsubscribe and its connection")
}

func (s *subscriptions) creditEvents(p api.EventCreditParams) error {
	sub, err := s.named(p.Subscription)
	if err == nil {
		sub.give(p.Events)
	}
	return s.unlessEnded(eventsSubject, err)
}

func (s *subscriptions) unsubscribe(p api.SubscriptionParams) error {
	sub, err := s.named(p.Subscription)
	if err == nil {
		sub.cancel(errDetached)
	}
	return s.unlessEnded(eventsSubject, err)
}
