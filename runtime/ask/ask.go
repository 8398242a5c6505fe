// Package ask is where connections wait that a sandbox's policy wants somebody asked about: it keeps the questions,
// tells of them, and hands each answer to those that wait for it. It knows nothing of networks: who holds the
// connection calls Ask, and whoever is a client of the daemon answers.
package ask

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Most is how many questions of one sandbox wait at once. More are answered no: nobody reads them, and somebody who
// reads many answers the last ones without thinking.
const Most = 20

// Config is what a Approvals needs.
type Config struct {
	// File keeps what was to be allowed always.
	File   string
	Events interface {
		Emit(kind api.EventKind, sandbox, exec string, data any)
	}
	Audit interface{ Note(e audit.Entry) }
	// Allow puts entries into the policy of a sandbox, and returns when that is in force.
	Allow  func(ctx context.Context, sandbox string, add api.NetLists) error
	Logger *slog.Logger
}

// Approvals has the questions of one daemon. Its methods may be called from any goroutine.
type Approvals struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	pending map[string]*question
	always  api.NetLists
}

// question is a connection that is asked about, or several to the same place.
type question struct {
	api.Question
	asked     time.Time
	waiters   int
	answering bool          // somebody's answer is being put in force
	done      chan struct{} // closed when there is an answer
	answer    api.NetAnswer
}

// Open makes a Approvals with what a daemon before has kept.
func Open(cfg Config) (*Approvals, error) {
	d := &Approvals{cfg: cfg, pending: map[string]*question{}}
	var err error
	d.always, err = readAlways(cfg.File)
	return d, err
}

// Ask asks about a connection of a sandbox and waits for the answer, until ctx ends: then it is "". Where it is
// NetSession or NetAlways, the sandbox's policy has the entry.
func (d *Approvals) Ask(ctx context.Context, sandbox string, e api.AskEvent) api.NetAnswer {
	entry := entryOf(e.HowToAllow)
	if d.isAlways(entry) {
		if err := d.cfg.Allow(ctx, sandbox, entry); err != nil {
			d.cfg.Logger.Warn("allow what is always allowed", "sandbox", sandbox, "err", err)
			return ""
		}
		return api.NetAlways
	}
	q := d.join(sandbox, e)
	if q == nil {
		return ""
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		d.leave(q)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return q.answer
}

// join finds the question about the same, or asks it. nil: there are too many.
func (d *Approvals) join(sandbox string, e api.AskEvent) *question {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, q := range d.pending {
		if q.Sandbox != sandbox {
			continue
		}
		if q.NetTarget == e.NetTarget {
			q.waiters++
			return q
		}
		n++
	}
	if n >= Most {
		return nil
	}
	e.ID = "ask_" + strings.ToLower(rand.Text()[:12])
	q := &question{Question: api.Question{Sandbox: sandbox, AskEvent: e}, asked: time.Now(), waiters: 1,
		done: make(chan struct{})}
	d.pending[e.ID] = q
	d.cfg.Events.Emit(api.EventNetworkAsk, sandbox, "", e)
	return q
}

// leave takes back a question that nobody waits for any more.
func (d *Approvals) leave(q *question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.waiters--; q.waiters > 0 || q.answering || d.pending[q.ID] != q {
		return
	}
	d.end(q, "", nil)
}

// end is the end of a question; mu is held.
func (d *Approvals) end(q *question, answer api.NetAnswer, by *api.AuditCaller) {
	delete(d.pending, q.ID)
	q.answer = answer
	close(q.done)
	told := api.AnsweredEvent{ID: q.ID, NetTarget: q.NetTarget, Answer: answer}
	d.cfg.Audit.Note(audit.Entry{Kind: api.AuditAnswered, Sandbox: q.Sandbox, By: by, Data: told})
	d.cfg.Events.Emit(api.EventNetworkAnswer, q.Sandbox, "", told)
}

// Answer answers a question. The first answer counts.
func (d *Approvals) Answer(ctx context.Context, p api.AnswerParams) error {
	q, err := d.take(p.ID)
	if err != nil {
		return err
	}
	err = d.enforce(ctx, q, p.Answer)
	d.mu.Lock()
	defer d.mu.Unlock()
	q.answering = false
	switch {
	case err == nil:
		d.end(q, p.Answer, audit.Caller(ctx))
	case q.waiters == 0: // they have gone meanwhile
		d.end(q, "", nil)
	}
	return err
}

func (d *Approvals) take(id string) (*question, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.pending[id]
	switch {
	case q == nil:
		return nil, api.Errorf(api.NotFound, "no question %.40q waits: it was answered, or is not waited for any more",
			id).WithField("id").
			WithHint("network.asks lists those that wait; network.update changes what a sandbox may reach at any time")
	case q.answering:
		return nil, api.Errorf(api.FailedPrecondition, "the question %s is just being answered by somebody else", id).
			WithField("id")
	}
	q.answering = true
	return q, nil
}

// enforce puts an answer in force that holds for more than what waits.
func (d *Approvals) enforce(ctx context.Context, q *question, answer api.NetAnswer) error {
	if answer != api.NetSession && answer != api.NetAlways {
		return nil
	}
	entry := entryOf(q.HowToAllow)
	if answer == api.NetAlways {
		if err := d.remember(entry); err != nil {
			return err
		}
	}
	return d.cfg.Allow(ctx, q.Sandbox, entry)
}

// List are the questions that wait, and what is always allowed.
func (d *Approvals) List() api.Asks {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*question, 0, len(d.pending))
	for _, q := range d.pending {
		all = append(all, q)
	}
	slices.SortFunc(all,
		func(a, b *question) int { return cmp.Or(a.asked.Compare(b.asked), strings.Compare(a.ID, b.ID)) })
	list := api.Asks{Pending: []api.Question{}, Always: api.NetLists{Allow: slices.Clone(d.always.Allow),
		AllowCIDRs: slices.Clone(d.always.AllowCIDRs)}}
	for _, q := range all {
		list.Pending = append(list.Pending, q.Question)
	}
	return list
}
