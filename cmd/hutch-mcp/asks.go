package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/mcpapi"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// asks puts to the client's user what sandboxes of the session want to connect to (--ask), where the client has
// elicitation. Others, and hutch network answer, may answer as well: the first answer counts.
type asks struct {
	b    *boxes
	turn chan struct{} // of capacity 1: somebody is asked one question at a time

	mu      sync.Mutex // guards what follows
	session *mcp.ServerSession
	calls   []context.Context // under way, the latest last: over HTTP a question goes to the client beside the answer
	events  *client.Events    // nil where nobody is asked
	of      *client.Client    // whose they are
	open    map[string]context.CancelFunc
}

// mayAsk says whether sandboxes of a server's may ask: one that was there before may.
func mayAsk(cfg *mcpapi.Config) bool { return cfg.Spec.Network.Ask || cfg.Sandbox != "" }

// askVersions are the versions of the protocol that let a server ask while a call goes on. Since 2026-07-28 a call ends
// with the question and is made again with the answer, which a command that waits for a connection cannot.
var askVersions = slices.DeleteFunc(mcp.SupportedProtocolVersions(), func(v string) bool { return v >= "2026-07-28" })

func newAsks(b *boxes) *asks {
	return &asks{b: b, turn: make(chan struct{}, 1), open: map[string]context.CancelFunc{}}
}

// call notes a call under way. Who does calls done after it.
func (a *asks) call(ctx context.Context, s *mcp.ServerSession) (done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.session = s
	a.calls = append(a.calls, ctx)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls = slices.DeleteFunc(a.calls, func(c context.Context) bool { return c == ctx })
	}
}

// elicits says whether a client can be asked.
func elicits(s *mcp.ServerSession) bool {
	p := s.InitializeParams()
	if p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil {
		return false
	}
	e := p.Capabilities.Elicitation
	return e.Form != nil || e.URL == nil
}

// watch has questions of the session's sandboxes put to its client, from before the first can come. It is called
// before a sandbox is made or used, with the boxes' lock held.
func (a *asks) watch(ctx context.Context, c *client.Client) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !mayAsk(&a.b.cfg) || a.session == nil || !elicits(a.session) || a.of == c {
		return nil
	}
	events, err := c.Subscribe(ctx,
		api.SubscribeParams{Kinds: []api.EventKind{api.EventNetworkAsk, api.EventNetworkAnswer}})
	if err != nil {
		return err
	}
	a.events, a.of = events, c // the old ones have ended with their connection
	a.b.wg.Go(func() {
		defer events.Close()
		for e, err := range events.All(a.b.session) {
			if err != nil {
				return // the connection is gone, or the session is over
			}
			a.event(c, &e)
		}
	})
	return nil
}

// event takes what happened to a question.
func (a *asks) event(c *client.Client, e *api.Event) {
	switch e.Kind {
	case api.EventNetworkAsk:
		var q api.AskEvent
		if json.Unmarshal(e.Data, &q) != nil || !a.b.mine(e.Sandbox) || e.Sandbox == "" {
			return
		}
		ctx, cancel := context.WithDeadline(a.b.session, q.Until)
		a.mu.Lock()
		a.open[q.ID] = cancel
		a.mu.Unlock()
		a.b.wg.Go(func() {
			defer a.close(q.ID)
			if err := a.ask(ctx, c, &q); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "hutch-mcp: the client was not asked about %s: %v; hutch network asks lists it\n",
					line(q.Where()), err)
			}
		})
	case api.EventNetworkAnswer:
		var over api.AnsweredEvent
		if json.Unmarshal(e.Data, &over) == nil {
			a.close(over.ID)
		}
	}
}

// close ends a question.
func (a *asks) close(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.open[id]; cancel != nil {
		cancel()
		delete(a.open, id)
	}
}

// ask asks one question and gives the answer on. A dialogue that was closed without an answer leaves it to others.
func (a *asks) ask(ctx context.Context, c *client.Client, q *api.AskEvent) error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil
	}
	a.mu.Lock()
	session, way := a.session, context.Background()
	if n := len(a.calls); n > 0 {
		way = context.WithoutCancel(a.calls[n-1]) // how it reaches the client; it ends with the question
	}
	a.mu.Unlock()
	way, cancel := context.WithCancelCause(way)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	r, err := session.Elicit(way, &mcp.ElicitParams{
		Mode: "form",
		Message: fmt.Sprintf("The sandbox wants to connect to %s. Once, for this session or always by %s, or deny?",
			line(q.Where()), line(q.HowToAllow)),
		RequestedSchema: map[string]any{
			"type": "object", "required": []string{"answer"},
			"properties": map[string]any{"answer": map[string]any{
				"type": "string", "title": "Answer", "enum": api.NetAnswers,
				"description": "once: this connection. session: as long as the sandbox is there. always: also for sandboxes to come. deny: not in this sandbox.",
			}},
		},
	})
	if err != nil {
		return err
	}
	answer := api.NetDeny
	switch r.Action {
	case "accept":
		text, _ := r.Content["answer"].(string)
		answer = api.NetAnswer(text)
	case "decline":
	default:
		return nil
	}
	err = c.Answer(ctx, api.AnswerParams{ID: q.ID, Answer: answer})
	if api.ErrorCode(err) == api.NotFound { // somebody else was faster
		err = nil
	}
	return err
}

// line is a text of the sandbox's choice on one line.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
}
