package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// TestSubscribe: events come in order, credit is given back, and the end is one.
func TestSubscribe(t *testing.T) {
	const n = 2000
	var credit atomic.Int64
	c := connected(t, func(r *fakeCall) (any, error) {
		switch r.Method {
		case api.MethodEvents:
			r.AfterReply(func() {
				go func() {
					for i := range n {
						notifyLine(r, api.NotifyEvent, api.Event{Subscription: "ev_1", Seq: int64(10 + i),
							Kind: api.EventExecExited, Data: json.RawMessage(`{"exit_code":1}`)})
					}
					notifyLine(r, api.NotifyEventsEnd, api.SubscriptionParams{Subscription: "ev_1"})
				}()
			})
			return api.Subscribed{Subscription: "ev_1", NextSeq: 10}, nil
		case api.MethodEventsCredit:
			var p api.EventCreditParams
			if err := json.Unmarshal(r.Params, &p); err != nil {
				return nil, err
			}
			credit.Add(p.Events)
		}
		return api.Empty{}, nil
	})
	events, err := c.Subscribe(within(t), api.SubscribeParams{})
	if err != nil {
		t.Fatal(err)
	}
	if events.Seq() != 10 {
		t.Errorf("starts at %d", events.Seq())
	}
	want := int64(10)
	for ev, err := range events.All(within(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Seq != want || string(ev.Data) != `{"exit_code":1}` {
			t.Fatalf("%+v, want %d", ev, want)
		}
		want++
	}
	if want != 10+n || events.Seq() != want {
		t.Errorf("%d events", want-10)
	}
	if got := credit.Load(); got > n || got < n-2*eventWindow {
		t.Errorf("%d of credit for %d events", got, n)
	}
	if _, err := events.Next(within(t)); err != io.EOF {
		t.Error(err)
	}
}

// TestSubscribeBroken: a log that cannot be read is no end.
func TestSubscribeBroken(t *testing.T) {
	c := connected(t, func(r *fakeCall) (any, error) {
		r.AfterReply(func() {
			go notifyLine(r, api.NotifyEventsEnd, api.EventsEnd{Subscription: "ev_1", Error: "broken disk"})
		})
		return api.Subscribed{Subscription: "ev_1"}, nil
	})
	events, err := c.Subscribe(within(t), api.SubscribeParams{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Next(within(t)); api.ErrorCode(err) != api.Unavailable {
		t.Error(err)
	}
}

// notifyLine sends any notification.
func notifyLine(r *fakeCall, method string, params any) {
	_ = r.ch.Feed(context.Background(), func(line []byte) ([]byte, error) {
		return append(line, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, method, mustJSON(params))...),
			nil
	})
}
