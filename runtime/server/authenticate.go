package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Tokens are the clients that the configuration names: SHA-256 digests of their tokens, in hexadecimal digits, by name.
// None means that whoever may connect is served.
type Tokens map[string]string

// client is whose token that is; "" when nobody's. It takes the same time for all of them.
func (t Tokens) client(token string) (name string) {
	sum := sha256.Sum256([]byte(token))
	for n, want := range t {
		if digest, err := hex.DecodeString(want); err == nil && subtle.ConstantTimeCompare(sum[:], digest) == 1 {
			name = n
		}
	}
	return name
}

// Authenticate puts other tokens in force. Connections of clients that are named no more are closed, with what they
// wait for. Those that came without a token where one is needed now are closed when the calls that they have made are
// answered: one of these may have brought the tokens.
func (s *Server) Authenticate(t Tokens) {
	s.tokens.Store(&t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown = slices.DeleteFunc(s.unknown, func(u *stranger) bool {
		valid := s.conns[u.ch] != nil && s.conns[u.ch].valid(t)
		if valid {
			u.known()
		}
		return valid
	})
	for ch, id := range s.conns {
		switch {
		case id.valid(t):
		case id.proof.Load() != nil:
			ch.Abort(errNoToken)
		default:
			ch.Drain()
		}
	}
}

// errNoToken ends connections.
var errNoToken = errors.New("the configuration names no token of this client any more")

// A connection that has to show a token may send short lines until it has, which fit into the buffer that each has, for
// showTime at most, and there are maxUnknown of them at a time: the oldest makes room for another one. So nobody
// without a token takes the connections, or the memory, of those who have one.
const (
	shortLine  = 32 << 10
	maxUnknown = 64
	showTime   = 10 * time.Second
)

var (
	errSlow    = errors.New("no token was shown in time")
	errCrowded = errors.New("others have come that have to show a token, too")
)

// identity is as which client a connection has authenticated.
type identity struct {
	exempt bool // a private daemon's lease
	proof  atomic.Pointer[proof]
}

// await gives a connection showTime to show a token, where one is needed. known is to be called when it has, and when
// it ends.
func (s *Server) await(ch *jsonrpc.Channel, id *identity, uid uint32) (known func()) {
	if id.valid(*s.tokens.Load()) {
		return func() {}
	}
	ch.SetMaxLine(shortLine)
	u := &stranger{ch: ch, uid: uid}
	late := time.AfterFunc(s.showTime, func() {
		if !id.valid(*s.tokens.Load()) { // nobody needs one any more, perhaps
			ch.Abort(errSlow)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unknown = append(s.unknown, u); len(s.unknown) > maxUnknown {
		s.evict()
	}
	u.known = sync.OnceFunc(func() {
		late.Stop()
		ch.SetMaxLine(jsonrpc.MaxLine)
	})
	return func() {
		u.known()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unknown = slices.DeleteFunc(s.unknown, func(other *stranger) bool { return other == u })
	}
}

// stranger is a connection that has to show a token.
type stranger struct {
	ch    *jsonrpc.Channel
	uid   uint32
	known func() // it need not, or has
}

// evict ends the oldest connection of the user who has most of them: others' are not in the way. It is called with s.mu
// held.
func (s *Server) evict() {
	count := map[uint32]int{}
	for _, u := range s.unknown {
		count[u.uid]++
	}
	at := 0
	for i, u := range s.unknown {
		if count[u.uid] > count[s.unknown[at].uid] {
			at = i
		}
	}
	s.unknown[at].ch.Abort(errCrowded)
	s.unknown = slices.Delete(s.unknown, at, at+1)
}

// proof is of one token.
type proof struct {
	client, digest string
	caller         *api.AuditCaller // with the client's name; nil where nothing is recorded
}

// context is that of a call, for the records of audit logs.
func (id *identity) context(ctx context.Context) context.Context {
	if p := id.proof.Load(); p != nil && p.caller != nil {
		return audit.WithCaller(ctx, p.caller)
	}
	return ctx
}

// valid says that a connection may make calls.
func (id *identity) valid(t Tokens) bool {
	if len(t) == 0 || id.exempt {
		return true
	}
	p := id.proof.Load()
	return p != nil && t[p.client] == p.digest
}

// admit refuses calls of a connection that has not shown a token where one is needed.
func (d *dispatcher) admit(method string) error {
	if method == api.MethodAuthenticate || d.id.valid(*d.s.tokens.Load()) {
		return nil
	}
	return api.Errorf(api.PermissionDenied,
		"this daemon serves clients with a token only, and this one has shown none").WithOp(method).
		WithHint("set HUTCH_TOKEN or HUTCH_TOKEN_FILE, or call system.authenticate first; `hutch config token NAME` makes a token")
}

// maxWrong is how many wrong tokens a connection may show.
const maxWrong = 5

// authenticate is system.authenticate.
func authenticate(ctx context.Context, c *Call, p api.AuthenticateParams) (api.Authenticated, error) {
	if err := p.Validate(); err != nil {
		return api.Authenticated{}, err
	}
	d := c.dispatcher
	t := *d.s.tokens.Load()
	if len(t) == 0 {
		return api.Authenticated{}, nil
	}
	name := t.client(p.Token)
	if name == "" {
		if d.wrong.Add(1) >= maxWrong {
			c.AfterSent(func() { d.ch.Abort(errNoToken) })
		}
		return api.Authenticated{}, api.Errorf(api.PermissionDenied, "that is no token of this daemon's").
			WithField("token").
			WithHint("the configuration names the tokens that are: tokens, in the file that `hutch config path` prints")
	}
	if old := d.id.proof.Load(); old != nil && old.client != name {
		return api.Authenticated{}, api.Errorf(api.FailedPrecondition, "this connection is client %s already",
			old.client).WithHint("open another one")
	}
	shown := &proof{client: name, digest: t[name]}
	if caller := audit.Caller(ctx); caller != nil {
		named := *caller // records that were made hold on to the other one
		named.Client = name
		shown.caller = &named
	}
	d.id.proof.Store(shown)
	d.known()
	return api.Authenticated{Client: name}, nil
}
