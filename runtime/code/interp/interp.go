// Package interp has interpreters run pieces of code, one after the other, and collects what comes of it. An
// interpreter is an exec that runs a small program of hutch's (drivers); DESIGN.md of runtime/code says what the two
// tell each other. What it answers is as hostile as the code.
package interp

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

//go:embed drivers/driver.py
var pythonDriver string

//go:embed drivers/driver.js
var nodeDriver string

// Argv is what runs an interpreter of a language that keeps contexts; token is what its output is told apart by.
// Isolated, it takes no module from the folder it runs in, from the user's home or from where the environment says:
// only what is installed with it.
func Argv(language, token string, isolated bool) []string {
	argv := []string{"node", "-e", nodeDriver, "--"}
	if language == "python" {
		argv = []string{"python3", "-u", "-c", pythonDriver}
		if isolated {
			argv = slices.Insert(argv, 1, "-I", "-B")
		}
	}
	if argv = append(argv, token); isolated && language != "python" {
		argv = slices.Insert(argv, 4, "isolated")
	}
	return argv
}

// NewToken makes a token that nobody can guess.
func NewToken() string { return strings.ToLower(rand.Text()) }

// Execs are where the interpreter runs.
type Execs interface {
	Read(ctx context.Context, p api.ReadParams) (api.Chunk, error)
	Write(ctx context.Context, p api.WriteParams) error
	Signal(ctx context.Context, p api.SignalParams) error
	Kill(ctx context.Context, p api.ExecRef) (api.ExecResult, error)
}

// Interpreter is one that runs. One goroutine at a time may use it.
type Interpreter struct {
	Exec   string
	Broken bool // it has ended, or does not answer
	// Tell, if it is set, gets what a run writes as it comes, at most CodeParams.OutputBytes of each stream, from a
	// goroutine for each.
	Tell func(api.Stream, string)

	token string
	next  int64    // the number of the next run
	read  [2]int64 // how much of stdout and stderr has been read
	// others says that what comes first may be another run's, which nobody waits for any more.
	others bool
}

// New is an interpreter that was started with Argv.
func New(exec, token string) *Interpreter { return &Interpreter{Exec: exec, token: token, next: 1} }

// Resume is one that others have used, who are gone; stdout and stderr are how many bytes it has written. Numbers of
// runs that may still answer are below the time.
func Resume(exec, token string, stdout, stderr int64) *Interpreter {
	return &Interpreter{Exec: exec, token: token, next: time.Now().Unix(), read: [2]int64{stdout, stderr},
		others: true}
}

// Ended says how an interpreter ended.
func Ended(end *api.ExecResult) *api.CodeError {
	switch {
	case end.TimedOut:
		return &api.CodeError{Name: "Timeout", Value: "the code took longer than its timeout_s, and was killed"}
	case end.Signal != "":
		return &api.CodeError{Name: "Ended", Value: fmt.Sprintf("the interpreter was ended by %s (%s)", end.Signal,
			end.Verdict)}
	}
	return &api.CodeError{Name: "Exit", Value: fmt.Sprintf("exit code %d", end.ExitCode)}
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

// artifacts are a driver's. A short text may hold millions: those over MaxArtifacts are not decoded.
type artifacts []api.Artifact

// UnmarshalJSON implements json.Unmarshaler.
func (a *artifacts) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return err
	}
	for d.More() && len(*a) < MaxArtifacts {
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

// killTimeout bounds how long an interpreter may take to die.
const killTimeout = 20 * time.Second

// grace is how long code may take to end by itself once it is interrupted.
const grace = 2 * time.Second

// Run runs code: p says which, for how long, and how much of its output is kept. The interpreter is broken where it did
// not come to the end of it.
func (k *Interpreter) Run(ctx context.Context, execs Execs, p *api.CodeParams) (api.CodeResult, error) {
	id := k.next
	k.next++
	line, err := json.Marshal(request{ID: id, Code: p.Code, AllowedImports: p.AllowedImports})
	if err != nil {
		return api.CodeResult{}, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(p.TimeoutS*float64(time.Second)), errTimeout)
	defer cancel()
	// Until its reply came, nobody knows where its output ends.
	k.Broken = true
	err = execs.Write(limited, api.WriteParams{Exec: k.Exec, Data: string(line) + "\n"})
	res := api.CodeResult{Exec: k.Exec, Verdict: api.VerdictOK}
	out := &output{k: k, id: id, limit: p.OutputBytes}
	if !k.others {
		out.tell = k.Tell
	}
	if err == nil {
		err = out.follow(limited, execs)
	}
	if err != nil && limited.Err() != nil {
		err = k.interrupt(ctx, execs, out, context.Cause(limited))
		res.TimedOut = errors.Is(context.Cause(limited), errTimeout)
	}
	k.Broken = err != nil
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	k.others = false
	res.Stdout, res.Stderr = out.text(0), out.text(1)
	res.Truncated = out.cut[0] || out.cut[1]
	if err != nil {
		return k.lost(ctx, execs, res, err)
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
func (k *Interpreter) interrupt(ctx context.Context, execs Execs, out *output, why error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), grace, why)
	defer cancel()
	if err := execs.Signal(ctx, api.SignalParams{Exec: k.Exec, Signal: "SIGINT"}); err != nil {
		return err
	}
	return out.follow(ctx, execs)
}

// lost is the result of a run whose interpreter has ended, or is killed now.
func (k *Interpreter) lost(ctx context.Context, execs Execs, res api.CodeResult, why error) (api.CodeResult, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	end, err := execs.Kill(ctx, api.ExecRef{Exec: k.Exec})
	if err != nil {
		return res, errors.Join(why, err)
	}
	res.ExitCode, res.Verdict, res.Denials, res.Failures = end.ExitCode, end.Verdict, end.Denials, end.Failures
	res.Error = Ended(&end)
	switch {
	case res.TimedOut:
		res.Verdict = api.VerdictTimeoutWall
		res.Error = &api.CodeError{Name: "Timeout",
			Value: "the code took longer than its timeout_s and did not stop when it was interrupted: its interpreter was killed"}
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
	left := int64(maxData)
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

// MaxArtifacts bounds the artifacts of one result, in number; maxData in bytes of Data.
const (
	MaxArtifacts = 100
	maxData      = 8 << 20
)
