package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newScope() *cobra.Command {
	cmd := &cobra.Command{
		Use: "scope COMMAND",
		Long: `A scope, KIND:KEY, has one sandbox: hutch run --scope and hutch create --scope use it, and make it when there
is none. What one command installs in it the next one finds. The sandbox of an agent, and a shared one, stays until
the scope is ended; that of a session ends with the last program that is connected and has asked for it.`,
		Example: `  hutch run --scope agent:reviewer python@3.12 -- pip install requests
  hutch run --scope agent:reviewer python@3.12 -- python3 -c 'import requests'
  hutch scope reset agent:reviewer   # a new sandbox, made as the old one was
  hutch scope end agent:reviewer`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newScopeLs(), newScopeReset(), newScopeEnd())
	return cmd
}

func newScopeLs() *cobra.Command {
	quiet, asJSON := false, false
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the scopes that have a sandbox",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.Scopes(cmd.Context())
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				switch {
				case asJSON:
					return printJSON(out, list)
				case quiet:
					for i := range list {
						fmt.Fprintln(out, list[i].Scope)
					}
					return nil
				}
				t := cli.Table{Header: []string{"SCOPE", "SANDBOX", "NAME", "IMAGE", "STATE", "CONNECTIONS"}}
				for i := range list {
					s := &list[i]
					t.Row(s.String(), s.Sandbox, s.Name, s.Image, string(s.State), strconv.Itoa(s.Connections))
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

func newScopeReset() *cobra.Command {
	return &cobra.Command{
		Use:   "reset KIND:KEY",
		Short: "Replace a scope's sandbox by a new one, made as it was, and print its id",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withScope(cmd, args[0], func(c *client.Client, s api.Scope) error {
				sb, err := c.ResetScope(cmd.Context(), s)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), sb.ID)
				return err
			})
		},
	}
}

func newScopeEnd() *cobra.Command {
	return &cobra.Command{
		Use:     "end KIND:KEY...",
		Aliases: []string{"rm"},
		Short:   "Remove the sandboxes of scopes",
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				err := withScope(cmd, arg, func(c *client.Client, s api.Scope) error {
					_, err := c.EndScope(cmd.Context(), s)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// withScope calls f with the scope that the user has named.
func withScope(cmd *cobra.Command, name string, f func(*client.Client, api.Scope) error) error {
	s, err := api.ParseScope(name)
	if err != nil {
		return cli.Usage(cmd.CommandPath(), err)
	}
	return withDaemon(cmd.Context(), func(c *client.Client) error { return f(c, s) })
}
