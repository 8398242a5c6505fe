package code

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed" // drivers
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

//go:embed drivers/driver.py
var pythonDriver string

//go:embed drivers/driver.js
var nodeDriver string

// drivers are how the languages with contexts are started; the token follows.
var drivers = map[string][]string{
	"python":     {"python3", "-u", "-c", pythonDriver},
	"javascript": {"node", "-e", nodeDriver, "--"},
}

// kernelKey names a context.
type kernelKey struct{ sandbox, user, language, name string }

// label is the name under which the exec is kept.
func (k kernelKey) label() string { return k.language + " " + k.name }

// kernel is an interpreter that runs.
type kernel struct {
	exec  string
	token string
	turn  chan struct{} // held by whoever runs something in it

	// Whoever has the turn may touch what follows.
	next   int64    // the number of the next run
	read   [2]int64 // how much of stdout and stderr has been read
	broken bool     // it has ended, or does not answer
}

func newToken() string { return strings.ToLower(rand.Text()) }

// start starts an interpreter; without a key, for one run.
func (r *Runner) start(ctx context.Context, p *api.CodeParams, key kernelKey) (*kernel, error) {
	k := &kernel{token: newToken(), turn: make(chan struct{}, 1), next: 1}
	e := api.ExecParams{Sandbox: p.Sandbox, Argv: append(append([]string{}, drivers[p.Language]...), k.token), User: p.User, Env: p.Env, Cwd: p.Cwd}
	name := key.label()
	if key == (kernelKey{}) {
		name = "fresh"
	}
	ex, err := r.boxes.KeepExec(ctx, e, name)
	if err != nil {
		return nil, noInterpreter(err, p.Language, drivers[p.Language][0])
	}
	k.exec = ex.Exec
	return k, nil
}

// killTimeout bounds how long an interpreter may take to die.
const killTimeout = 20 * time.Second

// kill ends an interpreter and all that it has started.
func (r *Runner) kill(ctx context.Context, k *kernel) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	_, _ = r.boxes.KillExec(ctx, api.ExecRef{Exec: k.exec}) // one that has ended is what is wanted, too
}

// kept runs code in its context, which is made if there is none.
func (r *Runner) kept(ctx context.Context, p *api.CodeParams) (api.CodeResult, error) {
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
		res, again, err := r.inKernel(ctx, p, key, k)
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
				k.broken = true
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
func (r *Runner) inKernel(ctx context.Context, p *api.CodeParams, key kernelKey, k *kernel) (res api.CodeResult, again bool, err error) {
	if k.broken {
		return res, true, nil
	}
	begun := false
	if k.exec == "" {
		if begun, err = r.begin(ctx, p, key, k); err != nil {
			k.broken = true
			r.drop(key, k)
			return res, false, err
		}
	}
	if ex, err := r.boxes.Exec(api.ExecRef{Exec: k.exec}); err != nil || ex.State != api.ExecRunning { // between two runs
		k.broken = true
		r.drop(key, k)
		return res, true, nil
	}
	res, err = k.run(ctx, r.boxes, p)
	if k.broken {
		r.drop(key, k)
		r.kill(ctx, k)
	}
	res.Context, res.Begun = key.name, begun
	return res, false, err
}

// begin starts the interpreter of a context, or takes over the one that a hutchd before has started.
func (r *Runner) begin(ctx context.Context, p *api.CodeParams, key kernelKey, k *kernel) (begun bool, err error) {
	old, err := r.boxes.KeptExecs(p.Sandbox)
	if err != nil {
		return false, err
	}
	for _, e := range old {
		if e.Name != key.label() || e.User != key.user || len(e.Argv) == 0 {
			continue
		}
		ex, err := r.boxes.Exec(api.ExecRef{Exec: e.Exec})
		if err != nil || ex.State != api.ExecRunning {
			continue
		}
		// Numbers of runs before that may still answer are below the time.
		k.exec, k.token, k.next = e.Exec, e.Argv[len(e.Argv)-1], time.Now().Unix()
		k.read = [2]int64{ex.StdoutBytes, ex.StderrBytes}
		return false, nil
	}
	fresh, err := r.start(ctx, p, key)
	if err != nil {
		return false, err
	}
	k.exec, k.token, k.next, k.read = fresh.exec, fresh.token, fresh.next, fresh.read
	return true, nil
}

// Contexts lists the interpreters that are kept in a sandbox.
func (r *Runner) Contexts(ref string) ([]api.CodeContext, error) {
	execs, err := r.boxes.KeptExecs(ref)
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
			r.kill(ctx, &kernel{exec: c.Exec})
			ended = true
		}
	}
	if !ended {
		return api.Errorf(api.NotFound, "no context %q of %s", p.Context, p.Language).WithHint("code.contexts lists those of a sandbox")
	}
	return nil
}

// request is what a driver reads.
type request struct {
	ID             int64    `json:"id"`
	Code           string   `json:"code"`
	AllowedImports []string `json:"allowed_imports,omitempty"`
}

// reply is what a driver answers: the sandbox's word.
type reply struct {
	ID        int64          `json:"id"`
	Text      string         `json:"text"`
	Error     *api.CodeError `json:"error"`
	Artifacts artifacts      `json:"artifacts"`
}

// artifacts are a driver's. A short text may hold millions: those over maxCount are not decoded.
type artifacts []api.Artifact

// UnmarshalJSON implements json.Unmarshaler.
func (a *artifacts) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return err
	}
	for d.More() && len(*a) < maxCount {
		var one api.Artifact
		if err := d.Decode(&one); err != nil {
			return err
		}
		*a = append(*a, one)
	}
	return nil
}

var (
	errTimeout = errors.New("the code's time is over")
	errSilent  = errors.New("the interpreter does not answer")
)

// grace is how long code may take to end by itself once it is interrupted.
const grace = 2 * time.Second

// run runs code; the caller has the turn. The kernel is broken where it did not give it back.
func (k *kernel) run(ctx context.Context, boxes boxes, p *api.CodeParams) (api.CodeResult, error) {
	id := k.next
	k.next++
	line, err := json.Marshal(request{ID: id, Code: p.Code, AllowedImports: p.AllowedImports})
	if err != nil {
		return api.CodeResult{}, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(p.TimeoutS*float64(time.Second)), errTimeout)
	defer cancel()
	// Until its reply came, nobody knows where its output ends.
	k.broken = true
	err = boxes.Write(limited, api.WriteParams{Exec: k.exec, Data: string(line) + "\n"})
	res := api.CodeResult{Exec: k.exec, Verdict: api.VerdictOK}
	out := &output{k: k, id: id, limit: p.OutputBytes}
	if err == nil {
		err = out.follow(limited, boxes)
	}
	if err != nil && limited.Err() != nil {
		err = k.interrupt(ctx, boxes, out, context.Cause(limited))
		res.TimedOut = errors.Is(context.Cause(limited), errTimeout)
	}
	k.broken = err != nil
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	res.Stdout, res.Stderr, res.Truncated = out.text(0), out.text(1), out.cut
	if err != nil {
		return k.lost(ctx, boxes, res, err)
	}
	out.reply.into(&res)
	if res.Error != nil {
		res.Verdict = api.VerdictNonzero
	}
	if res.TimedOut {
		res.Verdict = api.VerdictTimeoutWall
	}
	return res, nil
}

// interrupt ends what runs, as Ctrl-C does, and waits a little for the reply.
func (k *kernel) interrupt(ctx context.Context, boxes boxes, out *output, why error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), grace, why)
	defer cancel()
	if err := boxes.Signal(ctx, api.SignalParams{Exec: k.exec, Signal: "SIGINT"}); err != nil {
		return err
	}
	return out.follow(ctx, boxes)
}

// lost is the result of a run whose interpreter has ended, or is killed now.
func (k *kernel) lost(ctx context.Context, boxes boxes, res api.CodeResult, why error) (api.CodeResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	end, err := boxes.KillExec(ctx, api.ExecRef{Exec: k.exec})
	if err != nil {
		return res, errors.Join(why, err)
	}
	res.ExitCode, res.Verdict, res.Denials = end.ExitCode, end.Verdict, end.Denials
	res.Error = ended(&end)
	switch {
	case res.TimedOut:
		res.Verdict = api.VerdictTimeoutWall
		res.Error = &api.CodeError{Name: "Timeout", Value: "the code took longer than its timeout_s and did not stop when it was interrupted: its interpreter was killed"}
	case errors.Is(why, errSilent):
		res.Error = &api.CodeError{Name: "Silent", Value: "what the interpreter answered is no answer: it was killed"}
	}
	if res.Verdict == api.VerdictOK {
		res.Verdict = api.VerdictNonzero
	}
	return res, nil
}

// into makes a result of what a driver says.
func (r *reply) into(res *api.CodeResult) {
	res.Text, res.Error = valid(r.Text), r.Error
	if e := res.Error; e != nil {
		e.Name, e.Value, e.Traceback = valid(e.Name), valid(e.Value), valid(e.Traceback)
	}
	left := int64(maxArtifacts)
	for _, a := range r.Artifacts {
		switch a.Kind {
		case "figure", "value", "table":
		default:
			continue
		}
		a.MIMEType, a.Path, a.Size = valid(a.MIMEType), "", max(a.Size, 0)
		if n := int64(len(a.Data)); n > left {
			a.Data, res.Truncated = "", true
		} else {
			left -= n
		}
		if a.Data == "" && a.Size > 0 {
			res.Truncated = true
		}
		res.Artifacts = append(res.Artifacts, a)
	}
}

// Bounds of the artifacts of one result, in bytes of Data and in number.
const (
	maxArtifacts = 8 << 20
	maxCount     = 100
)
