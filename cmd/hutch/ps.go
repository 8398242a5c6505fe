package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newPs() *cobra.Command {
	var all, quiet, asJSON bool
	var labels []string
	cmd := &cobra.Command{
		Use:     "ps [flags]",
		Short:   "List sandboxes",
		GroupID: groupSandbox,
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := cli.ParseLabels(labels)
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.ListSandboxes(cmd.Context(), want)
				if err != nil {
					return err
				}
				return printSandboxes(cmd, living(list, all), quiet, asJSON)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&all, "all", "a", false, "also those that have ended, and those that wait in pools")
	fs.BoolVarP(&quiet, "quiet", "q", false, "ids only")
	fs.BoolVar(&asJSON, "json", false, "print the records")
	fs.StringArrayVarP(&labels, "label", "l", nil, "only those with `NAME[=VALUE]`; may be repeated")
	return cmd
}

// living leaves out what has ended, or waits in a pool, unless all is set. It is never nil, so that
// no sandbox is an empty JSON list.
func living(list []api.Sandbox, all bool) []api.Sandbox {
	kept := make([]api.Sandbox, 0, len(list))
	for _, sb := range list {
		if all || sb.State != api.Stopped && sb.State != api.Failed && sb.State != api.Waiting {
			kept = append(kept, sb)
		}
	}
	return kept
}

func printSandboxes(cmd *cobra.Command, list []api.Sandbox, quiet, asJSON bool) error {
	w := cmd.OutOrStdout()
	switch {
	case asJSON:
		return printJSON(w, list)
	case quiet:
		for _, sb := range list {
			fmt.Fprintln(w, sb.ID)
		}
		return nil
	}
	t := cli.Table{Header: []string{"ID", "NAME", "IMAGE", "STATE", "CREATED"}}
	now := time.Now()
	for _, sb := range list {
		t.Row(sb.ID, sb.Name, sb.Image, string(sb.State), cli.Ago(now, sb.Created))
	}
	t.Print(w, "", nil)
	return nil
}
