package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newImageSave() *cobra.Command {
	output, format := "", api.FormatOCIArchive
	cmd := &cobra.Command{
		Use:   "save [flags] IMAGE",
		Short: "Write an image, with its layers, into an archive",
		Long: `Write an image into an archive that hutch image import, docker load, podman load and
skopeo read.

Layers are kept unpacked, and are packed anew, without compression. Those of hutch commit
come out as they are; those that another program packed get other digests, and the image
another id.`,
		Example: `  hutch image save -o tools.tar tools:1
  hutch image save --format docker-archive tools:1 | docker load`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return export(cmd, args[0], format, output) },
	}
	outputFlag(cmd, &output)
	cmd.Flags().Func("format", "`FORMAT` of the archive: oci-archive (default) or docker-archive",
		func(v string) error {
			format = api.ImageFormat(v)
			if format != api.FormatOCIArchive && format != api.FormatDockerArchive {
				return fmt.Errorf("%q is not oci-archive or docker-archive", v)
			}
			return nil
		})
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(
		[]cobra.Completion{string(api.FormatOCIArchive), string(api.FormatDockerArchive)},
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func newImageExport() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "export [flags] IMAGE",
		Short: "Write the files of an image, without its layers, as tar",
		Long: `Write what a sandbox of the image sees at its start, as one tar archive. What the image
says of how it runs is not in it.`,
		Example: `  hutch image export -o rootfs.tar tools:1
  hutch image export debian:12 | tar t`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error { return export(cmd, args[0], api.FormatRootfs, output) },
	}
	outputFlag(cmd, &output)
	return cmd
}

func outputFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "output", "o", "-", "`FILE` to write, - for stdout")
}

// export writes an image into a file of the caller's. One that has the name before keeps
// its content until the new one is whole.
func export(cmd *cobra.Command, ref string, format api.ImageFormat, output string) error {
	ctx, signals := cli.CatchSignals(cmd.Context())
	defer signals.Stop()
	return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
		if output == "-" {
			if f, ok := cmd.OutOrStdout().(*os.File); ok && cli.IsTerminal(f) {
				return api.Errorf(api.InvalidArgument, "standard output is a terminal").
					WithHint("name a file (-o FILE), or send it to one or to a command: | tar t")
			}
			return exportTo(ctx, c, ref, format, cmd.OutOrStdout())
		}
		if st, err := os.Stat(output); err == nil && !st.Mode().IsRegular() {
			return exportInto(ctx, c, ref, format, output)
		}
		f, err := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+".*")
		if err != nil {
			return wrongExport(err)
		}
		defer os.Remove(f.Name()) // fails when all went well
		err = exportTo(ctx, c, ref, format, f)
		if err == nil {
			err = wrongExport(f.Sync())
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		return wrongExport(os.Rename(f.Name(), output))
	}))
}

// exportInto writes into what is no file, a named pipe for example.
func exportInto(ctx context.Context, c *client.Client, ref string, format api.ImageFormat, output string) error {
	f, err := os.OpenFile(output, os.O_WRONLY, 0)
	if err != nil {
		return wrongExport(err)
	}
	return errors.Join(exportTo(ctx, c, ref, format, f), f.Close())
}

func exportTo(ctx context.Context, c *client.Client, ref string, format api.ImageFormat, to io.Writer) error {
	return wrongExport(pullThrough(ctx, func(ctx context.Context, w *os.File) error {
		_, err := c.ExportImage(ctx, api.ExportParams{Ref: ref, Format: format}, w)
		return err
	}, func(r io.Reader) error {
		_, err := copyAll(to, r)
		return err
	}))
}

// wrongExport says what to do about files here that cannot be written.
func wrongExport(err error) error {
	var e *api.Error
	if err == nil || errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	return api.Errorf(api.FailedPrecondition, "%w", err).WithOp("save").
		WithHint("choose a file in a folder that you may write, with space for the image")
}
