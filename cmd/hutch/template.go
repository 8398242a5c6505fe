package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
	"github.com/hutch-sh/hutch/runtime/template/define"
)

func newTemplate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "template COMMAND",
		Long: `Keep what sandboxes are made of under a name: an image or another template, environment, limits, network
policy, steps that are run once, a command that is started in each sandbox, what is waited for, ports.
What steps have written is kept as an image; the same steps over the same image are not run twice.`,
		Example: `  hutch template create -f web.yaml
  hutch run --template web -- curl -s localhost:8000
  hutch template create --dockerfile Dockerfile tools .`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newTemplateCreate(), newTemplateBuild(), newTemplateLs(), newTemplateInspect(), newTemplateRm())
	return cmd
}

// templateFlags are those of template create.
type templateFlags struct {
	file, dockerfile string
	args             []string
	replace, noBuild bool
	quiet            bool
}

func newTemplateCreate() *cobra.Command {
	o := &templateFlags{}
	cmd := &cobra.Command{
		Use:   "create [flags] [NAME] [FOLDER]",
		Short: "Make a template of a file, and run its steps",
		Long: `Make a template of a YAML file, of a Dockerfile, or of both, and run its steps.

A YAML file has the names of the JSON-RPC method template.create; sizes and times as people write them, and
cpu_cores, memory_mb, disk_mb, max_processes, timeout_seconds, network_enabled, allowed_domains and
blocked_domains are understood as well. Of Dockerfiles FROM, ARG, ENV, RUN, COPY, WORKDIR, USER, EXPOSE, CMD
and ENTRYPOINT are; a CMD beside EXPOSE is a server, which is started in each sandbox and waited for.

Files that steps copy are below FOLDER, by default that of the file; .dockerignore is honoured.`,
		Example: `  hutch template create -f web.yaml
  hutch template create --dockerfile Dockerfile --build-arg VERSION=2 tools .
  hutch template create --replace -f web.yaml`,
		Args: wantArgs(0, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				name, err := o.create(ctx, c, args)
				if err != nil {
					return err
				}
				if !o.noBuild {
					if _, err := buildTemplate(ctx, c, api.TemplateBuildParams{Template: name}, o.quiet); err != nil {
						return err
					}
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			}))
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "file", "f", "", "YAML `FILE`, - is standard input")
	fs.StringVar(&o.dockerfile, "dockerfile", "", "Dockerfile, `FILE`")
	fs.StringArrayVar(&o.args, "build-arg", nil, "value of an ARG of the Dockerfile, `NAME=VALUE`; may be repeated")
	fs.BoolVar(&o.replace, "replace", false, "put it in the place of a template of that name")
	fs.BoolVar(&o.noBuild, "no-build", false, "leave the steps to the first sandbox, or to hutch template build")
	fs.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	return cmd
}

// create reads the files and keeps the template.
func (o *templateFlags) create(ctx context.Context, c *client.Client, args []string) (name string, err error) {
	t, folder, err := o.read(ctx, c)
	if err != nil {
		return "", err
	}
	if len(args) > 0 {
		t.Spec.Name = args[0]
	}
	if len(args) > 1 {
		folder = args[1]
	}
	p := api.TemplateCreateParams{TemplateSpec: t.Spec, Replace: o.replace}
	if len(t.Copies) == 0 {
		_, err := c.CreateTemplate(ctx, p)
		return p.Name, err
	}
	files, err := t.Resolve(folder)
	if err != nil {
		return "", err
	}
	defer files.Close()
	p.Steps, p.Context = t.Spec.Steps, new(int)
	return p.Name, pushThrough(ctx, func(w io.Writer) error { return files.Pack(ctx, w) },
		func(ctx context.Context, r *os.File) error {
			_, err := c.CreateTemplate(ctx, p, r)
			return err
		})
}

// read reads what defines the template, and says where the files are that its steps copy.
func (o *templateFlags) read(ctx context.Context, c *client.Client) (t *define.Template, folder string, err error) {
	if o.file == "" && o.dockerfile == "" {
		return nil, "", cli.Usage("hutch template create", errors.New("-f FILE or --dockerfile FILE is missing"))
	}
	t, folder = &define.Template{}, "."
	if o.file != "" {
		var data []byte
		if data, err = readInput(o.file); err == nil {
			t, err = define.YAML(data, parseYAML)
		}
		if err != nil {
			return nil, "", named(o.file, err)
		}
		if o.file != "-" {
			folder = filepath.Dir(o.file)
		}
	}
	from := o.dockerfile
	switch {
	case from != "" && t.Dockerfile != "":
		return nil, "", cli.Usage("hutch template create", fmt.Errorf("--dockerfile %s: %s names %s", from, o.file,
			t.Dockerfile))
	case t.Dockerfile != "":
		from = filepath.Join(folder, t.Dockerfile)
	case from != "" && o.file == "":
		folder = filepath.Dir(from)
	case from == "" && len(o.args) > 0:
		return nil, "", cli.Usage("hutch template create", errors.New("--build-arg is for a Dockerfile"))
	}
	if from == "" {
		return t, folder, nil
	}
	values := maps.Clone(t.Args)
	if values == nil {
		values = map[string]string{}
	}
	for _, a := range o.args {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			value = os.Getenv(name)
		}
		values[name] = value
	}
	data, err := define.ReadFile(from)
	var below *define.Template
	if err == nil {
		below, err = define.Dockerfile(data, values,
			func(image string) (map[string]string, error) { return imageEnv(ctx, c, image, 0) })
	}
	if err != nil {
		return nil, "", named(from, err)
	}
	t, err = t.On(below)
	return t, folder, named(o.file, err)
}

// named puts the name of a file in front of an error about it.
func named(file string, err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Op == "" {
		copied := *e
		copied.Msg = file + ": " + e.Msg
		return &copied
	}
	return err
}

func readInput(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(io.LimitReader(os.Stdin, define.MaxFile+1))
	}
	return define.ReadFile(file)
}

// defaultPath is what commands have whose image says nothing.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// imageEnv is the environment that an image, or a template of that name, has; the image is fetched where it has to be.
func imageEnv(ctx context.Context, c *client.Client, image string, depth int) (map[string]string, error) {
	const deep = 16
	if t, err := c.Template(ctx, image); err == nil && !t.Shipped && depth < deep {
		env, err := imageEnv(ctx, c, t.Image+t.Template, depth+1)
		if err == nil {
			maps.Copy(env, t.Env)
		}
		return env, err
	}
	img, err := c.InspectImage(ctx, image)
	if api.ErrorCode(err) == api.NotFound {
		img, err = pull(ctx, c, api.PullParams{Ref: image, Policy: api.PullMissing}, !cli.IsTerminal(os.Stderr))
	}
	env := map[string]string{"PATH": defaultPath}
	for _, e := range img.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	return env, err
}

func newTemplateBuild() *cobra.Command {
	p, quiet, asJSON := api.TemplateBuildParams{}, false, false
	cmd := &cobra.Command{
		Use:   "build [flags] TEMPLATE...",
		Short: "Run the steps of templates again where something has changed",
		Long: `Run the steps of templates in a sandbox, and keep what they have written, unless they, and what they begin with,
are as they were. What the steps write is shown. A step that fails ends it, and nothing is kept.`,
		Example: `  hutch template build --pull always web`,
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				for _, name := range args {
					p.Template = name
					r, err := buildTemplate(ctx, c, p, quiet)
					if err != nil {
						return err
					}
					if asJSON {
						err = printJSON(cmd.OutOrStdout(), r)
					} else {
						_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&p.NoCache, "no-cache", false, "run the steps although nothing has changed")
	fs.StringVar((*string)(&p.Pull), "pull", "",
		"fetch the image that it begins with `WHEN`: missing (default), always or never")
	fs.BoolVarP(&quiet, "quiet", "q", false, "no progress")
	fs.BoolVar(&asJSON, "json", false, "print the results")
	return cmd
}

// buildTemplate runs the steps and shows what they write, but for that of an error, which has it.
func buildTemplate(ctx context.Context, c *client.Client, p api.TemplateBuildParams,
	quiet bool) (api.TemplateBuildResult, error) {
	if quiet {
		return c.BuildTemplate(ctx, p, nil)
	}
	pull := cli.NewPullProgress(os.Stderr, cli.IsTerminal(os.Stderr))
	show := cli.NewStepProgress(os.Stderr)
	r, err := c.BuildTemplate(ctx, p, func(n api.Progress) {
		if n.Step != nil {
			pull.Clear()
			show.Update(*n.Step)
			return
		}
		pull.Update(n)
	})
	pull.Close()
	show.Close()
	if err == nil && r.Cached {
		fmt.Fprintf(os.Stderr, "%s: nothing has changed, its steps were not run\n", p.Template)
	}
	return r, err
}

func newTemplateLs() *cobra.Command {
	quiet, asJSON := false, false
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the templates, also those that come with hutch",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.Templates(cmd.Context())
				if err != nil {
					return err
				}
				return printTemplates(cmd.OutOrStdout(), list, quiet, asJSON)
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

func printTemplates(w io.Writer, list []api.Template, quiet, asJSON bool) error {
	if asJSON {
		return printJSON(w, list)
	}
	table := cli.Table{Header: []string{"TEMPLATE", "FROM", "STEPS", "BUILT", "POOL", "DESCRIPTION"}}
	for i := range list {
		t := &list[i]
		if quiet {
			fmt.Fprintln(w, t.Name)
			continue
		}
		built := "-"
		switch {
		case t.Built != nil:
			built = "yes"
		case len(t.Steps) > 0:
			built = "no"
		}
		pool := "-"
		if t.PoolSize > 0 {
			pool = strconv.Itoa(t.PoolSize)
		}
		table.Row(t.Name, t.Image+t.Template, strconv.Itoa(len(t.Steps)), built, pool, t.Description)
	}
	if !quiet {
		table.Print(w, "", nil)
	}
	return nil
}

func newTemplateInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect TEMPLATE",
		Short: "Print all that is known of a template, as JSON",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				t, err := c.Template(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printJSON(cmd.OutOrStdout(), t)
			})
		},
	}
}

func newTemplateRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm TEMPLATE...",
		Short: "Remove templates with what their steps have made; sandboxes go on",
		Args:  wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				r, err := c.RemoveTemplate(ctx, name)
				if err != nil {
					return err
				}
				if r.Sandboxes > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "hutch: %d sandboxes of template %s go on\n", r.Sandboxes, name)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
}
