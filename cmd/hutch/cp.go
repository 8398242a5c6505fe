package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/archive"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/guard"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// copying is one hutch cp.
type copying struct {
	client  *client.Client
	stderr  io.Writer
	user    string
	follow  bool  // -L: the source's symbolic link
	owner   bool  // -a
	sync    bool  // only what differs
	prune   bool  // with sync: remove what is not in the source
	maxSize int64 // bytes that a sandbox may make on the host
	unguard []string
}

// place is a source or a destination.
type place struct {
	sandbox string // "" on this host
	path    string
}

func (p place) local() bool { return p.sandbox == "" }

// stream is the place "-".
func (p place) stream() bool { return p.local() && p.path == "-" }

// contents reports whether a folder's contents are meant and not the folder, as
// docker has it: SRC/. is that, and so is what has no name of its own.
func (p place) contents() bool {
	base := path.Base(p.path)
	return strings.HasSuffix(p.path, "/.") || base == "." || base == ".." || base == "/"
}

// Of an archive that comes out of a sandbox.
const (
	maxCopyEntries = 2_000_000
	maxCopyBytes   = 64 << 30 // default of --max-size
)

func newCp() *cobra.Command {
	o := &copying{maxSize: maxCopyBytes}
	cmd := &cobra.Command{
		Use: "cp [flags] SRC SANDBOX:DST | SANDBOX:SRC DST",
		Long: `Copy a file or a folder into or out of a sandbox that runs, as docker cp does:

  DST is a folder            SRC is copied into it; of SRC/. only the contents are
  DST does not exist         it becomes the copy; the folder above it must exist
  SRC or DST is -            a tar archive from standard input or to standard output

A path in the sandbox that is not absolute starts at its working folder. What is
copied in belongs to the sandbox's user. What comes out belongs to you and keeps
its permissions, but no setuid bits; devices, and symbolic links that lead out of
the folder, are left out, and named. So is what programs of yours would obey there
(hutch config guard), unless SRC or --unguard names it; of a .git its history comes. A SRC that is a symbolic link itself comes out
only with -L. A local path with a colon is written ./a:b.`,
		Example: `  hutch cp report.txt box:/tmp/
  hutch cp src/. box:/workspace
  hutch cp --sync --delete src box:/src    # again and again: only what has changed
  hutch cp box:/out .
  hutch cp box:/var/log - | tar tv`,
		Args: wantArgs(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parsePlace(args[0]), parsePlace(args[1])
			if from.local() == to.local() {
				return cli.Usage(cmd.CommandPath(),
					errors.New("one of SRC and DST is in a sandbox, SANDBOX:PATH, and the other is not"))
			}
			if o.prune && !o.sync {
				return cli.Usage(cmd.CommandPath(), errors.New("--delete goes with --sync"))
			}
			if o.sync && (to.local() || from.stream()) {
				return cli.Usage(cmd.CommandPath(), errors.New("--sync is for a folder that is copied into a sandbox"))
			}
			for i, name := range o.unguard {
				if name == "all" {
					o.unguard[i] = guard.All
				} else if !guard.Known(name) {
					return cli.Usage(cmd.CommandPath(),
						fmt.Errorf("--unguard %s: nothing of that name is guarded; hutch config guard shows what is",
							name))
				}
			}
			o.stderr = cmd.ErrOrStderr()
			ctx, signals := cli.CatchSignals(cmd.Context())
			defer signals.Stop()
			return interrupted(ctx, withDaemon(ctx, func(c *client.Client) error {
				o.client = c
				if o.sync {
					return o.syncIn(ctx, from, to)
				}
				if from.local() {
					return o.in(ctx, from, to)
				}
				return o.out(ctx, from, to, cmd.OutOrStdout())
			}))
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.follow, "follow-link", "L", false, "if SRC is a symbolic link, copy what it leads to")
	fs.BoolVarP(&o.owner, "archive", "a", false, "into a sandbox: keep the numbers of users and groups")
	fs.BoolVar(&o.sync, "sync", false,
		"a folder into a sandbox: make DST the same as SRC, copying only what differs by size or time")
	fs.BoolVar(&o.prune, "delete", false, "with --sync: remove from DST what is not in SRC")
	fs.StringVarP(&o.user, "user", "u", "", "use the files as `USER[:GROUP]` inside (default: the sandbox's)")
	fs.StringArrayVar(&o.unguard, "unguard", nil,
		"out of a sandbox: bring `NAME` of hutch config guard as well, or all; may be repeated")
	fs.Func("max-size", "out of a sandbox: stop after `SIZE` (default 64g)", func(v string) (err error) {
		o.maxSize, err = cli.ParseSize(v)
		return err
	})
	return cmd
}

// parsePlace tells SANDBOX:PATH from a local path, as docker does.
func parsePlace(arg string) place {
	name, rest, found := strings.Cut(arg, ":")
	if !found || name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "/") {
		return place{path: arg}
	}
	if rest == "" {
		rest = "."
	}
	return place{name, rest}
}

// file are the params of a file in the sandbox.
func (o *copying) file(p place) api.FileParams {
	return api.FileParams{Sandbox: p.sandbox, Path: p.path, User: o.user}
}

// stat describes a place in the sandbox; nil means that nothing is there.
func (o *copying) stat(ctx context.Context, p place, follow bool) (*api.File, error) {
	f, err := o.client.StatFile(ctx, api.FileStatParams{FileParams: o.file(p), Follow: follow})
	if notFound(err) {
		// The sandbox may be what was not found.
		if _, serr := o.client.GetSandbox(ctx, p.sandbox); serr != nil {
			return nil, serr
		}
		return nil, nil
	}
	return &f, err
}

// target is what a copy of from is called at to, where exists and isFolder say
// what is there.
func target(from, to string, fromFolder, exists, isFolder bool) (string, error) {
	base := path.Base(from)
	switch {
	case !exists && !fromFolder && strings.HasSuffix(to, "/"):
		return "", api.Errorf(api.NotFound, "%s: there is no such folder", to).WithOp("cp").
			WithHint("make it first, or leave out the slash")
	case !exists:
		return strings.TrimRight(to, "/"), nil
	case fromFolder && !isFolder:
		return "", api.Errorf(api.AlreadyExists, "%s is a file: a folder cannot be copied there", to).WithOp("cp").
			WithHint("name a folder")
	case !isFolder, fromFolder && (place{path: from}).contents():
		return to, nil
	}
	return path.Join(to, base), nil
}

// skipped tells what was left out.
func (o *copying) skipped(n int64, names []string) {
	if n == 0 {
		return
	}
	text := fmt.Sprintf("hutch: %d left out (devices, fifos, sockets, links out of the folder)", n)
	for i, name := range names {
		text += [2]string{": ", ", "}[min(i, 1)] + cli.Line(name)
	}
	if len(names) > 0 && int64(len(names)) < n {
		text += ", ..."
	}
	fmt.Fprintln(o.stderr, text)
}

// guarded tells what of a folder's was left out because programs of the user's would obey it.
func (o *copying) guarded(n int64, names []string) {
	if n == 0 {
		return
	}
	text := "hutch: left out, because programs of yours take instructions from it: "
	for i, name := range names {
		text += []string{"", ", "}[min(i, 1)] + cli.Line(name)
	}
	if int64(len(names)) < n {
		text += fmt.Sprintf(" and %d more", n-int64(len(names)))
	}
	fmt.Fprintln(o.stderr, text+" (name it as SRC, or --unguard all)")
}

// wrong makes an error of an archive one with a hint.
func wrong(err error) error {
	var known *api.Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case errors.Is(err, archive.ErrRefused):
		return api.Errorf(api.FailedPrecondition, "%w", err).WithOp("cp").
			WithHint("no honest copy has this; to look at it: hutch cp SANDBOX:SRC - | tar tv (--max-size allows more)")
	case errors.Is(err, os.ErrPermission):
		return api.Errorf(api.PermissionDenied, "%w", err).WithOp("cp").
			WithHint("check the permissions of that path on this host")
	case errors.Is(err, os.ErrNotExist):
		return api.Errorf(api.NotFound, "%w", err).WithOp("cp").WithHint("check the path on this host")
	}
	return api.Errorf(api.FailedPrecondition, "%w", err).WithOp("cp").
		WithHint("check what both paths hold: hutch cp SANDBOX:SRC - | tar tv")
}
