package code

import (
	"context"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code/interp"
)

// kernelKey names a context.
type kernelKey struct{ sandbox, user, language, name string }

// label is the name under which the exec is kept.
func (k kernelKey) label() string { return k.language + " " + k.name }

// kernel is the interpreter of a context.
type kernel struct {
	turn chan struct{} // held by whoever runs something in it

	// Whoever has the turn may touch what follows.
	*interp.Interpreter      // nil of one that has not been started
	over                bool // nobody finds it any more
}

// start starts an interpreter; without a key, for one run.
func (r *Runner) start(ctx context.Context, p *api.CodeParams, key kernelKey) (*interp.Interpreter, error) {
	token := interp.NewToken()
	e := api.ExecParams{Sandbox: p.Sandbox, Argv: interp.Argv(p.Language, token, false), User: p.User, Env: p.Env,
		Cwd: p.Cwd}
	name := key.label()
	if key == (kernelKey{}) {
		name = "fresh"
	}
	ex, err := r.boxes.Execs.Keep(ctx, e, name)
	if err != nil {
		return nil, noInterpreter(err, p.Language, e.Argv[0])
	}
	return interp.New(ex.Exec, token), nil
}

// killTimeout bounds how long an interpreter may take to die.
const killTimeout = 20 * time.Second

// kill ends an interpreter and all that it has started.
func (r *Runner) kill(ctx context.Context, exec string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	_, _ = r.boxes.Execs.Kill(ctx, api.ExecRef{Exec: exec}) // one that has ended is what is wanted, too
}

// kept runs code in its context, which is made if there is none.
func (r *Runner) kept(ctx context.Context, p *api.CodeParams, tell teller) (api.CodeResult, error) {
	key := kernelKey{p.Sandbox, p.User, p.Language, p.Context}
	if key.name == "" {
		key.name = "default"
	}
	for {
		k := r.find(key)
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return api.CodeResult{}, context.Cause(ctx)
		}
		res, again, err := r.inKernel(ctx, p, key, k, tell)
		<-k.turn
		if !again {
			return res, err
		}
	}
}

// find is the kernel of a context, which may not have been started.
func (r *Runner) find(key kernelKey) *kernel {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.kernels[key]
	if k == nil {
		r.sweep()
		k = &kernel{turn: make(chan struct{}, 1)}
		r.kernels[key] = k
	}
	return k
}

// sweep forgets the kernels of sandboxes that are gone; mu is held.
func (r *Runner) sweep() {
	for key, k := range r.kernels {
		select {
		case k.turn <- struct{}{}:
			if _, err := r.boxes.Get(key.sandbox); err != nil {
				k.over = true
				delete(r.kernels, key)
			}
			<-k.turn
		default: // it runs something
		}
	}
}

func (r *Runner) drop(key kernelKey, k *kernel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kernels[key] == k {
		delete(r.kernels, key)
	}
}

// inKernel runs code in a kernel whose turn the caller has; again where that was over before.
func (r *Runner) inKernel(ctx context.Context, p *api.CodeParams, key kernelKey, k *kernel,
	tell teller) (res api.CodeResult, again bool, err error) {
	if k.over {
		return res, true, nil
	}
	begun := false
	if k.Interpreter == nil {
		if begun, err = r.begin(ctx, p, key, k); err != nil {
			k.over = true
			r.drop(key, k)
			return res, false, err
		}
	}
	// between two runs
	if ex, err := r.boxes.Execs.Get(api.ExecRef{Exec: k.Exec}); err != nil || ex.State != api.ExecRunning {
		k.over = true
		r.drop(key, k)
		return res, true, nil
	}
	res, err = r.run(ctx, p, k.Interpreter, tell)
	if k.over = k.Broken; k.over {
		r.drop(key, k)
		r.kill(ctx, k.Exec)
	}
	res.Context, res.Begun = key.name, begun
	return res, false, err
}

// run has an interpreter run a piece of code, and adds what that was refused.
func (r *Runner) run(ctx context.Context, p *api.CodeParams, k *interp.Interpreter,
	tell teller) (api.CodeResult, error) {
	k.Tell = tell
	r.boxes.Execs.BeginRefused(k.Exec)
	res, err := k.Run(ctx, r.boxes.Execs, p)
	if err == nil && !k.Broken {
		res.Denials, res.Failures, res.Policy = r.boxes.Execs.TakeRefused(k.Exec, res.Error != nil)
	}
	return res, err
}

// begin starts the interpreter of a context, or takes over the one that a hutchd before has started.
func (r *Runner) begin(ctx context.Context, p *api.CodeParams, key kernelKey, k *kernel) (begun bool, err error) {
	old, err := r.boxes.Execs.Kept(p.Sandbox)
	if err != nil {
		return false, err
	}
	for _, e := range old {
		if e.Name != key.label() || e.User != key.user || len(e.Argv) == 0 {
			continue
		}
		ex, err := r.boxes.Execs.Get(api.ExecRef{Exec: e.Exec})
		if err != nil || ex.State != api.ExecRunning {
			continue
		}
		k.Interpreter = interp.Resume(e.Exec, e.Argv[len(e.Argv)-1], ex.StdoutBytes, ex.StderrBytes)
		return false, nil
	}
	if k.Interpreter, err = r.start(ctx, p, key); err != nil {
		return false, err
	}
	return true, nil
}

// Contexts lists the interpreters that are kept in a sandbox.
func (r *Runner) Contexts(ref string) ([]api.CodeContext, error) {
	execs, err := r.boxes.Execs.Kept(ref)
	if err != nil {
		return nil, err
	}
	var list []api.CodeContext
	for _, e := range execs {
		if language, name, ok := strings.Cut(e.Name, " "); ok {
			list = append(list, api.CodeContext{Language: language, Context: name, Exec: e.Exec, User: e.User})
		}
	}
	return list, nil
}

// EndContext ends the interpreters of a context, whosever they are; variables are gone.
func (r *Runner) EndContext(ctx context.Context, p api.CodeContextParams) error {
	list, err := r.Contexts(p.Sandbox)
	if err != nil {
		return err
	}
	if p.Context == "" {
		p.Context = "default"
	}
	ended := false
	for _, c := range list {
		if c.Language == p.Language && c.Context == p.Context {
			r.kill(ctx, c.Exec)
			ended = true
		}
	}
	if !ended {
		return api.Errorf(api.NotFound, "no context %q of %s", p.Context, p.Language).
			WithHint("code.contexts lists those of a sandbox")
	}
	return nil
}
