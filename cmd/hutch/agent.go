package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// Labels of an agent's sandbox, by which --attach finds what to come back to.
const (
	labelAgent     = "hutch.agent"      // the template's name
	labelAgentExec = "hutch.agent.exec" // the command's id
)

// agentFlags are what agent adds to the flags of a new sandbox.
type agentFlags struct {
	specFlags
	detach, apply, discard, keep, watch bool

	timeout    float64 // of the agent itself, in seconds: that of a sandbox has a maximum; 0 is none
	attach     string  // instead of a new one
	detachKeys string
	notify     notifier
}

func newAgent() *cobra.Command {
	o := &agentFlags{}
	cmd := &cobra.Command{
		Use: "agent [flags] TEMPLATE [-- ARGS...] | agent [flags] --attach SANDBOX",
		Long: `Run an agent in a sandbox of its template (hutch template ls), with a copy of your folder. ARGS follow the
template's command, or are the command of a template that has none. At the end hutch shows how long it took, what was
refused and what the agent has changed, and asks whether to apply that. Without a terminal nothing is applied but by
--apply: the sandbox stays, and hutch says how to go on. What your own programs take instructions from (hutch config guard) is only applied by name.

The agent gets your terminal if there is one; ctrl-p ctrl-q leaves it running. Without one its input is empty. It gets
the variables that its template names, such as an API key, from your environment, and those of -e.

Ctrl-C goes to the agent, and a second one within two seconds ends it. If hutch agent is killed the agent goes on. In
each case the changes are kept, and --attach comes back.`,
		Example: `  hutch agent claude
  hutch agent claude -- -p 'fix the tests'
  hutch agent codex --workspace ~/src/app --allow pypi.org -e GITHUB_TOKEN
  hutch agent --detach --notify https://ntfy.example.com/me gemini -- -y -p 'update the docs'
  hutch agent --attach sb_4kd6sl2ptq7x`,
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.attach != "" {
				return o.runAttach(cmd, args)
			}
			return o.runNew(cmd, args)
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(true) // up to --, where the agent's own begin
	o.add(fs)
	for _, name := range []string{"template", "scope", "undo"} { // it is named, has a sandbox of its own, has undo
		_ = fs.MarkHidden(name)
	}
	w := fs.Lookup("workspace")
	w.Value, w.Usage = &copied{&o.spec.Workspace}, "host folder to work on a copy of, `PATH[:overlay]`, at /workspace (default .)"
	fs.Lookup("timeout").Usage = "end the agent after `TIME`: seconds, or 1m30s (default: none)"
	fs.BoolVarP(&o.detach, "detach", "d", false, "leave the agent running, without a terminal, and print the sandbox's id")
	fs.StringVar(&o.attach, "attach", "", "come back to the agent in `SANDBOX`, or to what it has changed")
	fs.BoolVar(&o.apply, "apply", false, "apply the changes without a question, if the agent ends with exit code 0; exit code 1: not all could be applied")
	fs.BoolVar(&o.discard, "discard", false, "show the changes, and throw them away with the sandbox")
	fs.BoolVar(&o.keep, "keep", false, "keep the sandbox also when the changes are applied")
	fs.Var(&o.notify, "notify",
		"post JSON to this `URL` when the agent ends, or asks for a connection; off sends nothing, not even to the desktop")
	fs.BoolVar(&o.watch, "watch", false, "with --attach: notify, and do nothing else")
	_ = fs.MarkHidden("watch")
	addDetachKeys(fs, &o.detachKeys)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var known *api.Error
		if err = flagError(cmd, err); errors.As(err, &known) && cmd.Flags().NArg() > 0 {
			return known.WithHint("the agent's own arguments come after --: %s %s -- ...; %s --help", cmd.CommandPath(),
				cli.Line(cmd.Flags().Arg(0)), cmd.CommandPath())
		}
		return err
	})
	return cmd
}

// copied is the value of --workspace, whose mode is overlay where none is given.
type copied struct{ to **api.Workspace }

func (c *copied) String() string { return "" }
func (c *copied) Type() string   { return "string" }

func (c *copied) Set(v string) error {
	w, err := cli.ParseWorkspace(v)
	if w.Path == v {
		w.Mode = api.ModeOverlay
	}
	*c.to = &w
	return err
}

func (o *agentFlags) check(cmd *cobra.Command) error {
	var why string
	switch {
	case o.apply && o.discard:
		why = "--apply does not go with --discard"
	case o.discard && o.keep:
		why = "--discard does not go with --keep: it removes the sandbox"
	case o.detach && (o.apply || o.discard || o.attach != ""):
		why = "--detach does not go with --apply, --discard and --attach: nobody waits for the end"
	case o.spec.Template != "" || o.spec.Scope != nil:
		why = "--template and --scope do not go with an agent: name its template behind the flags"
	case o.spec.Workspace != nil && o.spec.Workspace.Mode != api.ModeOverlay:
		why = fmt.Sprintf("--workspace in mode %s: an agent works on a copy, which is applied at its end", o.spec.Workspace.Mode)
	default:
		return nil
	}
	return cli.Usage(cmd.CommandPath(), errors.New(why))
}

// agent is one that runs, or has ended.
type agent struct {
	flags   *agentFlags
	name    string // of the template
	sandbox string
	exec    string
	signals *cli.Signals
	out     io.Writer
	client  *client.Client
	asks    bool            // about connections
	ran     bool            // or runs: what it has changed is kept
	result  *api.ExecResult // nil where nobody knows it any more
}

// runNew makes the sandbox and starts the agent.
func (o *agentFlags) runNew(cmd *cobra.Command, args []string) error {
	name, argv := cli.SplitCommand(args, cmd.ArgsLenAtDash())
	if name == "" || cmd.ArgsLenAtDash() != 1 && len(args) != 1 {
		return cli.Usage(cmd.CommandPath(), errors.New("give one template, and the agent's own arguments after --"))
	}
	if o.spec.Workspace == nil {
		o.spec.Workspace = &api.Workspace{Path: ".", Mode: api.ModeOverlay}
	}
	if err := o.check(cmd); err != nil {
		return err
	}
	ctx, signals := cli.CatchSignals(cmd.Context())
	defer signals.Stop()
	err := withDaemon(ctx, func(c *client.Client) error {
		t, err := wholeTemplate(ctx, c, name)
		if err != nil {
			return err
		}
		own := len(t.Entrypoint)+len(t.Cmd) > 0 // or the command is the user's, and not words for the image's shell
		if !own && len(argv) == 0 {
			return api.Errorf(api.InvalidArgument, "template %s has no command of its own", name).WithOp("agent").
				WithHint("give it one (cmd), or one here: hutch agent %s -- CMD", name)
		}
		a := &agent{flags: o, name: name, exec: newExecID(), signals: signals, out: cmd.OutOrStdout(), client: c}
		spec, err := a.spec(t)
		if err != nil {
			return err
		}
		sb, err := create(ctx, c, api.CreateParams{Spec: spec}, nil)
		if err != nil {
			return err
		}
		a.sandbox, a.asks = sb.ID, sb.Network.Ask
		words := argv
		if own {
			words = append(sb.Argv(nil, nil), argv...)
		}
		if err = a.run(ctx, words); err != nil && !a.ran {
			_, rerr := c.Remove(context.WithoutCancel(ctx), sb.ID)
			return errors.Join(err, rerr)
		}
		return err
	})
	return interrupted(ctx, err)
}

// wholeTemplate is a template with what it has of the one that it begins with: variables, network and command.
func wholeTemplate(ctx context.Context, c *client.Client, name string) (*api.Template, error) {
	t, err := c.Template(ctx, name)
	below := t.Template
	for n := 0; err == nil && below != "" && n < api.MaxTemplates; n++ { // more would be a circle
		var b api.Template
		if b, err = c.Template(ctx, below); err == nil {
			if t.PassEnv == nil {
				t.PassEnv = b.PassEnv
			}
			if t.Network.IsZero() {
				t.Network = b.Network
			}
			if t.Entrypoint == nil && t.Cmd == nil {
				t.Entrypoint, t.Cmd = b.Entrypoint, b.Cmd
			}
			below = b.Template
		}
	}
	return &t, err
}

// addTo adds what the flags allow and block to a template's policy: otherwise a name that is allowed here would take
// the agent's model away. A mode, or a file, takes the template's place.
func (f *netFlags) addTo(policy, flags api.NetPolicy) api.NetPolicy {
	if flags.IsZero() || policy.Effective() != api.NetAllow || f.mode != "" || f.learn != "" || f.file != "" {
		return flags
	}
	policy.Allow = slices.Concat(policy.Allow, flags.Allow)
	policy.Block = slices.Concat(policy.Block, flags.Block)
	policy.AllowCIDRs = slices.Concat(policy.AllowCIDRs, flags.AllowCIDRs)
	policy.BlockCIDRs = slices.Concat(policy.BlockCIDRs, flags.BlockCIDRs)
	policy.Ask = policy.Ask || flags.Ask
	return policy
}

// spec is the sandbox's, with the variables that its template names.
func (a *agent) spec(t *api.Template) (api.Spec, error) {
	o := a.flags
	if o.spec.Limits.TimeoutS > 0 {
		o.timeout, o.spec.Limits.TimeoutS = o.spec.Limits.TimeoutS, 0
	}
	o.spec.Template, o.spec.Undo, o.spec.Keep = a.name, true, true
	spec, err := o.build("")
	if err != nil {
		return spec, err
	}
	spec.Network = o.network.addTo(t.Network, spec.Network)
	if spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	spec.Labels[labelAgent], spec.Labels[labelAgentExec] = a.name, a.exec
	var passed []string
	for _, name := range t.PassEnv {
		value, set := os.LookupEnv(name)
		if _, given := spec.Env[name]; !set || given {
			continue
		}
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		spec.Env[name] = value
		passed = append(passed, name)
	}
	if len(passed) == 0 && len(t.PassEnv) > 0 && len(spec.Env) == 0 {
		fmt.Fprintf(os.Stderr, "hutch: none of the variables that template %s passes on is set: %s\n", a.name,
			strings.Join(t.PassEnv, ", "))
	}
	if len(passed) > 0 {
		fmt.Fprintf(os.Stderr, "hutch: the agent gets from your environment, by its template: %s\n",
			strings.Join(passed, ", "))
	}
	return spec, nil
}

// run runs a new agent to its end, or leaves it.
func (a *agent) run(ctx context.Context, argv []string) error {
	p := api.ExecParams{Sandbox: a.sandbox, Exec: a.exec, Argv: argv}
	if t := a.flags.timeout; t > 0 {
		p.TimeoutS = &t
	}
	if !a.flags.detach && cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stdout) {
		a.tellBegun()
		return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return a.session().run(ctx, p) })
	}
	p.Background = true
	if _, err := a.client.ExecStart(ctx, p, nil); err != nil {
		return cli.StartFailure(err)
	}
	a.ran = true
	if a.flags.detach {
		if err := a.watchApart(); err != nil {
			tell(err)
		}
		a.tellBegun()
		_, err := fmt.Fprintln(a.out, a.sandbox)
		return err
	}
	a.tellBegun()
	return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return a.follow(ctx) })
}

func (a *agent) tellBegun() {
	fmt.Fprintf(os.Stderr, "hutch: agent %s runs in sandbox %s; %s comes back to it\n", a.name, a.sandbox, a.comeBack())
}

func (a *agent) comeBack() string { return "hutch agent --attach " + a.sandbox }

// session is the agent's, with the caller's terminal.
func (a *agent) session() *session {
	s := &session{client: a.client, signals: a.signals, interactive: true, tty: true, twice: true,
		detachKeys: a.flags.detachKeys, comeBack: a.comeBack()}
	if who, err := a.client.Peer(context.Background()); err == nil {
		s.owner = who.IDBase
	}
	return s
}

// runAttach comes back to an agent that runs, or to what it has left.
func (o *agentFlags) runAttach(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Usage(cmd.CommandPath(),
			fmt.Errorf("%q does not go with --attach, whose agent is there already", args[0]))
	}
	if err := o.check(cmd); err != nil {
		return err
	}
	ctx, signals := cli.CatchSignals(cmd.Context())
	defer signals.Stop()
	err := withDaemon(ctx, func(c *client.Client) error {
		sb, err := c.GetSandbox(ctx, o.attach)
		if err != nil {
			return err
		}
		a := &agent{flags: o, name: sb.Labels[labelAgent], sandbox: sb.ID, exec: sb.Labels[labelAgentExec],
			signals: signals, out: cmd.OutOrStdout(), client: c, asks: sb.Network.Ask}
		if a.name == "" || a.exec == "" {
			return api.Errorf(api.FailedPrecondition, "no agent was started in sandbox %s by hutch agent", sb.ID).
				WithOp("agent").WithHint("hutch logs and hutch workspace diff show what is in it")
		}
		rec, err := c.GetExec(ctx, a.exec)
		switch {
		case notFound(err): // with the processes of a sandbox that was stopped
			return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return nil, nil })
		case err != nil:
			return err
		case o.watch:
			return a.watch(ctx)
		case rec.TTY && rec.State == api.ExecRunning:
			return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return a.session().attach(ctx, a.exec) })
		case rec.TTY:
			return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return a.wait(ctx) })
		}
		return a.toTheEnd(ctx, func() (*api.ExecResult, error) { return a.follow(ctx) })
	})
	return interrupted(ctx, err)
}

// follow copies what the agent writes, from the start, until it ends. Signals are the agent's.
func (a *agent) follow(ctx context.Context) (*api.ExecResult, error) {
	s := &session{client: a.client}
	a.signals.Listen()
	a.signals.Started(s.target(ctx, a.exec))
	var from api.Offsets
	err := followDaemon(ctx, func(c *client.Client) error {
		at, err := c.Attach(ctx, a.exec, client.AttachOptions{From: from})
		if err != nil {
			return err
		}
		defer func() {
			from = at.Offsets()
			_ = at.Close()
		}()
		return follow(ctx, at, a.out)
	})
	if ctx.Err() != nil {
		s.kill(ctx, a.exec)
	}
	if err != nil {
		return nil, err
	}
	return a.wait(ctx)
}

func (a *agent) wait(ctx context.Context) (res *api.ExecResult, err error) {
	err = followDaemon(ctx, func(c *client.Client) error {
		r, err := c.ExecWait(ctx, api.WaitParams{Exec: a.exec, OutputBytes: 1})
		res = &r
		return err
	})
	return res, err
}

// toTheEnd waits for the agent, with notices of what it asks, and brings its changes to an end.
func (a *agent) toTheEnd(ctx context.Context, wait func() (*api.ExecResult, error)) (err error) {
	stop := a.noticeAsks(ctx)
	waited := func() (err error) {
		a.result, err = wait()
		return err
	}
	if tty := a.questions(); tty != nil {
		err = answeringAt(ctx, tty, func() *client.Client { return a.client }, a.sandbox, waited)
	} else {
		err = waited()
	}
	stop()
	cli.Regain(os.Stdout)
	if !cli.IsTerminal(os.Stdout) {
		cli.Regain(os.Stderr)
	}
	var exit *cli.Exit
	switch {
	case errors.As(err, &exit):
		a.ran = a.ran || exit.Err == nil // it was left; otherwise there is no such program
		return err
	case err != nil:
		a.ran = true
		fmt.Fprintf(os.Stderr, "hutch: nothing was applied, and the changes are kept: %s\n", a.comeBack())
		return err
	}
	a.ran = true
	a.signals.Stop() // the agent is gone
	ctx = context.WithoutCancel(ctx)
	return followDaemon(ctx, func(c *client.Client) error {
		a.client = c
		return a.finish(ctx)
	})
}

// questions is the terminal at which somebody can be asked about connections; nil where nobody is asked, or elsewhere.
func (a *agent) questions() *os.File {
	if !a.asks {
		return nil
	}
	if cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stdout) { // it is the agent's
		fmt.Fprintln(os.Stderr, "hutch: what it wants to connect to is asked elsewhere: hutch network asks")
		return nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return tty
}
