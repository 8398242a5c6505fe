package rest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// news is one subscription to the daemon's events for all streams: a stream costs a goroutine, and the daemon nothing.
// It begins with the first stream and ends with the last. Who falls behind by more than is kept here reads what is
// missing from the daemon.
type news struct {
	connect func(ctx context.Context) (*client.Client, error)

	mu      sync.Mutex // guards what follows
	readers int
	stop    context.CancelCauseFunc
	next    int64         // number of the next event; 0: not known yet
	recent  []api.Event   // the last ones, in order
	err     error         // why it has ended
	grown   chan struct{} // closed, and made anew, when any of it changes
}

// keptEvents are for readers that are not quite as fast as the daemon.
const keptEvents = 1024

func newNews(connect func(ctx context.Context) (*client.Client, error)) *news {
	return &news{connect: connect, grown: make(chan struct{})}
}

// join begins the subscription if nobody has before. leave ends it after the last.
func (n *news) join() (leave func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readers++; n.readers == 1 {
		ctx, stop := context.WithCancelCause(context.Background())
		n.stop, n.next, n.recent, n.err = stop, 0, nil, nil
		go n.run(ctx)
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.readers--; n.readers == 0 {
			n.stop(errNobody)
		}
	}
}

// errNobody is why events are not read any more.
var errNobody = errors.New("nobody follows events")

// run reads events until the last reader has left. A connection that is lost is made anew, from where it was.
func (n *news) run(ctx context.Context) {
	var from *int64
	for ctx.Err() == nil {
		err := n.read(ctx, &from)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, client.ErrLost) {
			n.update(ctx, func() { n.err = err })
			return
		}
	}
}

func (n *news) read(ctx context.Context, from **int64) error {
	c, err := n.connect(ctx)
	if err != nil {
		return err
	}
	sub, err := c.Subscribe(ctx, api.SubscribeParams{FromSeq: *from})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	n.update(ctx, func() { n.next = sub.Seq() })
	for {
		e, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		n.update(ctx, func() {
			n.next = e.Seq + 1
			if n.recent = append(n.recent, e); len(n.recent) > 2*keptEvents {
				n.recent = append([]api.Event(nil), n.recent[keptEvents:]...)
			}
		})
		next := e.Seq + 1
		*from = &next
	}
}

// update changes what readers see, unless the last of them has left and others have come.
func (n *news) update(ctx context.Context, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	f()
	close(n.grown)
	n.grown = make(chan struct{})
}

// after are the events from a number on that are kept here. missing is set where older ones have gone.
func (n *news) after(seq int64) (found []api.Event, next int64, missing bool, grown <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := n.next
	if len(n.recent) > 0 {
		first = n.recent[0].Seq
	}
	for i := range n.recent {
		if n.recent[i].Seq >= seq {
			found = n.recent[i:]
			break
		}
	}
	return found, n.next, n.next > 0 && seq < first, n.grown, n.err
}

// followEvents streams what happens.
func followEvents(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	id, err := s.idOf(r)
	if err != nil {
		return nil, err
	}
	p := api.SubscribeParams{Sandbox: id}
	if kinds := r.URL.Query().Get("kinds"); kinds != "" {
		for kind := range strings.SplitSeq(kinds, ",") {
			p.Kinds = append(p.Kinds, api.EventKind(strings.TrimSpace(kind)))
		}
	}
	var seq int64
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		last, err := strconv.ParseInt(id, 10, 64)
		if err != nil || last < 0 || last == math.MaxInt64 {
			return nil, api.Errorf(api.InvalidArgument, "Last-Event-ID: %q is not of this stream", id).
				WithField("Last-Event-ID").WithHint("send the id of the last event as it came")
		}
		seq = last + 1
	}
	if err := s.checkKinds(p.Kinds); err != nil {
		return nil, err
	}
	leave := s.news.join()
	defer leave()
	reader := &newsReader{s: s, ctx: r.Context(), p: p, seq: seq}
	if err := reader.ready(); err != nil {
		return nil, err
	}
	reader.out = stream(w)
	_ = reader.run() // the client is gone, or was told
	return nil, nil
}

func (s *Server) checkKinds(kinds []api.EventKind) error {
	for _, k := range kinds {
		if !isKind(k) {
			return api.Errorf(api.InvalidArgument, "kinds: %q is no kind of event", k).WithField("kinds").
				WithHint("use kinds such as %s", api.EventSandboxState)
		}
	}
	return nil
}

func isKind(k api.EventKind) bool {
	for _, known := range api.EventKinds {
		if k == known {
			return true
		}
	}
	return false
}

// newsReader is one stream of events.
type newsReader struct {
	s   *Server
	ctx context.Context
	p   api.SubscribeParams // what it wants
	seq int64               // of the next event; 0: the next that happens
	out *events
}

// ready waits until the subscription is there, so that what happens after the answer has begun is in the stream.
func (n *newsReader) ready() error {
	for {
		_, next, _, grown, err := n.s.news.after(n.seq)
		if err != nil {
			return err
		}
		if next > 0 {
			if n.seq == 0 {
				n.seq = next
			}
			return nil
		}
		select {
		case <-grown:
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		}
	}
}

func (n *newsReader) run() error {
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	if err := n.out.still(); err != nil { // the client hears that it has begun
		return err
	}
	for {
		found, _, missing, grown, err := n.s.news.after(n.seq)
		switch {
		case err != nil:
			return n.out.send(strconv.FormatInt(n.seq-1, 10), "error", ProblemOf(err))
		case missing:
			if err := n.catchUp(); err != nil {
				return err
			}
			continue
		}
		for i := range found {
			if err := n.send(&found[i]); err != nil {
				return err
			}
		}
		if len(found) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-quiet.C:
			if err := n.out.still(); err != nil {
				return err
			}
		case <-n.ctx.Done():
			return context.Cause(n.ctx)
		}
	}
}

// catchUp reads what is not kept here from the daemon, up to now.
func (n *newsReader) catchUp() error {
	c, err := n.s.client(n.ctx)
	if err != nil {
		return err
	}
	p, follow := n.p, false
	from := n.seq
	p.FromSeq, p.Follow = &from, &follow
	sub, err := c.Subscribe(n.ctx, p)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	for {
		e, err := sub.Next(n.ctx)
		if errors.Is(err, io.EOF) {
			n.seq = max(n.seq, sub.Subscribed().NextSeq)
			return nil
		}
		if err != nil {
			return err
		}
		if err := n.send(&e); err != nil {
			return err
		}
	}
}

// Event is the data of an event of /events.
type Event struct {
	Time      time.Time       `json:"time"`
	SandboxID string          `json:"sandboxID,omitempty"`
	ProcessID string          `json:"processID,omitempty"`
	Data      json.RawMessage `json:"data,omitempty" doc:"depends on the kind"`
}

func (n *newsReader) send(e *api.Event) error {
	n.seq = e.Seq + 1
	always := e.Kind == api.EventGap || e.Kind == api.EventsLost
	if !always && !n.s.follows(n.ctx, e.Sandbox) {
		return nil
	}
	if !always && (n.p.Sandbox != "" && e.Sandbox != n.p.Sandbox || !wanted(n.p.Kinds, e.Kind)) {
		return nil
	}
	return n.out.send(strconv.FormatInt(e.Seq, 10), string(e.Kind), Event{Time: e.Time, SandboxID: e.Sandbox,
		ProcessID: e.Exec, Data: e.Data})
}

func wanted(kinds []api.EventKind, k api.EventKind) bool {
	for _, want := range kinds {
		if k == want {
			return true
		}
	}
	return len(kinds) == 0
}
