package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

// fakeCursor gives events up to last, then ends, or blocks without one.
type fakeCursor struct{ next, last int64 }

func (f *fakeCursor) Await(ctx context.Context) error {
	switch {
	case f.last == 0:
		<-ctx.Done()
		return context.Cause(ctx)
	case f.next > f.last:
		return io.EOF
	}
	return nil
}

func (f *fakeCursor) Read(most int) (some []api.Event, _ error) {
	for ; f.next <= f.last && len(some) < most; f.next++ {
		some = append(some, api.Event{Seq: f.next, Kind: api.EventExecStarted, Data: json.RawMessage(`{"pid":2}`)})
	}
	return some, nil
}

func eventful(t testing.TB, last int64) *Server {
	return newServer(t, &engines{events: func(p api.SubscribeParams) (EventCursor, api.Subscribed, error) {
		return &fakeCursor{next: *p.FromSeq, last: last}, api.Subscribed{Log: "l", FirstSeq: 1, NextSeq: last + 1}, nil
	}})
}

func (p *peer) event() api.Event {
	p.t.Helper()
	m := p.recv()
	var e api.Event
	if m.Method != api.NotifyEvent || json.Unmarshal(m.Params, &e) != nil {
		p.t.Fatalf("got %s %s", m.Method, m.Params)
	}
	return e
}

// TestEvents: the reply, every event in order, the end.
func TestEvents(t *testing.T) {
	p := serve(t, eventful(t, 1000))
	p.send(request(1, "events.subscribe", `{"from_seq":3,"follow":false}`))
	sameJSON(t, p.recvOK("1"), `{"subscription":"ev_1","log":"l","first_seq":1,"next_seq":1001}`)
	for seq := int64(3); seq <= 1000; seq++ {
		if e := p.event(); e.Seq != seq || e.Subscription != "ev_1" || string(e.Data) != `{"pid":2}` {
			t.Fatalf("%+v, want %d", e, seq)
		}
	}
	if m := p.recv(); m.Method != api.NotifyEventsEnd || string(m.Params) != `{"subscription":"ev_1"}` {
		t.Errorf("%s %s", m.Method, m.Params)
	}
	for i, bad := range []string{`{"from_seq":0}`, `{"kinds":["no.kind"]}`, `{"credit":-1}`} {
		p.send(request(i, "events.subscribe", bad))
		p.recvErr(fmt.Sprint(i), api.InvalidArgument.Number())
	}
}

// TestEventCredit: with credit so many come and no more.
func TestEventCredit(t *testing.T) {
	p := serve(t, eventful(t, 1000))
	p.send(request(1, "events.subscribe", `{"from_seq":1,"credit":3}`))
	p.recvOK("1")
	for range 3 {
		p.event()
	}
	p.alive()
	p.send(request(2, "events.credit", `{"subscription":"ev_1","events":0}`))
	p.recvErr("2", api.InvalidArgument.Number())
	p.send(request(2, "events.credit", `{"subscription":"at_1","events":1}`))
	p.recvErr("2", api.NotFound.Number())
	p.send(request(2, "events.credit", `{"subscription":"ev_1","events":2}`))
	seen := map[string]int{}
	for range 3 {
		seen[p.recv().Method]++
	}
	if seen[""] != 1 || seen[api.NotifyEvent] != 2 {
		t.Errorf("%v", seen)
	}
	p.send(request(3, "events.unsubscribe", `{"subscription":"ev_1"}`))
	p.recvOK("3")
}

// TestEventsUnread: subscribers that never read cost no memory.
func TestEventsUnread(t *testing.T) {
	s := eventful(t, 1<<40)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const clients = 20
	for range clients {
		p := serve(t, s)
		for i := range 50 {
			p.send(request(i, "events.subscribe", `{"from_seq":1}`))
		}
		awaitReadable(t, p)
	}
	serve(t, s).alive()
	if grown := heap() - before; grown > clients*(2<<20) {
		t.Errorf("%d clients that do not read cost %d bytes", clients, grown)
	}
}

// TestEventsHalfClosed: `printf ... | socat` follows.
func TestEventsHalfClosed(t *testing.T) {
	p := serve(t, eventful(t, 10))
	p.send(request(1, "events.subscribe", `{"from_seq":1,"follow":false}`))
	if err := p.conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	p.recvOK("1")
	for range 10 {
		p.event()
	}
	if m := p.recv(); !strings.HasPrefix(m.Method, "events.") {
		t.Error(m.Method)
	}
	p.eof()
}
