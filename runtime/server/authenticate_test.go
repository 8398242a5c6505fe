package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/jsonrpc"
	"github.com/hutch-sh/hutch/runtime/api"
)

func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TestTokens: with tokens no method but one is for who has shown none; each call of a client's has its name; and a
// token that is taken away ends the connections that came with it, and no others.
func TestTokens(t *testing.T) {
	const ci, me = "ci-0123456789abcdef", "me-0123456789abcdef"
	names := make(chan string, 10)
	s := newServer(t, &engines{info: func(ctx context.Context, _ Actor) (api.Info, error) {
		names <- audit.Caller(ctx).Client
		return api.Info{}, nil
	}})
	s.Authenticate(Tokens{"ci": digest(ci), "me": digest(me)})
	connect := func() *peer {
		return serveIn(audit.WithCaller(context.Background(), &api.AuditCaller{UID: 7}), t, s, Actor{UID: 7})
	}
	nobody := connect()
	for i, m := range api.Methods {
		if m.Name == api.MethodAuthenticate {
			continue
		}
		nobody.send(request(i, m.Name, `{}`))
		if m := nobody.recv(); m.Error == nil || m.Error.Data.Hint == "" ||
			!strings.Contains(m.Error.Message, "with a token only") {
			t.Errorf("%s: %+v", api.Methods[i].Name, m)
		}
	}
	show := func(p *peer, id int, token string) {
		p.send(request(id, api.MethodAuthenticate, fmt.Sprintf(`{"token":%q}`, token)))
	}
	first, second := connect(), connect()
	show(first, 1, ci)
	if got := string(first.recvOK("1")); !strings.Contains(got, `"ci"`) {
		t.Error(got)
	}
	first.alive()
	show(first, 2, me) // a connection is one client's
	first.recv()
	show(second, 1, me)
	second.recvOK("1")
	second.alive()
	if a, b := <-names, <-names; a != "ci" || b != "me" {
		t.Errorf("%q, %q", a, b)
	}
	s.Authenticate(Tokens{"me": digest(me)})
	first.eof()
	second.alive()
	s.Authenticate(Tokens{"me": digest(ci)}) // another token of the same name
	second.eof()
	// Wrong ones, so many times.
	wrong := connect()
	for i := range maxWrong {
		show(wrong, i, "no-0123456789abcdef")
		if m := wrong.recv(); m.Error == nil || !strings.Contains(m.Error.Message, "no token of this daemon") {
			t.Errorf("%+v", m)
		}
	}
	wrong.eof()
	// Nobody needs one any more; who has come without when there were none may finish.
	s.Authenticate(nil)
	free := connect()
	free.alive()
	s.Authenticate(Tokens{"me": digest(me)})
	free.eof()
	// A private daemon is its owner's.
	serveAs(t, s, Actor{UID: 7, Private: true}).send(request(1, api.MethodSandboxList, `{}`))
}

// TestUnknown: who has not shown a token where one is needed takes neither the connections nor the memory of those who
// have.
func TestUnknown(t *testing.T) {
	const token = "me-0123456789abcdef"
	s := newServer(t, &engines{info: func(context.Context, Actor) (api.Info, error) { return api.Info{}, nil }})
	s.Authenticate(Tokens{"me": digest(token)})
	show := func(p *peer) {
		t.Helper()
		p.send(request(1, api.MethodAuthenticate, fmt.Sprintf(`{"token":%q}`, token)))
		p.recvOK("1")
	}
	known := serve(t, s)
	big := request(2, api.MethodSandboxList, `{"label":"`+strings.Repeat("x", shortLine)+`"}`)
	known.send(big)
	if e := known.recvErr("2", jsonrpc.CodeInvalidRequest); !strings.Contains(e.Message, "longer than 32768 bytes") {
		t.Errorf("%+v", e)
	}
	show(known)
	known.send(big)
	if m := known.recv(); m.Error != nil && strings.Contains(m.Error.Message, "longer than") {
		t.Errorf("with a token: %+v", m.Error)
	}
	other := serveAs(t, s, Actor{UID: 8})
	other.send(request(0, api.MethodSandboxList, `{}`))
	other.recv()
	var unknown []*peer
	for i := range maxUnknown {
		p := serve(t, s)
		p.send(request(i, api.MethodSandboxList, `{}`))
		p.recv() // it is being served: they come one after the other
		unknown = append(unknown, p)
	}
	unknown[0].eof() // with the other user's they were too many
	show(unknown[maxUnknown-1])
	show(other)
	known.alive()
	// Who waits when nobody needs one any more goes on.
	s.Authenticate(nil)
	unknown[1].send(big)
	if m := unknown[1].recv(); m.Error != nil && strings.Contains(m.Error.Message, "longer than") {
		t.Errorf("without tokens: %+v", m.Error)
	}

	hasty := newServer(t, &engines{})
	hasty.showTime = time.Millisecond
	hasty.Authenticate(Tokens{"me": digest(token)})
	serve(t, hasty).eof()
}
