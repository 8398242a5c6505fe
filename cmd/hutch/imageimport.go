package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newImageImport() *cobra.Command {
	o := &importing{}
	var quiet bool
	cmd := &cobra.Command{
		Use:   "import [flags] SOURCE [IMAGE]",
		Short: "Make an image of an archive, or of a root file system",
		Long: `Make an image of what is in files. SOURCE is one of

  archive:FILE[:NAME]          what docker, podman and hutch image save write, as hutch load -i FILE
  docker-archive:FILE[:NAME]   the same, as docker has it alone
  oci-archive:FILE[:NAME]      the same, an OCI image layout as tar alone
  oci:DIR[:NAME]               an OCI image layout
  FILE                         a root file system as tar, plain, gzip, zstd, xz or bzip2
  DIR                          a root file system; your own files become root's

FILE may be -, for stdin. NAME chooses one of several images. IMAGE is what the image
will be called; an archive may know that itself. Archives are not compressed, layers
in them may be.`,
		Example: `  docker save app:1 | hutch image import archive:-
  hutch image import oci:./layout:1.0 app:1.0
  hutch image import --change 'CMD ["bash"]' rootfs.tar.gz tools:1`,
		Args: wantArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				o.params.Ref = args[1]
			}
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				o.client, o.quiet = c, quiet
				img, err := o.run(ctx, args[0])
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), img.Ref)
				return err
			}))
		},
	}
	cmd.Flags().StringVar(&o.params.Platform, "platform", "", "`OS/ARCH` (default: this machine's)")
	cmd.Flags().FuncP("change", "c",
		"of a root file system: how it runs, `INSTRUCTION` as in a Dockerfile: CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR; may be repeated", func(v string) error {
			if o.params.Changes == nil {
				o.params.Changes = &api.ConfigChanges{}
			}
			return cli.ParseChange(v, o.params.Changes)
		})
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return cmd
}

// importing is one import. Everything is opened here, with the rights of the user who
// asked for it, and read by the daemon through fds.
type importing struct {
	client *client.Client
	quiet  bool
	params api.ImportParams
}

func (o *importing) run(ctx context.Context, source string) (api.Image, error) {
	format, rest, found := strings.Cut(source, ":")
	o.params.Format = api.ImageFormat(format)
	switch {
	case found && slices.Contains([]api.ImageFormat{api.FormatArchive, api.FormatDockerArchive, api.FormatOCIArchive},
		o.params.Format):
		path, image := splitImage(rest)
		o.params.Image = image
		return o.file(ctx, path)
	case found && format == "oci":
		path, image := splitImage(rest)
		o.params.Format, o.params.Image = api.FormatOCIArchive, image
		return o.layout(ctx, path)
	}
	o.params.Format = api.FormatRootfs
	if st, err := os.Stat(source); err == nil && st.IsDir() {
		return o.folder(ctx, source)
	}
	return o.file(ctx, source)
}

// splitImage splits FILE[:NAME]. A file whose name holds a colon is that file.
func splitImage(s string) (path, image string) {
	path, image, found := strings.Cut(s, ":")
	if _, err := os.Lstat(s); found && err == nil {
		return s, ""
	}
	return path, image
}

// file sends a regular file as it is, and anything else through a pipe: the flags of
// the caller's own stdin stay the caller's.
func (o *importing) file(ctx context.Context, path string) (api.Image, error) {
	f := os.Stdin
	if path != "-" {
		var err error
		if f, err = os.Open(path); err != nil {
			return api.Image{}, wrongImport(err)
		}
		defer f.Close()
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return api.Image{}, wrongImport(err)
	case st.Mode().IsRegular():
		return o.send(ctx, f)
	case st.IsDir():
		return api.Image{}, api.Errorf(api.InvalidArgument, "%s is a folder, and an %s is a file", path,
			o.params.Format).
			WithHint("import an OCI image layout as oci:DIR, a root file system as DIR")
	case cli.IsTerminal(f):
		return api.Image{}, api.Errorf(api.InvalidArgument, "an archive does not come from a terminal").
			WithHint("send it through a pipe, or name a file")
	}
	return o.stream(ctx, func(w io.Writer) error {
		_, err := copyAll(w, f)
		return err
	})
}

// layout sends the parts of an OCI image layout that matter, as an archive.
func (o *importing) layout(ctx context.Context, path string) (api.Image, error) {
	if _, err := os.Stat(filepath.Join(path, "oci-layout")); err != nil {
		return api.Image{}, wrongImport(fmt.Errorf("%s is no OCI image layout: %w", path, err))
	}
	return o.tree(ctx, path, func(uid, gid uint32) (int, int) { return 0, 0 })
}

// folder sends a root file system. What belongs to the caller belongs to root in the
// image, as a sandbox shows it; root's own sends all as it is.
func (o *importing) folder(ctx context.Context, path string) (api.Image, error) {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	return o.tree(ctx, path, func(u, g uint32) (int, int) {
		if u == uid {
			u = 0
		}
		if g == gid {
			g = 0
		}
		return int(u), int(g)
	})
}

func (o *importing) tree(ctx context.Context, path string, owner func(uid, gid uint32) (int, int)) (api.Image, error) {
	dir, err := os.Open(path)
	if err != nil {
		return api.Image{}, wrongImport(err)
	}
	defer dir.Close()
	return o.stream(ctx, func(w io.Writer) error {
		stats, err := archive.PackRoot(ctx, w, int(dir.Fd()), owner)
		if err == nil && stats.Skipped > 0 && !o.quiet {
			fmt.Fprintf(os.Stderr, "hutch: left out %d devices and sockets\n", stats.Skipped)
		}
		return err
	})
}

// stream sends what feed writes through a pipe.
func (o *importing) stream(ctx context.Context, feed func(io.Writer) error) (img api.Image, err error) {
	err = pushThrough(ctx, feed, func(ctx context.Context, r *os.File) error {
		img, err = o.send(ctx, r)
		return err
	})
	return img, wrongImport(err)
}

func (o *importing) send(ctx context.Context, f *os.File) (api.Image, error) {
	if o.quiet {
		return o.client.ImportImage(ctx, o.params, f, nil)
	}
	progress := cli.NewPullProgress(os.Stderr, cli.IsTerminal(os.Stderr))
	defer progress.Close()
	return o.client.ImportImage(ctx, o.params, f, progress.Update)
}

// wrongImport says what to do about files here that cannot be read.
func wrongImport(err error) error {
	var e *api.Error
	if err == nil || errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	code, hint := api.FailedPrecondition, "check what is there"
	switch {
	case errors.Is(err, os.ErrNotExist):
		code, hint = api.NotFound, "give a file or folder; hutch image import --help lists the forms"
	case errors.Is(err, os.ErrPermission):
		code, hint = api.PermissionDenied,
			"files that you cannot read cannot be imported: make the archive as the user who can"
	}
	return api.Errorf(code, "%w", err).WithOp("import").WithHint("%s", hint)
}
