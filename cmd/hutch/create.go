package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newCreate() *cobra.Command {
	o := &specFlags{}
	asJSON := false
	var publish published
	cmd := &cobra.Command{
		Use: "create [flags] [IMAGE]",
		Long: `Create a sandbox, print its id and leave it running until hutch rm.
Without IMAGE it is the configured one, or "host".`,
		Example: `  id=$(hutch create host)
  hutch exec $id -- uname -n
  hutch rm -f $id`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			image := ""
			if len(args) > 0 {
				if image = args[0]; image == "" {
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
			spec.Keep = true
			return createAndPrint(cmd.Context(), spec, publish, asJSON, cmd.OutOrStdout())
		},
	}
	cmd.Flags().SetInterspersed(false)
	o.add(cmd.Flags())
	publish.add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole record")
	return cmd
}

func createAndPrint(ctx context.Context, spec api.Spec, publish published, asJSON bool, out io.Writer) error {
	return withDaemon(ctx, func(c *client.Client) error {
		sb, err := create(ctx, c, api.CreateParams{Spec: spec}, nil)
		if err != nil {
			return err
		}
		ports, err := publish.expose(ctx, c, sb.ID, false)
		if err != nil {
			if !sb.Existing {
				_, rerr := c.Remove(context.WithoutCancel(ctx), sb.ID)
				err = errors.Join(err, rerr)
				unlinkSockets(ports)
			}
			return err
		}
		publish.tell(ports)
		if asJSON {
			return printJSON(out, sb)
		}
		_, err = fmt.Fprintln(out, sb.ID)
		return err
	})
}

// create opens the folders of p's spec and creates the sandbox. A download shows
// on a terminal. at may be nil.
func create(ctx context.Context, c *client.Client, p api.CreateParams, at *breakpoint) (*api.Sandbox, error) {
	who, err := c.Peer(ctx)
	if err != nil {
		return nil, err
	}
	news, done := pullProgress(p.Template != "")
	defer done()
	var sb api.Sandbox
	err = hostfs.Lend(who.IDBase, p.Spec, func(opened api.Spec, files []*os.File) (err error) {
		p, progress := p, news
		p.Spec = opened
		if at != nil {
			if progress, err = at.arm(ctx, &p, &files, news, done); err != nil {
				return err
			}
			defer at.close()
		}
		if sb, err = c.CreateSandbox(ctx, p, files, progress); err != nil {
			return err
		}
		tell(noteLent(sb.ID, &opened, files))
		return nil
	})
	done() // before anything else is written there
	warnUnenforced(os.Stderr, sb.Note, sb.Unenforced)
	return &sb, err
}

// pullProgress shows a download on a terminal, and the steps of a template anywhere, until done is called, which may be
// called again.
func pullProgress(template bool) (progress func(api.Progress), done func()) {
	terminal := cli.IsTerminal(os.Stderr)
	if !terminal && !template {
		return nil, func() {}
	}
	pull, show := cli.NewPullProgress(os.Stderr, terminal), cli.NewStepProgress(os.Stderr)
	return func(n api.Progress) {
		switch {
		case n.Step != nil:
			pull.Clear()
			step := *n.Step
			step.Output = "" // hutch template build shows it
			show.Update(step)
		case terminal:
			pull.Update(n)
		}
	}, pull.Close
}
