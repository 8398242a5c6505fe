// Package code runs pieces of code in sandboxes, as notebooks do: code.run. An interpreter may be kept, so that
// variables persist from one run to the next; what it shows beside text comes back as artifacts.
//
// A kept interpreter is an exec that runs a small program of hutch's (drivers) in the sandbox's own Python or Node. It
// is the sandbox's: what it answers is as hostile as anything in there, and says nothing but what the caller has asked
// the sandbox for.
package code

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code/interp"
	"github.com/hutch-sh/hutch/runtime/exec"
	"github.com/hutch-sh/hutch/runtime/history"
	"github.com/hutch-sh/hutch/runtime/sandbox"
)

// Runner runs code in the sandboxes of one daemon.
type Runner struct {
	boxes *sandbox.Manager
	scan  Scanner

	mu      sync.Mutex // guards kernels
	kernels map[kernelKey]*kernel
}

// Scanner looks through code.
type Scanner interface {
	Scan(ctx context.Context, p api.ScanParams) (api.ScanResult, error)
}

// NewRunner makes a Runner.
func NewRunner(boxes *sandbox.Manager, scan Scanner) *Runner {
	return &Runner{boxes: boxes, scan: scan, kernels: map[kernelKey]*kernel{}}
}

// Run runs code and returns when it is done. What a runtime's sandbox, which who is the user of, was is gone then.
func (r *Runner) Run(ctx context.Context, who sandbox.Caller, p api.CodeParams) (res api.CodeResult, err error) {
	if p.TimeoutS == 0 {
		p.TimeoutS = api.DefaultCodeTimeoutS
	}
	if p.OutputBytes == 0 {
		p.OutputBytes = api.DefaultCodeOutput
	}
	if err := r.checkImports(ctx, &p); err != nil {
		return api.CodeResult{}, err
	}
	if p.Runtime != "" {
		box, err := r.boxes.Create(ctx, sandbox.CreateRequest{
			Spec: api.Spec{Image: p.Runtime, Network: p.Network, Owner: api.OwnerConnection}, User: who.User,
			Conn: who.Conn, Progress: who.Progress,
		})
		if err != nil {
			return api.CodeResult{}, err
		}
		defer func() {
			if _, rerr := r.boxes.Remove(context.WithoutCancel(ctx), box.ID); rerr != nil &&
				api.ErrorCode(rerr) != api.NotFound {
				err = errors.Join(err, rerr)
			}
		}()
		p.Sandbox, p.Fresh = box.ID, true
	}
	box, err := r.boxes.Get(p.Sandbox)
	if err != nil {
		return api.CodeResult{}, err
	}
	p.Sandbox = box.ID
	call := history.NewCall()
	if _, err := r.boxes.History.Checkpoint(ctx, box.ID, history.Call{ID: call, Tool: api.MethodCodeRun}); err != nil {
		return api.CodeResult{}, err
	}
	done, err := r.boxes.Use(ctx, box.ID)
	if err != nil {
		return api.CodeResult{}, err
	}
	defer done()
	start := time.Now()
	before := r.look(ctx, &p, &box)
	var tell teller
	if p.Progress {
		tell = func(stream api.Stream, text string) {
			who.Progress(api.Progress{Kind: api.ProgressOutput, Stream: stream, Text: text})
		}
	}
	if p.Fresh || !api.KeepsContext(p.Language) {
		res, err = r.fresh(ctx, &p, tell)
	} else {
		res, err = r.kept(ctx, &p, tell)
	}
	if err != nil {
		return api.CodeResult{}, err
	}
	res.Call = call
	res.DurationMS = float64(time.Since(start).Microseconds()) / 1e3
	r.addFiles(ctx, &p, &box, before, &res)
	if res.Artifacts == nil {
		res.Artifacts = []api.Artifact{}
	}
	if res.Denials == nil {
		res.Denials = []api.Denial{}
	}
	return res, nil
}

// checkImports refuses code that imports what it may not, before anything runs. What the scan cannot see is the
// interpreter's to refuse.
func (r *Runner) checkImports(ctx context.Context, p *api.CodeParams) error {
	if len(p.AllowedImports) == 0 {
		return nil
	}
	res, err := r.scan.Scan(ctx, api.ScanParams{Language: p.Language, Code: p.Code, AllowedImports: p.AllowedImports})
	if err != nil {
		return err
	}
	for _, i := range res.Imports {
		if !i.Allowed {
			return api.Errorf(api.PermissionDenied, "line %d imports %q, which is not in allowed_imports (%s)", i.Line,
				i.Module, strings.Join(p.AllowedImports, ", ")).
				WithOp(api.MethodCodeRun).WithField("allowed_imports").WithHint("leave the import out, or allow it")
		}
	}
	for i := range res.Findings {
		if f := &res.Findings[i]; f.Rule == api.RuleUnreadable || f.Rule == api.RuleDepth {
			return api.Errorf(api.PermissionDenied, "what the code imports cannot be told: %s", f.Why).
				WithOp(api.MethodCodeRun).WithField("code").WithHint("nest it less, or leave allowed_imports out")
		}
	}
	return nil
}

// commands run a file with code in an interpreter of its own.
var commands = map[string]struct {
	file string
	argv []string // the file follows
}{
	"shell": {"code.sh", []string{"/bin/sh"}},
	"go":    {"main.go", []string{"go", "run"}},
	"ruby":  {"code.rb", []string{"ruby"}},
}

// lastWords is how long the output of a command that has ended may take.
const lastWords = 2 * time.Second

// errOver ends who follows a command that has ended.
var errOver = errors.New("the command has ended")

// teller gets what code writes, as it comes; nil where nobody listens.
type teller = func(api.Stream, string)

// fresh runs code once.
func (r *Runner) fresh(ctx context.Context, p *api.CodeParams, tell teller) (api.CodeResult, error) {
	if api.KeepsContext(p.Language) {
		k, err := r.start(ctx, p, kernelKey{})
		if err != nil {
			return api.CodeResult{}, err
		}
		defer r.kill(ctx, k.Exec)
		res, err := r.run(ctx, p, k, tell)
		res.Context = ""
		return res, err
	}
	c := commands[p.Language]
	dir := "/tmp/hutch-code-" + interp.NewToken()[:12]
	file := api.FileParams{Sandbox: p.Sandbox, Path: dir + "/" + c.file, User: p.User}
	if _, err := r.boxes.Files.Write(ctx, api.FileWriteParams{FileParams: file, Data: p.Code, Parents: true,
		Mode: "0600"}, nil); err != nil {
		return api.CodeResult{}, err
	}
	defer func() {
		folder := file
		folder.Path = dir
		// a dead sandbox's is gone
		_, _ = r.boxes.Files.Remove(context.WithoutCancel(ctx),
			api.FileRemoveParams{FileParams: folder, Recursive: true,
				MissingOK: true})
	}()
	env := map[string]string{}
	if p.Language == "go" { // which needs a place for what it builds
		env["GOCACHE"], env["GOPATH"] = "/tmp/hutch-go/cache", "/tmp/hutch-go/path"
	}
	for k, v := range p.Env {
		env[k] = v
	}
	started, told := func(string, int) {}, func() {}
	if tell != nil {
		var following sync.WaitGroup
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		started = func(id string, _ int) {
			following.Go(func() { interp.Follow(ctx, r.boxes.Execs, id, p.OutputBytes, tell) })
		}
		told = func() {
			late := time.AfterFunc(lastWords, func() { stop(errOver) })
			defer late.Stop()
			following.Wait()
		}
	}
	end, err := r.boxes.Execs.Run(ctx, exec.Request{
		Params: api.ExecParams{
			Sandbox: p.Sandbox, Argv: append(append([]string{}, c.argv...), file.Path), Env: env, Cwd: p.Cwd,
			User:     p.User,
			TimeoutS: &p.TimeoutS, OutputBytes: p.OutputBytes, Background: false,
		},
		Started: started, Explained: true,
	})
	told()
	if err != nil {
		return api.CodeResult{}, noInterpreter(err, p.Language, c.argv[0])
	}
	if end.Verdict == api.VerdictNotRun {
		return api.CodeResult{}, noInterpreter(api.Errorf(api.NotFound, "%s", end.Error), p.Language, c.argv[0])
	}
	res := api.CodeResult{
		Exec: end.Exec, Stdout: interp.Text(end.Stdout, end.StdoutEncoding),
		Stderr: interp.Text(end.Stderr, end.StderrEncoding), Truncated: end.Truncated,
		ExitCode: end.ExitCode, Verdict: end.Verdict, TimedOut: end.TimedOut, Denials: end.Denials,
		Failures: end.Failures, Policy: end.Policy,
	}
	if end.Verdict != api.VerdictOK {
		res.Error = interp.Ended(&end)
	}
	return res, nil
}

// noInterpreter says what to do where an image has no interpreter for a language.
func noInterpreter(err error, language, program string) error {
	if api.ErrorCode(err) != api.NotFound || !strings.Contains(err.Error(), program) {
		return err
	}
	image := map[string]string{"python": "python@3.12", "javascript": "node@20", "go": "go", "ruby": "ruby"}[language]
	hint := "use an image that has it"
	if image != "" {
		hint = fmt.Sprintf("create the sandbox from %s, or give runtime %q", image, image)
	}
	return api.Errorf(api.FailedPrecondition, "the sandbox has no %s for %s: %w", program, language, err).
		WithOp(api.MethodCodeRun).WithHint("%s", hint)
}
