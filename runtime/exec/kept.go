package exec

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Kept is an exec that is kept for later.
type Kept struct {
	Name string
	Exec string
	User string
	Argv []string
}

// Keep starts a command under a name, to be used again and again: its stdin is open, it has no timeout, and it does
// not keep its sandbox from being idle. The next hutchd knows it, too.
func (t *Table) Keep(ctx context.Context, p api.ExecParams, name string) (api.StartResult, error) {
	s, err := t.cfg.Sandboxes.Find(p.Sandbox)
	if err != nil {
		return api.StartResult{}, err
	}
	set := s.Commands()
	if !set.AddKept(1) {
		return api.StartResult{}, api.Errorf(api.ResourceExhausted, "%d shells and contexts are open in sandbox %s",
			MaxKept, s.ID()).
			WithHint("close some: shell.list, shell.close, code.contexts, code.end_context")
	}
	s.BeginCall() // until it is there
	defer s.EndCall()
	r, err := t.startExec(ctx, &Request{Params: p, Started: func(string, int) {}, keep: name}, true)
	if err != nil {
		set.AddKept(-1)
		_, err := StartError(ctx, err)
		return api.StartResult{}, err
	}
	watchKept(r)
	t.cfg.Background.Go(r.follow)
	return api.StartResult{Exec: r.id, PID: r.PID()}, nil
}

// watchKept stops counting a kept exec when it is over.
func watchKept(r *Exec) {
	r.t.cfg.Background.Go(func() {
		<-r.done
		r.set.AddKept(-1)
	})
}

// Kept are those of a sandbox that run.
func (t *Table) Kept(ref string) ([]Kept, error) {
	s, err := t.cfg.Sandboxes.Find(ref)
	if err != nil {
		return nil, err
	}
	var list []Kept
	for _, r := range s.Commands().Running() {
		if r.kept != "" {
			list = append(list, Kept{Name: r.kept, Exec: r.id, User: r.params.User, Argv: r.params.Argv})
		}
	}
	return list, nil
}
