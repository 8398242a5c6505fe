package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newUndo() *cobra.Command {
	p, folders := api.CheckpointRestoreParams{}, folderFlags{}
	asJSON := false
	cmd := &cobra.Command{
		Use: "undo [flags] SANDBOX",
		Long: `Give a sandbox the files again that it had before a call of a tool or of code.run: the last one that was not undone, or
--to names one, with all that came after it. The sandbox must have been made with --undo. It prints the calls that were
undone, and the id by which that is taken back itself. Processes end, kept interpreters of code.run too; volumes
stay as they are.`,
		Example: `  hutch create --name box --undo --workspace .:overlay python@3.12
  hutch undo ls box
  hutch undo box
  hutch undo box --to tc_3hx4k2m6w5qa`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Sandbox = args[0]
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				var r api.CheckpointRestored
				err := folders.lend(cmd.Context(), c, findLent(p.Sandbox),
					func(given []api.StartFolder, files []*os.File) (err error) {
						p.Folders = given
						r, err = c.RestoreCheckpoint(cmd.Context(), p, files...)
						return err
					})
				switch out := cmd.OutOrStdout(); {
				case err != nil:
					return err
				case asJSON:
					return printJSON(out, r)
				default:
					return printUndone(cmd, &r)
				}
			})
		},
	}
	cmd.Flags().StringVar(&p.ToCall, "to", "", "go back to before this `CALL`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known")
	folders.add(cmd.Flags())
	cmd.AddCommand(newUndoLs())
	return cmd
}

func printUndone(cmd *cobra.Command, r *api.CheckpointRestored) error {
	for _, call := range r.Undone {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), call); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr,
		"hutch: the files are those of before %s, and its processes have ended; to take that back: hutch undo --to %s %s\n", r.ToCall, r.Call, r.ID)
	if len(r.NotCovered) > 0 {
		fmt.Fprintf(os.Stderr, "hutch: volumes stay as they are: %s\n", strings.Join(r.NotCovered, ", "))
	}
	return nil
}

func newUndoLs() *cobra.Command {
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [flags] SANDBOX",
		Aliases: []string{"list"},
		Short:   "List the calls that can be undone, oldest first",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.Checkpoints(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if asJSON {
					return printJSON(out, list)
				}
				t := &cli.Table{Header: []string{"CALL", "TOOL", "WHEN", "SIZE", "UNDONE", "PATHS"}}
				for i := range list.Checkpoints {
					k := &list.Checkpoints[i]
					if quiet {
						fmt.Fprintln(out, k.Call)
					}
					undone := ""
					if k.Undone {
						undone = "yes"
					}
					t.Row(k.Call, k.Tool, cli.Ago(time.Now(), k.Time), cli.Bytes(k.Bytes), undone,
						strings.Join(strings.Fields(cli.Printable(strings.Join(k.Paths, " "))), " "))
				}
				if !quiet {
					t.Print(out, "", nil)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "calls only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known")
	return cmd
}
