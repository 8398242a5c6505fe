package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot COMMAND",
		Long: `A snapshot is what the files of a sandbox are at a time. "hutch snapshot restore" gives the sandbox these files again,
"hutch fork --snapshot" makes others that go on from there. It stays when the sandbox and the daemon are gone.
Processes are not in it, nor folders of yours in mode rw, nor volumes.`,
		Example: `  hutch snapshot create --name before fix
  hutch snapshot diff before             # what is other now
  hutch snapshot restore before
  hutch fork --snapshot before -n 4`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newSnapshotCreate(), newSnapshotLs(), newSnapshotDiff(), newSnapshotRestore(), newSnapshotRm())
	return cmd
}

func newSnapshotCreate() *cobra.Command {
	p := api.SnapshotCreateParams{}
	var labels []string
	cmd := &cobra.Command{
		Use:   "create [flags] SANDBOX",
		Short: "Keep what the files of a sandbox are now, and print the snapshot's id",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			p.Sandbox = args[0]
			if p.Labels, err = cli.ParseLabels(labels); err != nil {
				return err
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				sn, err := c.CreateSnapshot(cmd.Context(), p)
				if err != nil {
					return err
				}
				tell(noteSnapshot(p.Sandbox, sn.ID, p.Name))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), sn.ID)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&p.Name, "name", "", "`NAME` of the snapshot")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label `KEY=VALUE`; may be repeated")
	return cmd
}

func newSnapshotLs() *cobra.Command {
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the snapshots, oldest first",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.Snapshots(cmd.Context(), api.SnapshotListParams{})
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if asJSON {
					return printJSON(out, list)
				}
				t := &cli.Table{Header: []string{"SNAPSHOT", "NAME", "SANDBOX", "IMAGE", "CREATED", "SIZE"}}
				for i := range list {
					sn := &list[i]
					if quiet {
						fmt.Fprintln(out, sn.ID)
					}
					t.Row(sn.ID, sn.Name, sn.Sandbox, sn.Image, cli.Ago(time.Now(), sn.Created), cli.Bytes(sn.Bytes))
				}
				if !quiet {
					t.Print(out, "", nil)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "ids only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

func newSnapshotRestore() *cobra.Command {
	folders := folderFlags{}
	cmd := &cobra.Command{
		Use:   "restore [flags] SNAPSHOT",
		Short: "Give a sandbox the files again that it had when the snapshot was taken",
		Long: `Give a sandbox the files again that it had when the snapshot was taken. Its processes end; its id, name, limits and
policy stay as they are now. Its folders of the host's are opened again, as for "hutch start".`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				p := api.SnapshotRestoreParams{Snapshot: args[0]}
				var r api.SnapshotRestored
				err := folders.lend(cmd.Context(), c, findSnapshot(args[0]),
					func(given []api.StartFolder, files []*os.File) (err error) {
						p.Folders = given
						r, err = c.RestoreSnapshot(cmd.Context(), p, files...)
						return err
					})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), r.ID)
				return err
			})
		},
	}
	folders.add(cmd.Flags())
	return cmd
}

func newSnapshotRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm SNAPSHOT...",
		Aliases: []string{"remove"},
		Short:   "Remove snapshots; what was forked from them goes on",
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				for _, ref := range args {
					if err := c.RemoveSnapshot(cmd.Context(), ref); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func newFork() *cobra.Command {
	p, folders := api.ForkParams{}, folderFlags{}
	var labels []string
	var snapshot, asJSON bool
	cmd := &cobra.Command{
		Use: "fork [flags] SANDBOX",
		Long: `Make sandboxes that go on from the files of another one, each for itself, and print their ids. Its files are not copied
for each: all share them, and write over them. Processes are not forked.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if p.Sandbox = args[0]; snapshot {
				p.Sandbox, p.Snapshot = "", args[0]
			}
			if p.Labels, err = cli.ParseLabels(labels); err != nil {
				return err
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				from := findLent(args[0])
				if snapshot {
					from = findSnapshot(args[0])
				}
				r, err := forks(cmd.Context(), c, &folders, from, p)
				if err != nil {
					return err
				}
				tell(noteForks(from, p.Name, r.Sandboxes))
				if asJSON {
					return printJSON(cmd.OutOrStdout(), r)
				}
				for i := range r.Sandboxes {
					fmt.Fprintln(cmd.OutOrStdout(), r.Sandboxes[i].ID)
				}
				return nil
			})
		},
	}
	cmd.Flags().IntVarP(&p.Count, "count", "n", 1, "make `N` of them, 1 to 100")
	cmd.Flags().StringVar(&p.Name, "name", "", "`NAME` of a single one")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil,
		"label `KEY=VALUE`, over those of the sandbox; may be repeated")
	cmd.Flags().BoolVar(&snapshot, "snapshot", false, "SANDBOX is a snapshot")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known of them")
	folders.add(cmd.Flags())
	return cmd
}

// forks makes p.Count of them, all or none. lent are the folders that the user has handed over before, which are for
// one at a time; those of a sandbox that runs are at hand.
func forks(ctx context.Context, c *client.Client, folders *folderFlags, lent *lent, p api.ForkParams) (all api.Forked,
	err error) {
	if p.Count == 0 {
		p.Count = -1 // whoever types it does not mean the default
	}
	if err := p.Validate(); err != nil {
		return all, err
	}
	if p.Snapshot == "" {
		if sb, err := c.GetSandbox(ctx, p.Sandbox); err == nil && sb.State == api.Running {
			lent = nil
		}
	}
	fork := func(given []api.StartFolder, files []*os.File) error {
		one := p
		if one.Folders = given; len(given) > 0 {
			one.Count = 1
		}
		made, err := c.Fork(ctx, one, files...)
		made.Sandboxes = append(all.Sandboxes, made.Sandboxes...)
		all = made
		return err
	}
	for err == nil && len(all.Sandboxes) < p.Count {
		err = folders.lend(ctx, c, lent, fork)
	}
	if err == nil {
		return all, nil
	}
	for i := range all.Sandboxes { // of no use without the others
		_, rerr := c.Remove(context.WithoutCancel(ctx), all.Sandboxes[i].ID)
		err = errors.Join(err, rerr)
	}
	return all, err
}
