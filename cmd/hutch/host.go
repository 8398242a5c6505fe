package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostexec"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Commands on the host: --mode, and mode of the configuration. hutchd decides and records; this process runs what is
// for the host.

// onHost are the flags of run and exec that a command on the host honours. Those of withOff only where no scan has let
// it pass: a scan knows nothing of the environment.
var (
	onHost  = []string{"mode", "interactive", "tty", "json", "timeout", "workspace", "rm"}
	withOff = []string{"env", "env-file"}
)

// modeFlag is --mode with the other flags that were given.
type modeFlag struct {
	mode  api.ExecMode // "": the configuration's
	given []string

	configured api.ExecMode // once it has been read
}

func (o *modeFlag) add(fs *pflag.FlagSet) {
	fs.Func("mode", "where the command runs, `all|selective|off`: in a sandbox (all); there if a scan finds it risky, else on the host; on the host (default: the configuration's)", func(v string) error {
		o.mode = api.ExecMode(v)
		if v == "" {
			return errors.New("no mode is given")
		}
		return api.CheckExecMode(o.mode)
	})
}

// read notes which flags were given.
func (o *modeFlag) read(fs *pflag.FlagSet) {
	fs.Visit(func(f *pflag.Flag) { o.given = append(o.given, f.Name) })
}

// effective is the mode that is in force, and whether the command line has asked for it.
func (o *modeFlag) effective() (mode api.ExecMode, asked bool, err error) {
	if o.mode != "" {
		return o.mode, true, nil
	}
	if o.configured == "" {
		c, err := configDigest()
		if err != nil {
			return "", false, err
		}
		o.configured = c.Mode
	}
	return o.configured, false, nil
}

// needsBox says why a command needs a sandbox whatever it is, "" if it does not.
func (o *modeFlag) needsBox(mode api.ExecMode) string {
	for _, name := range o.given {
		if !slices.Contains(onHost, name) && (mode != api.ExecModeOff || !slices.Contains(withOff, name)) {
			return "--" + name + " is given, which only a sandbox has"
		}
	}
	return ""
}

// hostCommand is a command that may run on the host.
type hostCommand struct {
	verb     string // "hutch run"
	flags    *modeFlag
	why      string // it needs a sandbox for another reason than a flag
	sandbox  string
	argv     []string
	dir      string // where, unless the sandbox's workspace says
	env      map[string]string
	timeout  *float64
	terminal bool // standard input is a terminal, and to be connected
	stdin    bool // standard input is to be connected otherwise
	json     bool
}

// hostResult is what --json prints of a command on the host.
type hostResult struct {
	*api.ExecResult
	Where    api.Where     `json:"where"`
	Decision *api.Decision `json:"decision"`
}

// stdio says how standard input is connected, by -i and -t as in a sandbox.
func (h *hostCommand) stdio(interactive, tty bool) {
	isTerminal := cli.IsTerminal(os.Stdin)
	h.terminal = isTerminal && (interactive || tty)
	h.stdin = !isTerminal && (interactive || !h.json)
	if tty && !isTerminal && h.why == "" {
		h.why = "-t is given, and standard input is no terminal"
	}
}

// try runs the command on the host if it is to run there. Otherwise done is false, and the command is for a sandbox; d
// then says why, of mode selective.
func (h *hostCommand) try(ctx context.Context, out io.Writer) (done bool, d *api.Decision, err error) {
	mode, asked, err := h.flags.effective()
	if err != nil || mode == api.ExecModeAll {
		return false, nil, err
	}
	if h.why == "" {
		h.why = h.flags.needsBox(mode)
	}
	switch {
	case h.why != "" && asked && mode == api.ExecModeOff:
		return false, nil, cli.Usage(h.verb, fmt.Errorf("--mode off runs the command on the host, but %s", h.why))
	case h.why != "":
		return false, h.inBox(&api.Decision{Decision: api.WhereSandbox, Mode: mode, Reason: h.why,
			Findings: []api.Finding{}}), nil
	}
	err = withDaemon(ctx, func(c *client.Client) error {
		made, err := c.Decide(ctx, api.DecideParams{Mode: h.flags.mode, Sandbox: h.sandbox, Argv: h.argv,
			ReadOnly: mode == api.ExecModeSelective && hostexec.Confines(), TimeoutS: h.timeout})
		if err != nil {
			return err
		}
		if d = &made; d.Decision != api.WhereHost {
			h.inBox(d)
			return nil
		}
		done = true
		return h.run(ctx, c, d, out)
	})
	return done, d, err
}

// inBox tells why the command runs in a sandbox although the mode is another than all.
func (h *hostCommand) inBox(d *api.Decision) *api.Decision {
	if !h.json {
		fmt.Fprintln(os.Stderr, cli.Line(fmt.Sprintf("hutch: mode %s: in a sandbox: %s", d.Mode, d.Reason)))
	}
	return d
}

// run runs the command on the host. Nobody can miss that it does.
func (h *hostCommand) run(ctx context.Context, c *client.Client, d *api.Decision, out io.Writer) (err error) {
	about := "mode off"
	if d.Mode != api.ExecModeOff {
		about = "mode " + string(d.Mode) + ": " + d.Reason
	}
	fmt.Fprintln(os.Stderr, cli.StyleFor(os.Stderr).
		Red(cli.Line(fmt.Sprintf("hutch: running on the HOST, not in a sandbox (%s)", about))))
	cmd := hostexec.Command{
		Argv: h.argv, Dir: h.dir, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: h.terminal,
		ReadOnly: d.Mode == api.ExecModeSelective && hostexec.Confines(),
	}
	cmd.Env = hostexec.Environ(d.Mode == api.ExecModeSelective, h.env)
	if d.Cwd != "" {
		cmd.Dir = d.Cwd
	}
	if cmd.Dir == "" {
		if cmd.Dir, err = os.Getwd(); err != nil {
			return err
		}
	}
	if h.terminal || h.stdin {
		cmd.Stdin = os.Stdin
	}
	var outputs []*hostexec.Capture
	if h.json {
		for _, to := range []**os.File{&cmd.Stdout, &cmd.Stderr} {
			o, err := hostexec.NewCapture(api.DefaultOutputBytes)
			if err != nil {
				return err
			}
			defer o.Close()
			*to, outputs = o.W, append(outputs, o)
		}
	}
	ctx, started, stop := h.signals(ctx)
	defer stop()
	res, err := cmd.Run(ctx, d, func(p *hostexec.Process) {
		for _, o := range outputs {
			_ = o.W.Close()
		}
		started(p)
	}, c.HostEnded)
	switch {
	case errors.Is(err, hostexec.ErrNotRecorded):
		tell(err)
	case err != nil:
		return interrupted(ctx, err)
	}
	if ctx.Err() != nil {
		return interrupted(ctx, &cli.Exit{Code: res.ExitCode})
	}
	if h.json {
		res.Stdout, res.StdoutEncoding, res.Truncated = outputs[0].Text()
		cut := false
		res.Stderr, res.StderrEncoding, cut = outputs[1].Text()
		res.Truncated = res.Truncated || cut
		if err := printJSON(out, hostResult{&res, api.WhereHost, d}); err != nil {
			return err
		}
		return quiet(cli.Outcome(&res))
	}
	return cli.Outcome(&res)
}

// signals passes this process's on to the command. What a terminal sends goes to the command as well, which shares its
// group then: that is ignored here, also twice.
func (h *hostCommand) signals(ctx context.Context) (_ context.Context, started func(*hostexec.Process), stop func()) {
	if !h.terminal {
		ctx, signals := cli.CatchSignals(ctx)
		signals.Listen() // there may be a word of the command's before this process knows that it runs
		early := &heldSignals{}
		signals.Started(cli.Target{Signal: early.hold})
		return ctx, func(p *hostexec.Process) {
			pass := func(name string) bool { p.Signal(name); return true }
			signals.Started(cli.Target{Signal: pass})
			early.release(pass)
		}, signals.Stop
	}
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGINT, unix.SIGQUIT)
	ctx, cancel := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGHUP)
	return ctx, func(*hostexec.Process) {}, func() { cancel(); signal.Stop(caught) }
}

// hostCommand is what run may run on the host. A new sandbox's workspace is the user's folder as it is; on the host,
// only mode rw keeps what it says, unless the command writes nothing.
func (o *runFlags) hostCommand(spec *api.Spec, image string, command []string) (*hostCommand, error) {
	h := &hostCommand{verb: "hutch run", flags: &o.mode, argv: command, env: spec.Env, timeout: o.timeout, json: o.json}
	if t := spec.Limits.TimeoutS; t > 0 {
		h.timeout = &t
	} else if o.tty && h.timeout == nil {
		h.timeout = new(float64)
	}
	switch w := spec.Workspace; {
	case image != "":
		h.why = "an image is named, " + image
	case len(command) == 0:
		h.why = "the command is the image's own"
	case w != nil && w.Mode != api.ModeNone:
		mode, _, err := o.mode.effective()
		if err != nil {
			return nil, err
		}
		if mode == api.ExecModeOff && w.Mode != api.ModeRW {
			h.why = fmt.Sprintf("nothing keeps a command on the host to a workspace of mode %s", w.Mode)
		}
		if h.dir, err = filepath.Abs(w.Path); err != nil {
			return nil, err
		}
	}
	h.stdio(o.interactive, o.tty)
	return h, nil
}

// hostCommand is what exec may run on the host.
func (o *execFlags) hostCommand() *hostCommand {
	h := &hostCommand{verb: "hutch exec", flags: &o.mode, sandbox: o.params.Sandbox, argv: o.params.Argv,
		env: o.params.Env, timeout: o.params.TimeoutS, json: o.json}
	if o.tty && h.timeout == nil {
		h.timeout = new(float64)
	}
	h.stdio(o.interactive, o.tty)
	return h
}
