package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newWorkspace() *cobra.Command {
	cmd := &cobra.Command{
		Use: "workspace COMMAND",
		Long: `Look at what a sandbox has changed in a workspace of mode overlay, and apply it to your folder or throw
it away. Your folder stays as it is until then.`,
		Example: `  hutch create --name box --workspace .:overlay
  hutch exec box -- make fix
  hutch workspace diff box
  hutch workspace apply box src
  hutch workspace discard box`,
		RunE: parentOnly,
	}
	cmd.AddCommand(newWorkspaceDiff(), newWorkspaceApply(), newWorkspaceDiscard(), newWorkspaceChown())
	return cmd
}

func newWorkspaceDiff() *cobra.Command {
	var names, stats, asJSON bool
	lines := 3
	cmd := &cobra.Command{
		Use:   "diff [flags] SANDBOX [PATH...]",
		Short: "Print what a sandbox has changed",
		Long: `Print what a sandbox has changed, as git does. On a terminal the diff has colours and a pager (HUTCH_PAGER, else PAGER,
else less), and control characters and those that change the direction of text are shown by their names.`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				diff := c.DiffWorkspace
				if names || asJSON {
					diff = c.AllChanges
				}
				d, err := diff(cmd.Context(), api.WorkspaceDiffParams{
					WorkspaceParams: api.WorkspaceParams{Sandbox: args[0], Paths: args[1:]}, Unified: !names,
					Context: &lines,
				})
				out := cmd.OutOrStdout()
				switch {
				case err != nil:
					return err
				case asJSON:
					return printJSON(out, d)
				case names:
					return printChanges(out, d.Changes)
				}
				if stats {
					style := cli.Style{}
					if f, ok := out.(*os.File); ok {
						style = cli.StyleFor(f)
					}
					return printDiffStat(out, style, statsOf(d.Diff), d.Truncated)
				}
				if err := showDiff(out, d.Diff); err != nil {
					return err
				}
				if d.Truncated {
					fmt.Fprintln(os.Stderr, "hutch: the diff is longer; choose paths, or list the names with --names")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&names, "names", false, "only what was added (A), modified (M), deleted (D) and renamed (R)")
	cmd.Flags().BoolVar(&stats, "stat", false, "how many lines of each file were added and removed")
	cmd.Flags().IntVarP(&lines, "unified", "U", 3, "`N` lines around each change")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known")
	return cmd
}

func printChanges(w io.Writer, list []api.WorkspaceChange) error {
	t := cli.Table{Header: []string{"", "PATH", "NOTE"}}
	for _, c := range list {
		note := c.Conflict
		if c.Guarded != "" {
			note = "guarded: applied only by name: " + plain(c.Guarded)
		}
		name := plain(c.Path)
		if c.From != "" {
			name = plain(c.From) + " -> " + name
		}
		if c.Type == "d" {
			name += "/"
		}
		t.Row(map[string]string{"added": "A", "modified": "M", "deleted": "D", "renamed": "R"}[c.Kind], name, note)
	}
	t.Print(w, "", nil)
	return nil
}

func newWorkspaceApply() *cobra.Command {
	p := api.WorkspaceApplyParams{}
	asJSON, folder, choose := false, "", false
	cmd := &cobra.Command{
		Use:   "apply [flags] SANDBOX [PATH...]",
		Short: "Bring what a sandbox has changed into your folder",
		Long: `Bring what a sandbox has changed into your folder: all of it, or what PATH names. What somebody else has changed there
meanwhile is left alone, and so is what your own programs take instructions from, such as .git/hooks,
unless PATH names it. With -i each change is shown, and you choose files, or parts of them.`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Sandbox, p.Paths = args[0], args[1:]
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				if choose {
					if err := chooseChanges(cmd.Context(), c, &p); err != nil || len(p.Paths) == 0 {
						return err
					}
				}
				files, err := applyTo(cmd.Context(), c, folder, &p)
				if err != nil {
					return err
				}
				defer files.Close()
				r, err := c.ApplyWorkspace(cmd.Context(), p, files.Files...)
				switch {
				case err != nil:
					return err
				case asJSON:
					if err := printJSON(cmd.OutOrStdout(), r); err != nil {
						return err
					}
				default:
					printPaths(cmd.OutOrStdout(), r.Applied)
				}
				if len(r.Applied)+len(r.Failed) == 0 && !asJSON {
					fmt.Fprintln(cmd.ErrOrStderr(), "hutch: nothing to apply: the folder has what the sandbox has")
				}
				more(cmd, r.More)
				return left(cmd, "applied", r.Failed, asJSON)
			})
		},
	}
	cmd.Flags().BoolVarP(&choose, "interactive", "i", false,
		"show each change and ask whether to apply it, or parts of it")
	cmd.Flags().BoolVarP(&p.Force, "force", "f", false, "also what somebody else has changed, whose changes are lost")
	cmd.Flags().StringVar(&folder, "folder", "", "root's workspace is `PATH`, where the command has no note of it")
	cmd.Flags().StringVar(&p.Digest, "digest", "",
		"only if nothing was changed since the diff of this `DIGEST` (diff --json)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what was done as JSON")
	return cmd
}

// applyTo opens the folder that an apply may write to. Its name is the user's, never one that the daemon tells: a
// sandbox may have taken that over, and root would hand it any folder.
func applyTo(ctx context.Context, c *client.Client, folder string, p *api.WorkspaceApplyParams) (*hostfs.Sources,
	error) {
	var noted *lentFolder
	if folder == "" {
		l := findLent(p.Sandbox)
		// that alone is applied, and lent for writing by it
		if l == nil || l.Workspace == nil || l.Workspace.Mode != api.ModeOverlay {
			return &hostfs.Sources{}, nil
		}
		noted = l.Workspace
		folder = noted.Path
	}
	who, err := c.Peer(ctx)
	if err != nil {
		return nil, err
	}
	s := &hostfs.Sources{Owner: hostfs.Owner{Base: who.IDBase}}
	_, i, err := s.Add(folder, api.ModeRW, true)
	p.FD = &i
	if err == nil && noted != nil {
		err = noted.check(s.Files[i])
	}
	if err != nil {
		s.Close()
	}
	return s, hostfs.OnField(err, "folder")
}

func newWorkspaceDiscard() *cobra.Command {
	return &cobra.Command{
		Use:   "discard SANDBOX [PATH...]",
		Short: "Throw away what a sandbox has changed",
		Args:  wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				r, err := c.DiscardWorkspace(cmd.Context(), api.WorkspaceParams{Sandbox: args[0], Paths: args[1:]})
				if err != nil {
					return err
				}
				printPaths(cmd.OutOrStdout(), r.Discarded)
				more(cmd, r.More)
				return left(cmd, "discarded", r.Failed, false)
			})
		},
	}
}

func printPaths(w io.Writer, paths []string) {
	for _, p := range paths {
		fmt.Fprintln(w, plain(p))
	}
}

// plain is a name as it is, or in quotes if it has newlines and the like: it is the sandbox's.
func plain(p string) string {
	if q := strconv.Quote(p); q != `"`+p+`"` {
		return q
	}
	return p
}

// more tells of names that an answer had no place for.
func more(cmd *cobra.Command, n int) {
	if n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "hutch: and %d more; hutch workspace diff --names shows what is left\n", n)
	}
}

// left tells what was not done, and makes the exit code 1.
func left(cmd *cobra.Command, what string, failed []api.WorkspaceFailure, quiet bool) error {
	if len(failed) == 0 {
		return nil
	}
	if !quiet {
		for _, f := range failed {
			fmt.Fprintf(cmd.ErrOrStderr(), "hutch: not %s: %s: %s\n", what, strconv.Quote(f.Path), cli.Line(f.Why))
		}
	}
	return &cli.Exit{Code: 1}
}

// summaryTimeout bounds the look behind `hutch run`, which the sandbox can make long; its removal has a time of its
// own.
const summaryTimeout = 10 * time.Second

// summarize tells what the sandbox has changed in its workspace.
func (r *runner) summarize(ctx context.Context, sb *api.Sandbox) {
	ctx, cancel := context.WithTimeout(ctx, summaryTimeout)
	defer cancel()
	d, err := r.client.AllChanges(ctx, api.WorkspaceDiffParams{WorkspaceParams: api.WorkspaceParams{Sandbox: sb.ID}})
	if err != nil && !errors.Is(err, client.ErrLost) && !notFound(err) {
		tell(err)
	}
	tellChanges(os.Stderr, d.Changes, sb.ID, r.flags.keep, r.flags.private)
}

// tellChanges tells behind `hutch run` what the sandbox has changed in a workspace of mode overlay: otherwise it is
// lost unseen, with the sandbox.
func tellChanges(w io.Writer, changed []api.WorkspaceChange, id string, kept, private bool) {
	if len(changed) == 0 {
		return
	}
	n := map[string]int{}
	for _, c := range changed {
		n[c.Kind]++
	}
	var parts []string
	for _, kind := range []string{"added", "modified", "deleted", "renamed"} {
		if n[kind] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[kind], kind))
		}
	}
	what := strings.Join(parts, ", ")
	switch {
	case kept:
		fmt.Fprintf(w, "hutch: the sandbox has changes that are not in your folder: %s\n", what)
		fmt.Fprintf(w, "hutch: look and apply: hutch workspace diff %s; hutch workspace apply %s\n", id, id)
	case private:
		fmt.Fprintf(w, "hutch: changes went with the sandbox, your folder is as it was: %s; --keep, without --private, keeps them\n", what)
	default:
		fmt.Fprintf(w, "hutch: changes went with the sandbox, your folder is as it was: %s; --keep keeps them\n", what)
	}
}
