package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newInspect() *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:  "inspect [flags] SANDBOX...",
		Long: "Print the record of a sandbox as JSON: of several a list.",
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var f *formatter
			if format != "" {
				var err error
				if f, err = parseFormat(format); err != nil {
					return cli.Usage(cmd.CommandPath(), err)
				}
			}
			var list []any
			err := eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				sb, err := c.GetSandbox(ctx, name)
				if err == nil {
					list = append(list, sb)
				}
				return err
			})
			out := cmd.OutOrStdout()
			switch {
			case len(list) == 0:
				return err
			case f != nil:
				err = cmp.Or(err, f.print(out, list...))
			case len(args) == 1:
				err = cmp.Or(err, printJSON(out, list[0]))
			default:
				err = cmp.Or(err, printJSON(out, list))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "", "a line for each, such as `{{.State}}`, or json")
	return cmd
}
