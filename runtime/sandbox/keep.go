package sandbox

import (
	"context"

	"github.com/hutch-sh/hutch/runtime/api"
)

// KeptExec is an exec that is kept for later.
type KeptExec struct {
	Name string
	Exec string
	User string
	Argv []string
}

// KeepExec starts a command under a name, to be used again and again: its stdin is open, it has no timeout, and it does
// not keep its sandbox from being idle. The next hutchd knows it, too.
func (m *Manager) KeepExec(ctx context.Context, p api.ExecParams, name string) (api.StartResult, error) {
	s, err := m.find(p.Sandbox)
	if err != nil {
		return api.StartResult{}, err
	}
	if !s.addShell(1) {
		return api.StartResult{}, api.Errorf(api.ResourceExhausted, "%d shells and contexts are open in sandbox %s",
			maxShells, s.id).
			WithHint("close some: shell.list, shell.close, code.contexts, code.end_context")
	}
	r, err := m.startExec(ctx, &ExecRequest{Params: p, Started: func(string, int) {}, keep: name}, true)
	if err != nil {
		s.addShell(-1)
		s.rearmIdle(m)
		_, err := notStarted(ctx, r, err)
		return api.StartResult{}, err
	}
	m.watchKept(r)
	m.watchers.Go(r.follow)
	return api.StartResult{Exec: r.id, PID: r.exec.PID}, nil
}

// watchKept stops counting a kept exec when it is over.
func (m *Manager) watchKept(r *running) {
	m.watchers.Go(func() {
		<-r.done
		r.s.addShell(-1)
		r.s.rearmIdle(m)
	})
}

// KeptExecs are those of a sandbox that run.
func (m *Manager) KeptExecs(ref string) ([]KeptExec, error) {
	s, err := m.find(ref)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []KeptExec
	for _, r := range s.execs {
		if r.kept != "" {
			list = append(list, KeptExec{Name: r.kept, Exec: r.id, User: r.params.User, Argv: r.params.Argv})
		}
	}
	return list, nil
}

// Use lets a sandbox that is paused go on, and keeps it from being idle until done is called.
func (m *Manager) Use(ctx context.Context, ref string) (done func(), err error) {
	s, err := m.find(ref)
	if err != nil {
		return nil, err
	}
	leave, err := m.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	s.beginCall()
	leave()
	return func() { s.endCall(m) }, nil
}
