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

// eventBatch is how many events are sent in one write, where so many are there.
const eventBatch = 128

// subscribe follows the daemon's events on this connection.
func subscribe(ctx context.Context, c *Call, p api.SubscribeParams) (api.Subscribed, error) {
	cursor, res, err := c.dispatcher.s.cfg.Subscribe(ctx, p)
	if err != nil {
		return res, err
	}
	credit := p.Credit
	if credit == 0 {
		credit = math.MaxInt64
	}
	sub, err := c.dispatcher.subs.open(c, "ev_", eventsSubject, credit, func(ctx context.Context, sub *subscription) {
		f := &eventFeed{ch: c.dispatcher.subs.ch, sub: sub, cursor: cursor, endless: p.Credit == 0}
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
		if f.sub.left() == 0 {
			select {
			case <-f.sub.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := f.cursor.Await(ctx)
		if err == nil {
			err = f.ch.Feed(ctx, f.lines)
		}
		if err != nil {
			if ctx.Err() == nil { // else its client wants to hear no more
				f.end(ctx, err)
			}
			return
		}
	}
}

// end says that no more will come. Where the connection is why, nobody hears it.
func (f *eventFeed) end(ctx context.Context, why error) {
	end := api.EventsEnd{Subscription: f.sub.id}
	if !errors.Is(why, io.EOF) {
		end.Error = why.Error()
	}
	_ = f.ch.Feed(ctx, func(line []byte) ([]byte, error) {
		return jsonrpc.AppendNotification(line, api.NotifyEventsEnd, end), nil
	})
}

// lines appends the notifications of some events. They are read only now, when the
// connection has room for them.
func (f *eventFeed) lines(line []byte) ([]byte, error) {
	events, err := f.cursor.Read(int(min(f.sub.left(), eventBatch)))
	for i := range events {
		if i > 0 {
			line = append(line, '\n')
		}
		events[i].Subscription = f.sub.id
		line = jsonrpc.AppendNotification(line, api.NotifyEvent, events[i])
	}
	if !f.endless {
		f.sub.spend(int64(len(events)))
	}
	return line, err
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
