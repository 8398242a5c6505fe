package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newUpdate() *cobra.Command {
	o := &specFlags{}
	l := &o.spec.Limits
	var ttl *float64
	asJSON := false
	cmd := &cobra.Command{
		Use: "update [flags] SANDBOX...",
		Long: `Change limits of sandboxes that run. What is not named stays as it is. --timeout,
--cpu-time, --output-limit and --ulimit are for commands that start later.`,
		Example: `  hutch update -m 2g --cpus 1.5 web
  hutch update --pids-limit none --ttl 1h web`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if *l == (api.Limits{}) && ttl == nil {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("no limit is named: %s", cmd.UseLine()))
			}
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				sb, err := c.Update(ctx, api.UpdateParams{Sandbox: name, Limits: *l, TTLS: ttl})
				if err != nil {
					return err
				}
				warnUnenforced(cmd.ErrOrStderr(), sb.Note, sb.Unenforced)
				if asJSON {
					return printJSON(cmd.OutOrStdout(), sb)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
	fs := cmd.Flags()
	addGroupLimits(fs, l)
	fs.Func("timeout", "kill a command after `TIME`: seconds, or 1m30s", func(v string) (err error) {
		if l.TimeoutS, err = cli.ParseTimeout(v); err == nil && l.TimeoutS == 0 {
			err = fmt.Errorf("%q is no time at all", v)
		}
		return err
	})
	addExecLimits(fs, l)
	fs.Func("ttl", "end the sandbox's life `TIME` from now, or none", func(v string) error {
		s, err := 0.0, error(nil)
		if v != "none" {
			s, err = cli.ParseTimeout(v)
		}
		ttl = &s
		return err
	})
	fs.BoolVar(&asJSON, "json", false, "print the records")
	return cmd
}
