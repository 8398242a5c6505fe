package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newCommit() *cobra.Command {
	var p api.CommitParams
	var change api.ConfigChanges
	changed, quiet := false, false
	cmd := &cobra.Command{
		Use: "commit [flags] SANDBOX IMAGE",
		Long: `Make an image of what a sandbox has written and the image that it was made of: one more
layer. The sandbox, which may run or be stopped, stands still meanwhile. Workspaces and
volumes are not in the image, nor are devices, sockets and the files that hutch makes for
each sandbox: /etc/hosts, /etc/hostname and /etc/resolv.conf.

--cmd and --entrypoint take a JSON array, or a line for the shell.`,
		Example: `  hutch commit builder tools:1
  hutch commit -m "with numpy" --cmd '["python3"]' --env PYTHONUNBUFFERED=1 sb_1a2b3c numpy:1`,
		Args: wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Sandbox, p.Ref = args[0], args[1]
			if changed {
				p.Changes = &change
			}
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				r, err := commit(ctx, c, p, quiet)
				if err != nil {
					return err
				}
				if r.LeftOut > 0 && !quiet {
					fmt.Fprintf(os.Stderr, "hutch: left out %d files that no image holds: %q\n", r.LeftOut,
						r.LeftOutNames)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), r.Image.Ref)
				return err
			}))
		},
	}
	instruction := func(name, short, flag, usage string) {
		cmd.Flags().FuncP(flag, short, usage, func(v string) error {
			changed = true
			return cli.ParseChange(name+" "+v, &change)
		})
	}
	pair := func(flag, short, usage string, to *map[string]string) {
		cmd.Flags().FuncP(flag, short, usage, func(v string) error {
			name, value, found := strings.Cut(v, "=")
			if !found || name == "" {
				return errors.New("it is not NAME=VALUE")
			}
			if changed = true; *to == nil {
				*to = make(map[string]string)
			}
			(*to)[name] = value
			return nil
		})
	}
	instruction("CMD", "", "cmd", "default `COMMAND` of the image")
	instruction("ENTRYPOINT", "", "entrypoint", "`COMMAND` that the default command, or another one, is added to")
	instruction("WORKDIR", "w", "workdir", "working `DIR`")
	instruction("USER", "u", "user", "`USER[:GROUP]` that runs it, names or ids")
	pair("env", "e", "environment, `NAME=VALUE`; may be repeated", &change.Env)
	pair("label", "l", "label, `NAME=VALUE`; may be repeated", &change.Labels)
	cmd.Flags().FuncP("change", "c", "any other `INSTRUCTION`, as in hutch image import; may be repeated",
		func(v string) error {
			changed = true
			return cli.ParseChange(v, &change)
		})
	cmd.Flags().StringVarP(&p.Message, "message", "m", "", "`TEXT` for the image's history")
	cmd.Flags().StringVarP(&p.Author, "author", "a", "", "`NAME` for the image's history")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress, and no word of what was left out")
	return cmd
}

// commit makes the image. Its progress is off the screen when it returns.
func commit(ctx context.Context, c *client.Client, p api.CommitParams, quiet bool) (api.Committed, error) {
	if quiet || !cli.IsTerminal(os.Stderr) { // lines would say no more than the result
		return c.Commit(ctx, p, nil)
	}
	progress := cli.NewPullProgress(os.Stderr, true)
	defer progress.Close()
	return c.Commit(ctx, p, progress.Update)
}
