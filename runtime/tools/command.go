package tools

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/exec"
)

func runCommand() (*tool, error) {
	return define[api.ToolRunCommand, api.ToolCommand](api.Tool{
		Name: api.ToolNameRunCommand, Title: "Run command",
		Description: "Runs a command in the sandbox and returns its output and exit code. A long output is cut in its middle; " +
			"call again with exec and an offset to read the rest. With background true it returns at once, for servers. " +
			"What the sandbox refused is said in the result, with the way to allow it; /run/hutch/policy.txt says beforehand what it may reach and write.",
		Destructive: true, OpenWorld: true,
	}, 0, func(ctx context.Context, c *call, a api.ToolRunCommand) (answer, error) {
		if a.OutputBytes == 0 {
			a.OutputBytes = api.ToolOutputBytes
		}
		if a.Exec != "" {
			return c.goOn(ctx, &a)
		}
		return c.command(ctx, &a)
	})
}

// command runs a new command. It is started and waited for, not run: its output is kept, to be read further.
func (c *call) command(ctx context.Context, a *api.ToolRunCommand) (answer, error) {
	execs := c.set.cfg.Sandboxes.Execs
	p := api.ExecParams{
		Sandbox: c.sandbox, Command: a.Command, Argv: a.Argv, Env: a.Env, Cwd: a.Cwd, User: c.user, Stdin: a.Stdin,
		TimeoutS: a.TimeoutS, Background: true,
	}
	if p.Stdin != "" {
		p.Background = false
	}
	if a.TimeoutS == nil && !a.Background {
		s := float64(api.ToolCommandTimeoutS)
		p.TimeoutS = &s
	}
	ex, err := execs.Start(ctx, exec.Request{Params: p, Started: func(string, int) {}, Explained: true})
	if err != nil {
		return answer{}, err
	}
	c.started(ex.Exec, ex.PID)
	r := api.ToolCommand{Exec: ex.Exec, Denials: []api.Denial{}}
	if a.Background {
		r.Running = true
		return answer{text: fmt.Sprintf("[runs in the background as %s: call with exec %q to read its output, to wait for it or to kill it]", ex.Exec, ex.Exec), result: r}, nil
	}
	end, err := execs.Wait(ctx, api.WaitParams{Exec: ex.Exec, OutputBytes: 1})
	if err != nil {
		if ctx.Err() != nil {
			c.kill(ctx, ex.Exec)
		}
		return answer{}, err
	}
	ended(&r, &end)
	return c.output(ctx, r, a)
}

// killTimeout bounds how long a command may take to die.
const killTimeout = 20 * time.Second

// kill kills a command whose caller is gone.
func (c *call) kill(ctx context.Context, exec string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancel()
	_, _ = c.set.cfg.Sandboxes.Execs.Kill(ctx, api.ExecRef{Exec: exec}) // one that has ended is what is wanted, too
}

// goOn reads further what a command has written, and waits for it or kills it first.
func (c *call) goOn(ctx context.Context, a *api.ToolRunCommand) (answer, error) {
	execs := c.set.cfg.Sandboxes.Execs
	ex, err := execs.Get(api.ExecRef{Exec: a.Exec})
	if err == nil && ex.Sandbox != c.sandbox {
		err = api.Errorf(api.NotFound, "no exec %s in this sandbox", a.Exec).WithField("exec").
			WithHint("use exec of a result of this tool in the same sandbox")
	}
	if err != nil {
		return answer{}, err
	}
	r := api.ToolCommand{Exec: a.Exec, Running: true, Denials: []api.Denial{}}
	var end api.ExecResult
	if a.Kill && ex.State == api.ExecRunning {
		end, err = execs.Kill(ctx, api.ExecRef{Exec: a.Exec})
	} else {
		end, err = execs.Wait(ctx, api.WaitParams{Exec: a.Exec, WaitS: &a.WaitS, OutputBytes: 1})
	}
	switch {
	case err == nil:
		ended(&r, &end)
	case api.ErrorCode(err) != api.DeadlineExceeded || ctx.Err() != nil:
		return answer{}, err
	}
	return c.output(ctx, r, a)
}

// output adds what a command has written, and makes the text of it all.
func (c *call) output(ctx context.Context, r api.ToolCommand, a *api.ToolRunCommand) (answer, error) {
	out, err := c.stream(ctx, api.Stdout, a.Exec != "", a.Stdout, a.OutputBytes, &r)
	if err != nil {
		return answer{}, err
	}
	errs, err := c.stream(ctx, api.Stderr, a.Exec != "", a.Stderr, a.OutputBytes, &r)
	if err != nil {
		return answer{}, err
	}
	r.Stdout, r.Stderr = out, errs
	return answer{text: commandText(&r), result: r, failed: !r.Running && r.Verdict != api.VerdictOK}, nil
}

// stream is what a result has of a stream: of a command that was just run its first and last bytes, else those from
// an offset on.
func (c *call) stream(ctx context.Context, name api.Stream, further bool, from, limit int64,
	r *api.ToolCommand) (string, error) {
	next := &r.NextStdout
	if name == api.Stderr {
		next = &r.NextStderr
	}
	read := func(from, limit int64) ([]byte, api.Chunk, error) {
		chunk, err := c.set.cfg.Sandboxes.Execs.Read(ctx, api.ReadParams{Exec: r.Exec, Stream: name, Offset: from,
			Limit: limit, Encoding: api.Base64})
		if err != nil {
			return nil, chunk, err
		}
		data, err := base64.StdEncoding.DecodeString(chunk.Data)
		return data, chunk, err
	}
	head, chunk, err := read(from, limit)
	if err != nil {
		return "", err
	}
	*next = chunk.Next
	if further || chunk.EOF {
		return textOf(head), nil
	}
	tail, last, err := read(-limit/2, limit/2)
	if err != nil {
		return "", err
	}
	// The middle begins where reading further goes on.
	half := min(limit/2, int64(len(head)))
	omitted := last.Offset - chunk.Offset - half
	if omitted <= 0 {
		return textOf(append(head[:last.Offset-chunk.Offset], tail...)), nil
	}
	*next, r.Truncated = chunk.Offset+half, true
	return fmt.Sprintf("%s\n[%d bytes omitted: %s_offset %d with exec %s goes on here]\n%s",
		textOf(head[:half]), omitted, name, *next, r.Exec, textOf(tail)), nil
}

// textOf makes text of what a program has written, which may be any bytes.
func textOf(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// commandText is what a model reads of a command: its output, and how it ended.
func commandText(r *api.ToolCommand) string {
	var text strings.Builder
	text.WriteString(r.Stdout)
	if r.Stderr != "" {
		newline(&text)
		text.WriteString("[stderr]\n" + r.Stderr)
	}
	newline(&text)
	failed := !r.Running && r.Verdict != api.VerdictOK
	for _, line := range api.Explain(r.Denials, r.Failures, r.Policy, failed) {
		text.WriteString("[" + line + "]\n")
	}
	switch {
	case r.Running:
		fmt.Fprintf(&text, "[%s still runs]", r.Exec)
	case r.Verdict == api.VerdictNotRun:
		fmt.Fprintf(&text, "[not run: %s]", r.Error)
	case r.Verdict == api.VerdictOK || r.Verdict == api.VerdictNonzero:
		fmt.Fprintf(&text, "[exit code %d, %.1f s]", r.ExitCode, r.DurationMS/1e3)
	default:
		fmt.Fprintf(&text, "[ended by %s, exit code %d, %.1f s]", r.Verdict, r.ExitCode, r.DurationMS/1e3)
	}
	return text.String()
}

// newline ends a line that has begun.
func newline(b *strings.Builder) {
	if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
		b.WriteByte('\n')
	}
}

// ended notes how a command ended.
func ended(r *api.ToolCommand, end *api.ExecResult) {
	r.Running = false
	r.ExitCode, r.Signal, r.Verdict, r.TimedOut = end.ExitCode, end.Signal, end.Verdict, end.TimedOut
	r.DurationMS, r.Error = end.DurationMS, end.Error
	if len(end.Denials) > 0 {
		r.Denials = end.Denials
	}
	r.Failures, r.Policy = end.Failures, end.Policy
}
