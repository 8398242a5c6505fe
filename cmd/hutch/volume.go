package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newVolume() *cobra.Command {
	cmd := &cobra.Command{
		Use: "volume COMMAND",
		Long: `A volume is a folder that hutch keeps, by name. Sandboxes mount it with -v NAME:/where[:ro|rw|overlay]; with rw, the
default, one that is not there is made. It stays until it is removed, and what is in it counts in the disk limit
of every sandbox that may write to it.`,
		Example: `  hutch run -v pip:/root/.cache/pip python@3.12 -- pip install requests
  hutch volume ls --size
  hutch volume rm pip`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newVolumeCreate(), newVolumeLs(), newVolumeRm())
	return cmd
}

func newVolumeCreate() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Make an empty volume",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				v, err := c.CreateVolume(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), v.Name)
				return err
			})
		},
	}
}

func newVolumeLs() *cobra.Command {
	var quiet, asJSON, size bool
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the volumes",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.Volumes(cmd.Context(), api.VolumeListParams{Usage: size})
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
				volumeTable(list, size).Print(out, "", nil)
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "names only")
	cmd.Flags().BoolVarP(&size, "size", "s", false, "measure what they hold; every file is looked at")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, a list")
	return cmd
}

func volumeTable(list []api.Volume, size bool) *cli.Table {
	t := &cli.Table{Header: []string{"NAME", "CREATED", "SANDBOXES"}}
	if size {
		t.Header = append(t.Header, "SIZE")
	}
	for i := range list {
		v := &list[i]
		row := []string{v.Name, cli.Ago(time.Now(), v.Created), strings.Join(v.Sandboxes, ",")}
		if size {
			text := "?"
			if v.Bytes != nil {
				text = cli.Bytes(*v.Bytes)
			}
			row = append(row, text)
		}
		t.Row(row...)
	}
	return t
}

func newVolumeRm() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove volumes that no sandbox has mounted, with all that is in them",
		Args:    wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				for _, name := range args {
					if err := c.RemoveVolume(cmd.Context(), name); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}
