package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// removeTimeout bounds the removal of a sandbox after its command. A daemon that
// does not answer removes it when it sees the connection lost.
const removeTimeout = 30 * time.Second

// runFlags are what run adds to the flags of a new sandbox.
type runFlags struct {
	specFlags
	interactive, tty, detach, keep, remove, json, private bool

	mode       modeFlag
	publish    published
	pool       string  // take a sandbox out of it
	entrypoint *string // nil: not given
	detachKeys string
	timeout    *float64 // with -d or -t: the command's own, which has no maximum, instead of the sandbox's
	debug      bool     // debug run
	show       string   // what that shows, instead of telling the story
	breakAt    *breakpoint
}

func newRun() *cobra.Command {
	o := &runFlags{}
	cmd := &cobra.Command{
		Use: "run [flags] [IMAGE] [--] [CMD...]",
		Long: `Run a command in a new sandbox, and remove the sandbox when the command ends.

Flags end at IMAGE; what follows is the command, as it stands. IMAGE may be left
out before --: then it is the configured one, or "host", which is made of this
host's own programs and needs no registry. Without CMD the image's own runs.

Standard input is connected when it is a pipe or a file (</dev/null where a loop
reads the same one); a terminal only with -i or -t. Signals go to the command. A second Ctrl-C within two seconds ends the
sandbox, as does a command that is still there ten seconds after SIGTERM.`,
		Example: `  hutch run -- python3 -c 'print(6*7)'
  echo hello | hutch run host -- cat
  hutch run -it debian:12 bash
  hutch run --workspace .:overlay --timeout 60 -m 512m -- make test
  hutch run --json -- id`,
		Annotations: commandExitCodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			var image string
			var command []string
			err := error(nil)
			if o.spec.Template == "" || len(args) > 0 { // a template may have a command of its own
				image, command, err = imageAndCommand(cmd, args)
			}
			if err == nil && o.pool != "" {
				err = o.checkPool(cmd, image)
			}
			if err != nil {
				return err
			}
			o.mode.read(cmd.Flags())
			return meantProgram(runRun(cmd.Context(), o, image, command, cmd.OutOrStdout()), image, command)
		},
	}
	o.addRun(cmd)
	o.mode.add(cmd.Flags())
	return cmd
}

// imageAndCommand splits the arguments of run; no image is the default.
func imageAndCommand(cmd *cobra.Command, args []string) (image string, command []string, err error) {
	image, command = cli.SplitCommand(args, cmd.ArgsLenAtDash())
	switch {
	case len(args) == 0:
		err = cli.Usage(cmd.CommandPath(), errors.New("neither an image nor a command is given"))
	case image == "" && cmd.ArgsLenAtDash() != 0:
		err = cli.Usage(cmd.CommandPath(), errEmptyImage)
	}
	return image, command, err
}

// errEmptyImage is most likely an unset variable of a script, which must not
// choose the default.
var errEmptyImage = errors.New("the image's name is empty; leave it out before -- for the default")

func (o *runFlags) addRun(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	o.add(fs)
	o.publish.add(fs)
	fs.Func("entrypoint", "`COMMAND` instead of the image's Entrypoint and Cmd; \"\" for none", func(v string) error {
		o.entrypoint = &v
		return nil
	})
	fs.StringVar(&o.pool, "pool", "", "take the sandbox out of `POOL` instead of making one")
	fs.BoolVar(&o.private, "private", false, "use a daemon that lives and dies with this command")
	fs.BoolVarP(&o.interactive, "interactive", "i", false, "connect standard input also when it is a terminal")
	fs.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal, connected to yours")
	addDetachKeys(fs, &o.detachKeys)
	fs.BoolVarP(&o.detach, "detach", "d", false,
		"leave the command running in the background and print the sandbox's id")
	fs.BoolVar(&o.keep, "keep", false, "keep the sandbox after the command")
	fs.BoolFunc("rm", "remove the sandbox after the command (the default)", func(v string) error {
		remove, err := strconv.ParseBool(v)
		o.keep, o.remove = !remove, remove
		return err
	})
	fs.BoolVar(&o.json, "json", false,
		"print one JSON object with output, exit code, times and isolation; input with -i only")
}

// withPool are the flags that go with --pool: the others say what a sandbox is like, which the pool has
// said.
var withPool = []string{"pool", "mode", "name", "label", "entrypoint", "interactive", "tty", "detach", "detach-keys",
	"publish", "keep", "rm", "json", "timeout"}

// checkPool refuses what a sandbox that is there already cannot become.
func (o *runFlags) checkPool(cmd *cobra.Command, image string) (err error) {
	if image != "" {
		return cli.Usage("hutch run",
			fmt.Errorf("image %s does not go with --pool: the pool has its own; the command follows --", image))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains(withPool, f.Name) && err == nil {
			err = cli.Usage("hutch run", fmt.Errorf("--%s does not go with --pool, whose sandboxes are there already",
				f.Name))
		}
	})
	return err
}

// poolWait is how long run waits for a sandbox of a pool.
const poolWait = time.Minute

// acquire takes the sandbox out of the pool.
func (o *runFlags) acquire(ctx context.Context, c *client.Client, spec *api.Spec) (*api.Sandbox, error) {
	return acquire(ctx, c, *o.acquireParams(spec, spec.Owner))
}

func (o *runFlags) acquireParams(spec *api.Spec, owner string) *api.AcquireParams {
	return &api.AcquireParams{Pool: o.pool, WaitMS: float64(poolWait.Milliseconds()), Name: spec.Name,
		Labels: spec.Labels, Owner: owner}
}

func (o *runFlags) check(command []string) error {
	switch {
	case o.detach && (o.tty || o.interactive || o.json):
		return cli.Usage("hutch run", errors.New("-d does not go with -i, -t or --json"))
	case o.detach && o.private:
		return cli.Usage("hutch run",
			errors.New("-d does not go with --private: the sandbox would end with the command"))
	case o.keep && o.private:
		return cli.Usage("hutch run", errors.New("--keep does not go with --private: the sandbox ends with its daemon"))
	case o.json && o.tty:
		return cli.Usage("hutch run",
			errors.New("--json does not go with -t: a terminal's output is passed, not captured"))
	}
	return o.checkTimeout("hutch run", o.detach || o.tty)
}

// argv is the command that a sandbox runs: docker's rules. command is what
// follows IMAGE.
func (o *runFlags) argv(sb *api.Sandbox, command []string) ([]string, error) {
	argv := sb.Argv(o.entrypoint, command)
	if len(argv) == 0 {
		return nil, api.Errorf(api.InvalidArgument, "image %s has no command of its own, and none was given", sb.Image).
			WithOp("run").WithHint("hutch run %s -- CMD", sb.Image)
	}
	return argv, nil
}

// runRun is the whole of `hutch run`: create, exec, remove, in one call (fresh) unless something else is to be done in
// between.
func runRun(ctx context.Context, o *runFlags, image string, command []string, out io.Writer) error {
	if err := o.check(command); err != nil {
		return err
	}
	spec, err := o.build(image)
	if err != nil {
		return err
	}
	if t := spec.Limits.TimeoutS; t > 0 && (o.detach || o.tty || o.pool != "" || spec.Scope != nil) {
		o.timeout, spec.Limits.TimeoutS = &t, 0
	}
	var decision *api.Decision
	// Who names an image has named a sandbox: the configuration need not be read.
	if !o.debug && (image == "" || o.mode.mode != "") {
		h, err := o.hostCommand(&spec, image, command)
		if err != nil {
			return err
		}
		done, d, err := h.try(ctx, out)
		if done || err != nil {
			return err
		}
		decision = d
	}
	spec.Keep = o.keep || o.detach || spec.Scope != nil
	if o.detach && o.remove && spec.IdleS == 0 {
		spec.IdleS, spec.IdleAction = removeAfter, api.LifeRemove
	}
	if o.detach {
		return o.runDetached(ctx, spec, command, out)
	}
	ctx, signals := cli.CatchSignals(ctx)
	defer signals.Stop()
	r := &runner{flags: o, signals: signals, out: out, times: map[string]float64{}, decision: decision}
	return interrupted(ctx, r.run(ctx, spec, command))
}

// removeAfter is when the sandbox of -d --rm goes, in seconds behind the end of its last command.
const removeAfter = 1

// meantProgram asks whether a name that is no image is a program: hutch run ls.
func meantProgram(err error, image string, command []string) error {
	var known *api.Error
	if !errors.As(err, &known) || strings.ContainsAny(image, "/:@") || !strings.HasPrefix(known.Error(), "pull ") {
		return err
	}
	if _, no := exec.LookPath(image); image == "" || no != nil {
		return err
	}
	return known.WithHint("%s; or did you mean the program: hutch run -- %s", strings.TrimSuffix(known.Hint, "."),
		strings.Join(append([]string{image}, command...), " "))
}

// runDetached creates a sandbox that nobody owns, starts the command in it and
// leaves. A command that cannot be started leaves nothing.
func (o *runFlags) runDetached(ctx context.Context, spec api.Spec, command []string, out io.Writer) error {
	return withDaemon(ctx, func(c *client.Client) error {
		var sb *api.Sandbox
		var err error
		if o.pool != "" {
			sb, err = o.acquire(ctx, c, &spec)
		} else {
			sb, err = create(ctx, c, api.CreateParams{Spec: spec}, nil)
		}
		if err != nil {
			return err
		}
		ports, err := o.publish.expose(ctx, c, sb.ID, false)
		var argv []string
		if err == nil {
			o.publish.tell(ports)
			argv, err = o.argv(sb, command)
		}
		if err == nil {
			_, err = c.ExecStart(ctx, api.ExecParams{Sandbox: sb.ID, Argv: argv, Background: true, TimeoutS: o.timeout},
				nil)
		}
		if err != nil {
			err = cli.StartFailure(err)
			if sb.Existing { // others have it, too
				return err
			}
			_, rerr := c.Remove(context.WithoutCancel(ctx), sb.ID)
			unlinkSockets(ports)
			return errors.Join(err, rerr)
		}
		_, err = fmt.Fprintln(out, sb.ID)
		return err
	})
}

// runner is one run on its way.
type runner struct {
	flags   *runFlags
	signals *cli.Signals
	out     io.Writer
	client  *client.Client
	peer    client.Peer
	times   map[string]float64 // phases as this process sees them, ms
	result  *api.ExecResult    // of the command that has ended
	overlay bool               // the workspace's mode
	ports   []api.Port         // of -p
	// decision is why it is not on the host, where the mode is not all.
	decision *api.Decision
}

func (r *runner) run(ctx context.Context, spec api.Spec, command []string) error {
	if r.inOneCall(&spec) {
		return r.fresh(ctx, spec, command)
	}
	if !spec.Keep {
		spec.Owner = api.OwnerConnection
	}
	sb, err := r.begin(ctx, spec)
	if err != nil {
		return err
	}
	r.overlay = spec.Workspace != nil && spec.Workspace.Mode == api.ModeOverlay
	defer func() { tell(r.client.Close()) }()
	defer func() { tell(r.finish(ctx, sb)) }()
	argv, err := r.flags.argv(sb, command)
	if err != nil {
		return err
	}
	if r.ports, err = r.flags.publish.expose(ctx, r.client, sb.ID, false); err != nil {
		return err
	}
	r.flags.publish.tell(r.ports)
	if err := r.showBefore(ctx, sb); err != nil {
		return err
	}
	if b := r.flags.breakAt; b.inside() {
		if err := r.stopInside(ctx, sb, b); err != nil {
			return err
		}
	}
	if r.flags.debug && r.flags.json {
		return r.narrateJSON(ctx, sb, argv)
	}
	if r.flags.debug && r.flags.show == "" {
		return r.narrate(ctx, sb, argv)
	}
	if spec.Network.Ask {
		return r.answering(ctx, sb, argv)
	}
	return r.exec(ctx, sb, argv)
}

// tell prints a failure to clean up. The command's outcome, and with it the exit
// code, stands.
func tell(err error) {
	if err != nil {
		cli.PrintError(os.Stderr, cli.StyleFor(os.Stderr), err)
	}
}

// phase measures one step.
func (r *runner) phase(name string) func() {
	start := time.Now()
	return func() { r.times["client."+name] = float64(time.Since(start).Microseconds()) / 1e3 }
}

// begin connects and creates the sandbox. One that a hutchd was killed over belongs to
// its connection, and so is gone, or goes: another is made.
func (r *runner) begin(ctx context.Context, spec api.Spec) (sb *api.Sandbox, err error) {
	for range maxResumes {
		if err = r.connect(ctx); err == nil {
			if sb, err = r.create(ctx, spec); err == nil {
				return sb, nil
			}
			err = errors.Join(err, r.client.Close())
		}
		if r.flags.keep || r.flags.private || spec.Scope != nil || !errors.Is(err, client.ErrLost) {
			break
		}
	}
	return nil, err
}

func (r *runner) connect(ctx context.Context) (err error) {
	defer r.phase("connect")()
	if r.client, err = connect(ctx, r.flags.private); err != nil {
		return err
	}
	if r.peer, err = r.client.Peer(ctx); err != nil {
		return errors.Join(err, r.client.Close())
	}
	return nil
}

func (r *runner) create(ctx context.Context, spec api.Spec) (*api.Sandbox, error) {
	if r.flags.pool != "" {
		defer r.phase("acquire")()
		return r.flags.acquire(ctx, r.client, &spec)
	}
	defer r.phase("create")()
	return create(ctx, r.client, api.CreateParams{Spec: spec, Debug: r.flags.debug}, r.flags.breakAt.outside())
}

func (r *runner) exec(ctx context.Context, sb *api.Sandbox, argv []string) error {
	done := r.phase("exec")
	s := &session{
		client: r.client, signals: r.signals, owner: r.peer.IDBase,
		interactive: r.flags.interactive, tty: r.flags.tty,
		private: r.flags.private, owned: !r.flags.keep, detachKeys: r.flags.detachKeys,
	}
	defer func() { r.client = s.conn() }()
	p := api.ExecParams{Sandbox: sb.ID, Argv: argv, TimeoutS: r.flags.timeout}
	if !r.flags.json {
		res, err := s.run(ctx, p)
		done()
		if err != nil {
			return err
		}
		if r.result = res; !r.flags.debug || r.flags.show != "" {
			tellDenials(os.Stderr, res, sb.ID)
		}
		return cli.Outcome(res)
	}
	res, err := s.capture(ctx, p)
	done()
	if err != nil {
		return err
	}
	return r.printJSON(sb, res)
}

// runResult is the object that --json prints.
type runResult struct {
	*api.ExecResult
	Sandbox   string             `json:"sandbox"`
	PhasesMS  map[string]float64 `json:"phases_ms"`
	Isolation api.Isolation      `json:"isolation"`
	// Unenforced are limits that this host cannot enforce.
	Unenforced []api.Unenforced `json:"unenforced,omitempty"`
	Note       string           `json:"note,omitempty"`  // why it ran in another image
	Ports      []api.Port       `json:"ports,omitempty"` // of -p
	// Where and Decision say why it ran in a sandbox, where the mode is not all.
	Where    api.Where     `json:"where,omitempty"`
	Decision *api.Decision `json:"decision,omitempty"`
}

func (r *runner) printJSON(sb *api.Sandbox, res *api.ExecResult) error {
	phases := r.times
	for name, ms := range sb.PhasesMS {
		phases[name] = ms
	}
	about := runResult{ExecResult: res, Sandbox: sb.ID, PhasesMS: phases, Isolation: sb.Isolation,
		Unenforced: sb.Unenforced, Note: sb.Note, Ports: r.ports, Decision: r.decision}
	if r.decision != nil {
		about.Where = r.decision.Decision
	}
	if err := printJSON(r.out, about); err != nil {
		return err
	}
	return quiet(cli.Outcome(res))
}

// finish removes the sandbox, or tells where it is. ctx may be done by now.
func (r *runner) finish(ctx context.Context, sb *api.Sandbox) error {
	ctx = context.WithoutCancel(ctx)
	if r.overlay && !r.flags.json && r.result != nil {
		r.summarize(ctx, sb)
	}
	if sb.Scope != nil { // which decides when it ends
		return nil
	}
	if r.flags.keep {
		if !r.flags.json {
			fmt.Fprintf(os.Stderr, "hutch: kept sandbox %s\n", sb.ID)
		}
		return nil
	}
	done := r.phase("remove")
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_, err := r.client.Remove(ctx, sb.ID)
	if !r.flags.private && errors.Is(err, client.ErrLost) { // the next hutchd can do it
		err = followDaemon(ctx, func(c *client.Client) error {
			_, err := c.Remove(ctx, sb.ID)
			return err
		})
	}
	done()
	unlinkSockets(r.ports)
	if err == nil || notFound(err) {
		return r.showAfter(sb)
	}
	return err
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
