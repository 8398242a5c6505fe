package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newImage() *cobra.Command {
	cmd := &cobra.Command{
		Use:  "image",
		Args: cobra.ArbitraryArgs,
		RunE: parentOnly,
	}
	cmd.AddCommand(newImagePull(), newImageLs(), newImageInspect(), newImageRm(), newImageImport(), newImageSave(),
		newImageExport(),
		newImageTag(), newImageDu(), newImagePrune(), newImageVerify())
	return cmd
}

func newImagePull() *cobra.Command {
	platform, quiet := "", false
	cmd := &cobra.Command{
		Use:   "pull [flags] IMAGE",
		Short: "Fetch an image from its registry",
		Example: `  hutch image pull debian:12
  hutch image pull --platform linux/arm64 127.0.0.1:5000/tools:1`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Ctrl-C ends the pull in the daemon, too.
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				p := api.PullParams{Ref: args[0], Platform: platform}
				img, err := pull(ctx, c, p, quiet)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), img.Digest)
				return err
			}))
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "`OS/ARCH` (default: this machine's)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return cmd
}

// pull fetches an image. Its progress is off the screen when it returns.
func pull(ctx context.Context, c *client.Client, p api.PullParams, quiet bool) (api.Image, error) {
	if quiet {
		return c.PullImage(ctx, p, nil)
	}
	progress := cli.NewPullProgress(os.Stderr, cli.IsTerminal(os.Stderr))
	defer progress.Close()
	return c.PullImage(ctx, p, progress.Update)
}

func newImageLs() *cobra.Command {
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "List the images in the store",
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.ListImages(cmd.Context())
				if err != nil {
					return err
				}
				return printImages(cmd, list, quiet, asJSON)
			})
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "references only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the records")
	return cmd
}

func printImages(cmd *cobra.Command, list []api.Image, quiet, asJSON bool) error {
	w := cmd.OutOrStdout()
	switch {
	case asJSON:
		return printJSON(w, append([]api.Image{}, list...))
	case quiet:
		for _, img := range list {
			fmt.Fprintln(w, img.Ref)
		}
		return nil
	}
	t := cli.Table{
		Header: []string{"IMAGE", "DIGEST", "PLATFORM", "CREATED", "SIZE"},
		Right:  []bool{4: true},
	}
	now := time.Now()
	for _, img := range list {
		created := ""
		if img.Created != nil {
			created = cli.Ago(now, *img.Created)
		}
		t.Row(img.Ref, shortDigest(img.Digest), img.Platform, created, cli.Bytes(img.SizeBytes))
	}
	t.Print(w, "", nil)
	return nil
}

// shortDigest is enough of a digest for people to tell images apart.
func shortDigest(d string) string {
	const hex = 12
	if algo, sum, ok := strings.Cut(d, ":"); ok && algo == "sha256" && len(sum) > hex {
		return sum[:hex]
	}
	return d
}

func newImageInspect() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "Print the record of an image as JSON",
		Args:  wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				img, err := c.InspectImage(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printJSON(cmd.OutOrStdout(), img)
			})
		},
	}
}

func newImageRm() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images and the layers that nothing else needs",
		Args:  wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				for _, ref := range args {
					if err := c.RemoveImage(cmd.Context(), ref); err != nil {
						return err
					}
					fmt.Fprintln(cmd.OutOrStdout(), ref)
				}
				return nil
			})
		},
	}
	ignored(cmd.Flags(), "force,f")
	return cmd
}
