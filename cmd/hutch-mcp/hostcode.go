package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/hutch-sh/hutch/internal/hostexec"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/code/interp"
)

// Code on the host: `hutch mcp --mode`. As with commands the daemon decides and records, and this process runs what is
// for the host. Interpreters that are kept there are this session's, of mode off only: of mode selective one call in
// two might be for the sandbox, without the other's variables.

// hostKernels are the interpreters that are kept on the host.
type hostKernels struct {
	mu sync.Mutex // guards of
	of map[hostKey]*hostKernel
}

type hostKey struct{ language, context string }

// hostKernel is one of them.
type hostKernel struct {
	turn chan struct{} // held by whoever runs something in it

	// Whoever has the turn may touch what follows: nil of one that does not run.
	*interp.Interpreter
	run *hostexec.Kept
}

// find is the one of a context, which may not run.
func (h *hostKernels) find(key hostKey) *hostKernel {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.of[key]
	if k == nil {
		if h.of == nil {
			h.of = map[hostKey]*hostKernel{}
		}
		k = &hostKernel{turn: make(chan struct{}, 1)}
		h.of[key] = k
	}
	return k
}

// end ends those that run nothing. The others end with this process.
func (h *hostKernels) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.of {
		select {
		case k.turn <- struct{}{}:
			k.close()
		default:
		}
	}
}

// start starts it. One that a scan has let run takes no modules but those that are installed with it: files of the
// folder may be a sandbox's.
func (k *hostKernel) start(language string, cmd *hostexec.Command, mode api.ExecMode) (err error) {
	token := interp.NewToken()
	cmd.Argv = interp.Argv(language, token, mode == api.ExecModeSelective)
	if k.run, err = hostexec.Keep(cmd); err != nil {
		return err
	}
	if why := k.run.NotRun(); why != "" {
		k.close()
		return api.Errorf(api.FailedPrecondition, "%s", why).
			WithHint("with mode all the code runs in the sandbox, whose image may have it")
	}
	k.Interpreter = interp.New("", token)
	return nil
}

// close ends it.
func (k *hostKernel) close() {
	if k.run != nil {
		k.run.Close()
		k.run, k.Interpreter = nil, nil
	}
}

// codeNeedsBox says what of a piece of code only a sandbox has, "" if nothing.
func codeNeedsBox(mode api.ExecMode, a *codeArguments) string {
	switch {
	case mode != api.ExecModeSelective:
	case !a.Fresh && api.KeepsContext(a.Language):
		return "its variables are kept there; with fresh it may run on the host"
	case a.Language == "shell" && hostexec.Shell(a.Code) == nil:
		return "the host has no bash, whose grammar the scan knows"
	}
	return ""
}

// hostCode runs code on the host if it is to run there: result is not nil then. Otherwise it is for the sandbox, and
// note says why.
func (b *boxes) hostCode(ctx context.Context, a *codeArguments) (result *mcp.CallToolResult, note string, err error) {
	mode, err := b.strictest(a.Mode)
	if err != nil || mode == api.ExecModeAll || a.Sandbox != "" {
		return nil, "", err
	}
	p := api.CodeParams{Sandbox: "host", Language: a.Language, Code: a.Code, Context: a.Context, Fresh: a.Fresh,
		TimeoutS: a.TimeoutS, OutputBytes: api.DefaultCodeOutput}
	if err := p.Validate(); err != nil {
		return nil, "", err
	}
	if p.TimeoutS == 0 {
		p.TimeoutS = api.DefaultCodeTimeoutS
	}
	if why := codeNeedsBox(mode, a); why != "" {
		return nil, fmt.Sprintf("[mode %s: in the sandbox: %s]", mode, why), nil
	}
	c, err := b.connection(ctx)
	if err != nil {
		return nil, "", err
	}
	d, err := c.Decide(ctx, api.DecideParams{
		Mode: mode, Language: a.Language, Code: a.Code, TimeoutS: &p.TimeoutS,
		ReadOnly: mode == api.ExecModeSelective && hostexec.Confines(),
	})
	if err != nil {
		return nil, "", err
	}
	if d.Decision != api.WhereHost {
		return nil, fmt.Sprintf("[mode %s: in the sandbox: %s]", mode, d.Reason), nil
	}
	r, err := b.codeOnHost(ctx, &p, &d, c.HostEnded)
	if err != nil {
		return nil, "", err
	}
	r.Where, r.Exec = api.WhereHost, d.ID
	return showCode(&r, fmt.Sprintf("[ran on the HOST, not in the sandbox: mode %s]", mode)), "", nil
}

// codeOnHost runs code on the host and has its end recorded.
func (b *boxes) codeOnHost(ctx context.Context, p *api.CodeParams, d *api.Decision,
	record func(context.Context, api.HostEndParams) error) (res api.CodeResult, err error) {
	dir, begun := b.cfg.Folder, time.Now()
	before := interp.StampsOf(hostList(dir))
	cmd := hostexec.Command{Dir: dir, Env: hostexec.Environ(d.Mode == api.ExecModeSelective, nil),
		ReadOnly: d.Mode == api.ExecModeSelective && hostexec.Confines()}
	if api.KeepsContext(p.Language) {
		res, err = b.interpret(ctx, p, &cmd, d.Mode)
		end := api.HostEndParams{ID: d.ID, ExitCode: res.ExitCode, TimedOut: res.TimedOut,
			DurationMS: float64(time.Since(begun).Microseconds()) / 1e3}
		if err != nil {
			end.ExitCode, end.Error = 1, strings.ToValidUTF8(err.Error(), "\uFFFD")
		} else if res.Error != nil && end.ExitCode == 0 {
			end.ExitCode = 1
		}
		told, stop := context.WithTimeout(context.WithoutCancel(ctx), hostRecordTimeout)
		defer stop()
		if rerr := record(told, end); rerr != nil { // it has run all the same
			fmt.Fprintln(os.Stderr, "hutch-mcp:", rerr)
		}
	} else {
		res, err = runFile(ctx, p, &cmd, d, record)
	}
	if err != nil {
		return res, err
	}
	res.DurationMS = float64(time.Since(begun).Microseconds()) / 1e3
	interp.AddFiles(&res, dir, before, hostList(dir), hostImage)
	if res.Artifacts == nil {
		res.Artifacts = []api.Artifact{}
	}
	res.Denials = []api.Denial{} // there is no sandbox that refuses
	return res, nil
}

// hostRecordTimeout bounds how long the daemon may take to record an end.
const hostRecordTimeout = 10 * time.Second

// interpret runs code in an interpreter of its own, or in that of its context.
func (b *boxes) interpret(ctx context.Context, p *api.CodeParams, cmd *hostexec.Command,
	mode api.ExecMode) (res api.CodeResult, err error) {
	if p.Fresh {
		k := hostKernel{}
		if err := k.start(p.Language, cmd, mode); err != nil {
			return res, err
		}
		defer k.close()
		return k.Run(ctx, k.run, p)
	}
	key, begun := hostKey{p.Language, p.Context}, false
	if key.context == "" {
		key.context = "default"
	}
	k := b.kernels.find(key)
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return res, context.Cause(ctx)
	}
	defer func() { <-k.turn }()
	if k.run != nil && !k.run.Running() { // it has ended between two runs
		k.close()
	}
	if k.run == nil {
		if err := k.start(p.Language, cmd, mode); err != nil {
			return res, err
		}
		begun = true
	}
	res, err = k.Run(ctx, k.run, p)
	if k.Broken {
		k.close()
	}
	res.Context, res.Begun = key.context, begun
	return res, err
}

// runFile runs code of a language that has no contexts.
func runFile(ctx context.Context, p *api.CodeParams, cmd *hostexec.Command, d *api.Decision,
	record func(context.Context, api.HostEndParams) error) (res api.CodeResult, err error) {
	if cmd.Argv = hostexec.Shell(p.Code); p.Language != "shell" || cmd.Argv == nil {
		dir, err := os.MkdirTemp("", "hutch-code-")
		if err != nil {
			return res, err
		}
		defer os.RemoveAll(dir)
		name := map[string]string{"shell": "code.sh", "go": "main.go", "ruby": "code.rb"}[p.Language]
		cmd.Argv = append(map[string][]string{"shell": {"/bin/sh"}, "go": {"go", "run"}, "ruby": {"ruby"}}[p.Language],
			filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(p.Code), 0o600); err != nil {
			return res, err
		}
	}
	ran, err := captured(ctx, cmd, d, record, int(p.OutputBytes))
	if err != nil {
		return res, err
	}
	if ran.Verdict == api.VerdictNotRun {
		return res, api.Errorf(api.FailedPrecondition, "%s", ran.Error).
			WithHint("with mode all the code runs in the sandbox, whose image may have it")
	}
	res = api.CodeResult{
		Stdout: ran.Stdout, Stderr: ran.Stderr, Truncated: ran.Truncated, ExitCode: ran.ExitCode, Verdict: ran.Verdict,
		TimedOut: ran.TimedOut,
	}
	if res.Verdict != api.VerdictOK {
		res.Error = interp.Ended(&ran)
	}
	return res, nil
}

// hostList lists the files of the folder that code runs in, as code.run does in a sandbox.
func hostList(dir string) (list []api.File) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		rel, rerr := filepath.Rel(dir, path)
		switch {
		case err != nil || rerr != nil || rel == ".":
			return nil // one that cannot be read has no files here
		case len(list) == interp.MaxLooked:
			return fs.SkipAll
		case e.IsDir() && strings.Count(rel, "/") >= interp.LookedDepth-1:
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		if info, err := e.Info(); err == nil {
			list = append(list, api.File{Path: rel, Type: api.TypeFile, Size: info.Size(), MTime: info.ModTime()})
		}
		return nil
	})
	return list
}

// hostImage reads an image that code has made.
func hostImage(path string) (string, bool) {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > interp.MaxImage {
		return "", false
	}
	return base64.StdEncoding.EncodeToString(data), true
}
