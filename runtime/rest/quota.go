package rest

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// room counts what is being made for clients, which no list has yet.
type room struct {
	mu     sync.Mutex
	making map[string]int // sandboxes, by client
}

// reserve takes room for n sandboxes of the client of a request, until release is called: then they are in the list, or
// were not made.
func (s *Server) reserve(ctx context.Context, n int) (release func(), err error) {
	c := clientOf(ctx)
	if c.Sandboxes == 0 {
		return func() {}, nil
	}
	if n > c.Sandboxes {
		return nil, api.Errorf(api.PermissionDenied, "client %s may have %d sandboxes, and never %d", c.Name,
			c.Sandboxes, n).WithHint("ask for fewer")
	}
	s.room.mu.Lock() // also while they are counted, so that each sees what the others have taken
	defer s.room.mu.Unlock()
	all, err := do(ctx, s, api.CallSandboxList, api.ListParams{Labels: map[string]string{labelMade: "1",
		labelClient: c.Name}})
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(all.Sandboxes, func(sb api.Sandbox) bool { return sb.State == api.Creating })
	if count := len(there) + s.room.making[c.Name]; count+n > c.Sandboxes {
		p := problem(http.StatusTooManyRequests, string(api.ResourceExhausted), "remove one, or wait until one ends",
			"client %s has %d sandboxes of the %d that it may have at once", c.Name, count, c.Sandboxes)
		p.retryAfter = nextEnd(there)
		return nil, p
	}
	if s.room.making == nil {
		s.room.making = map[string]int{}
	}
	s.room.making[c.Name] += n
	return func() {
		s.room.mu.Lock()
		defer s.room.mu.Unlock()
		s.room.making[c.Name] -= n
	}, nil
}

// nextEnd is the number of whole seconds until the first of some sandboxes ends by itself, -1 where none does.
func nextEnd(all []api.Sandbox) int {
	first := -1
	for i := range all {
		if end := all[i].Expires; end != nil {
			wait := max(1, int(math.Ceil(time.Until(*end).Seconds())))
			if first < 0 || wait < first {
				first = wait
			}
		}
	}
	return first
}

// mayKeep refuses one more snapshot than the client of a request may have.
func (s *Server) mayKeep(ctx context.Context) error {
	c := clientOf(ctx)
	if c.Snapshots == 0 {
		return nil
	}
	own, err := s.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	if len(own) < c.Snapshots {
		return nil
	}
	p := problem(http.StatusTooManyRequests, string(api.ResourceExhausted), "remove one",
		"client %s has %d snapshots of the %d that it may have", c.Name, len(own), c.Snapshots)
	p.retryAfter = -1 // no snapshot goes by itself
	return p
}
