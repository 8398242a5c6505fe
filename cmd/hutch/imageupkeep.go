package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newImageTag() *cobra.Command {
	return &cobra.Command{
		Use:   "tag IMAGE NAME",
		Short: "Give an image one more name",
		Args:  wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				img, err := c.TagImage(cmd.Context(), api.TagParams{Ref: args[0], Target: args[1]})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), img.Ref)
				return err
			})
		},
	}
}

func newImageDu() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "du [flags]",
		Short: "Show what images take on disk",
		Long: `Show what images take on disk. UNIQUE is what removing the image would free; layers that
images share count for each of them, and once in the sum.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				d, err := c.ImageDiskUse(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), d)
				}
				t := cli.Table{Header: []string{"IMAGE", "SIZE", "UNIQUE", "IN USE"}, Right: []bool{1: true, 2: true}}
				for _, i := range d.Images {
					t.Row(i.Ref, cli.Bytes(i.Bytes), cli.Bytes(i.UniqueBytes),
						map[bool]string{true: "yes", false: "no"}[i.InUse])
				}
				t.Print(cmd.OutOrStdout(), "", nil)
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "total %s, of which hutch image prune frees %s\n",
					cli.Bytes(d.Bytes), cli.Bytes(d.UnusedBytes))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the record")
	return cmd
}

func newImagePrune() *cobra.Command {
	p := api.PruneParams{}
	cmd := &cobra.Command{
		Use:   "prune [flags]",
		Short: "Remove layers that no image has",
		Long: `Remove layers that no image has and, with --all, images that no sandbox uses. What a
sandbox uses stays.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				r, err := c.PruneImages(cmd.Context(), p)
				if err != nil {
					return err
				}
				for _, ref := range r.Removed {
					fmt.Fprintln(cmd.OutOrStdout(), ref)
				}
				_, err = fmt.Fprintf(cmd.ErrOrStderr(), "freed %s\n", cli.Bytes(r.Bytes))
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&p.All, "all", "a", false, "remove images that no sandbox uses, too")
	ignored(cmd.Flags(), "force,f")
	return cmd
}

func newImageVerify() *cobra.Command {
	p, asJSON := api.VerifyParams{}, false
	cmd := &cobra.Command{
		Use:   "verify [flags] [IMAGE]",
		Short: "Compare the files of images with what was unpacked",
		Long: `Read the files of an image, or of all images, and compare them with what was recorded
when they were unpacked: contents, modes, owners, times and links. Damage is told, and
the command fails; with --repair damaged layers are fetched again, if no sandbox uses them.`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Ref = strings.Join(args, "")
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				checks, err := c.VerifyImages(ctx, p)
				if err != nil {
					return err
				}
				if asJSON {
					if err := printJSON(cmd.OutOrStdout(), checks); err != nil {
						return err
					}
				} else {
					printLayers(cmd, checks)
				}
				return damaged(checks)
			}))
		},
	}
	cmd.Flags().BoolVar(&p.Repair, "repair", false, "fetch damaged layers again")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the records")
	return cmd
}

func printLayers(cmd *cobra.Command, checks []api.LayerCheck) {
	w := cmd.OutOrStdout()
	t := cli.Table{Header: []string{"LAYER", "STATUS", "FILES", "READ", "IMAGES"}, Right: []bool{2: true, 3: true}}
	for _, c := range checks {
		t.Row(shortLayerName(c.Layer), string(c.Status), fmt.Sprint(c.Files), cli.Bytes(c.Bytes),
			strings.Join(c.Images, " "))
	}
	t.Print(w, "", nil)
	for _, c := range checks {
		for _, problem := range c.Problems {
			fmt.Fprintf(w, "%s: %s\n", shortLayerName(c.Layer), cli.Line(problem))
		}
		if c.MoreProblems > 0 {
			fmt.Fprintf(w, "%s: and %d more\n", shortLayerName(c.Layer), c.MoreProblems)
		}
	}
}

// shortLayerName is enough of a folder of the store to tell it from the others.
func shortLayerName(name string) string {
	const digits = 12
	if _, sum, ok := strings.Cut(name, "-"); ok && len(sum) > digits {
		return sum[:digits]
	}
	return name
}

// damaged is the error of a verification that found damage which is still there.
func damaged(checks []api.LayerCheck) error {
	n := 0
	for _, c := range checks {
		if c.Status == api.LayerDamaged {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return api.Errorf(api.FailedPrecondition, "%d of %d layers are damaged", n, len(checks)).WithOp("verify").
		WithHint("hutch image verify --repair fetches them again; check the disk")
}
