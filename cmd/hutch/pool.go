package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newPool() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pool COMMAND",
		Long: `Keep sandboxes ready before anybody needs one. Those of a pool are all made alike; each is used
once, and removed when it is released. Pools live as long as the daemon; the section pools of the
configuration file makes some whenever it starts.`,
		Example: `  hutch pool create --size 4 --network open py python@3.12
  hutch run --pool py -- python3 -c 'print(6*7)'
  id=$(hutch pool acquire py) && hutch exec $id -- python3 -V && hutch pool release $id`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newPoolCreate(), newPoolLs(), newPoolAcquire(), newPoolRelease(), newPoolResize(), newPoolRm())
	return cmd
}

func newPoolCreate() *cobra.Command {
	o := &specFlags{}
	size, prewarm := 1, true
	cmd := &cobra.Command{
		Use:   "create [flags] POOL [IMAGE]",
		Short: "Make a pool, and wait until its first sandbox is ready",
		Long: `Make a pool, and wait until its first sandbox is ready. The flags are those of hutch create, but for what belongs to
one user of a sandbox: its name, its workspace and its mounts.`,
		Example: `  hutch pool create --size 4 py python@3.12`,
		Args:    wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) > 1 {
				if image = args[1]; image == "" {
					return cli.Usage(cmd.CommandPath(), errEmptyImage)
				}
			}
			if err := o.checkTimeout(cmd.CommandPath(), false); err != nil {
				return err
			}
			spec, err := o.build(image)
			if err != nil {
				return err
			}
			p := api.PoolSpec{Name: args[0], Size: size, Sandbox: spec}
			if !prewarm {
				p.Prewarm = &prewarm
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				progress, done := pullProgress(spec.Template != "")
				defer done()
				_, err := c.CreatePool(cmd.Context(), p, progress)
				return err
			})
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.add(cmd.Flags())
	cmd.Flags().IntVar(&size, "size", 1, fmt.Sprintf("how many wait, `N` from 1 to %d", api.MaxPoolSize))
	cmd.Flags().BoolVar(&prewarm, "prewarm", true, "make them now; =false makes the first when somebody asks")
	return cmd
}

func newPoolLs() *cobra.Command {
	quiet, asJSON := false, false
	cmd := &cobra.Command{
		Use:     "ls [flags] [POOL...]",
		Aliases: []string{"status", "list"},
		Short:   "Show how pools are filled",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := pools(cmd.Context(), c, args)
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				switch {
				case asJSON:
					return printJSON(out, list)
				case quiet:
					for i := range list {
						fmt.Fprintln(out, list[i].Name)
					}
					return nil
				}
				t := cli.Table{Header: []string{"POOL", "IMAGE", "SIZE", "AVAILABLE", "IN USE", "ERROR"}}
				for i := range list {
					p := &list[i]
					t.Row(p.Name, p.Sandbox.Image, strconv.Itoa(p.Size), strconv.Itoa(p.Available),
						strconv.Itoa(p.InUse), p.Error)
				}
				t.Print(out, "", nil)
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

// pools are those of these names, or all.
func pools(ctx context.Context, c *client.Client, names []string) ([]api.Pool, error) {
	if len(names) == 0 {
		return c.Pools(ctx)
	}
	list := make([]api.Pool, 0, len(names))
	for _, name := range names {
		p, err := c.Pool(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func newPoolAcquire() *cobra.Command {
	p := api.AcquireParams{}
	asJSON := false
	var labels []string
	cmd := &cobra.Command{
		Use:   "acquire [flags] POOL",
		Short: "Take a sandbox out of a pool and print its id",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Pool = args[0]
			if p.Labels, err = cli.ParseLabels(labels); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				sb, err := acquire(cmd.Context(), c, p)
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(cmd.OutOrStdout(), sb)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), sb.ID)
				return err
			})
		},
	}
	fs := cmd.Flags()
	fs.Func("wait", "wait for up to `TIME` when none is ready: seconds, or 1m30s", func(v string) error {
		s, err := cli.ParseTimeout(v)
		p.WaitMS = s * 1000
		return err
	})
	fs.StringVar(&p.Name, "name", "", "`NAME` that other commands may use instead of the id")
	fs.StringArrayVarP(&labels, "label", "l", nil, "label, `NAME[=VALUE]`; may be repeated")
	fs.BoolVar(&asJSON, "json", false, "print the whole record")
	return cmd
}

// acquire makes an error of a pool that has none.
func acquire(ctx context.Context, c *client.Client, p api.AcquireParams) (*api.Sandbox, error) {
	sb, err := c.Acquire(ctx, p)
	if err == nil && sb == nil {
		err = api.Errorf(api.Unavailable, "no sandbox of pool %q is ready", p.Pool).WithOp("pool.acquire").
			WithHint("wait for one: hutch pool acquire --wait 10 %s; or keep more ready: hutch pool resize %s N",
				p.Pool, p.Pool)
	}
	return sb, err
}

func newPoolRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "release SANDBOX...",
		Short: "Remove sandboxes that were acquired from a pool",
		Args:  wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				if _, err := c.Release(ctx, name); err != nil {
					return err
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
}

func newPoolResize() *cobra.Command {
	return &cobra.Command{
		Use:   "resize POOL N",
		Short: "Change how many sandboxes wait",
		Args:  wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("%q is no number", args[1]))
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				_, err := c.ResizePool(cmd.Context(), args[0], n)
				return err
			})
		},
	}
}

func newPoolRm() *cobra.Command {
	return &cobra.Command{
		Use:   "rm POOL...",
		Short: "Remove pools with what waits in them",
		Args:  wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				r, err := c.RemovePool(ctx, name)
				if err != nil {
					return err
				}
				if r.InUse > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(),
						"hutch: %d of pool %s are in use, and go on until they are released\n", r.InUse, name)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
}
