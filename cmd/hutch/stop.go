package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/hostfs"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newStop() *cobra.Command {
	grace := 0.0
	cmd := &cobra.Command{
		Use: "stop [flags] SANDBOX...",
		Long: `End the processes of sandboxes and keep the rest: files, id, name, limits and policy. "hutch start" goes on from
there, also after the daemon has ended. Files are kept, processes are not.`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				p := api.StopParams{Sandbox: name}
				if cmd.Flags().Changed("time") {
					p.TimeoutS = &grace
				}
				stopped, err := c.StopSandbox(ctx, p)
				if err != nil {
					return err
				}
				unlinkClosed(stopped.Ended.Ports)
				tellClosed(name, stopped.Ended.Ports)
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
	cmd.Flags().Float64VarP(&grace, "time", "t", 10, "`SECONDS` that commands have to end after the stop signal")
	return cmd
}

// tellClosed says how to publish again what a stop has closed, with a token what had one.
func tellClosed(sandbox string, ports []api.EndedPort) {
	for _, token := range []bool{false, true} {
		again := []string{"hutch", "port", "expose"}
		if token {
			again = append(again, "--token")
		}
		again = append(again, sandbox)
		fixed := len(again)
		for i := range ports {
			if ports[i].Token == token {
				again = append(again, ports[i].Address+":"+strconv.Itoa(ports[i].Port))
			}
		}
		if len(again) > fixed {
			fmt.Fprintf(os.Stderr, "hutch: %s: ports are closed; after hutch start publish them again: %s\n",
				cli.Line(sandbox), cli.Line(shellWords(again)))
		}
	}
}

func newStart() *cobra.Command {
	folders := folderFlags{}
	cmd := &cobra.Command{
		Use: "start [flags] SANDBOX...",
		Long: `Start sandboxes that were stopped, with the files they had. Their commands are not started again.

Folders of yours that a sandbox has mounted must be the same ones as before. Those of root, whose daemon is another user and
cannot open them, this command opens again by its own note; name them where it has none, as when the sandbox was made.`,
		Args: wantArgs(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return eachSandbox(cmd, args, func(ctx context.Context, c *client.Client, name string) error {
				p := api.StartParams{Sandbox: name}
				err := folders.lend(ctx, c, findLent(name), func(given []api.StartFolder, files []*os.File) error {
					p.Folders = given
					_, err := c.StartSandbox(ctx, p, files...)
					return err
				})
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), name)
				return err
			})
		},
	}
	folders.add(cmd.Flags())
	return cmd
}

// folderFlags are the folders of the host's that a sandbox had mounted, handed over again.
type folderFlags struct{ spec api.Spec }

func (f *folderFlags) add(fs *pflag.FlagSet) {
	fs.Func("workspace", "the workspace, as when the sandbox was made, `PATH[:ro|rw|overlay]`", func(v string) error {
		w, err := cli.ParseWorkspace(v)
		f.spec.Workspace = &w
		return err
	})
	fs.FuncP("volume", "v", "a folder, as when the sandbox was made, `SRC:DST[:ro|rw|overlay]`; may be repeated",
		func(v string) error {
			m, err := cli.ParseVolume(v)
			if err == nil && m.Volume == "" {
				f.spec.Mounts = append(f.spec.Mounts, m)
			}
			return err
		})
}

// lend opens the folders that the user names for a call, or those that root has lent before, and never one that the
// daemon names.
func (f *folderFlags) lend(ctx context.Context, c *client.Client, before *lent,
	call func(given []api.StartFolder, files []*os.File) error) error {
	sp := f.spec
	noted := before
	if sp.Workspace != nil || len(sp.Mounts) > 0 {
		noted = nil // the user's word
	} else if noted == nil {
		return call(nil, nil)
	} else {
		sp = noted.spec()
	}
	who, err := c.Peer(ctx)
	if err != nil {
		return err
	}
	return hostfs.Lend(who.IDBase, sp, func(opened api.Spec, files []*os.File) error {
		if noted != nil {
			if err := noted.check(&opened, files); err != nil {
				return err
			}
		}
		var given []api.StartFolder
		if w := opened.Workspace; w != nil {
			given = append(given, api.StartFolder{Target: "/workspace", FD: *w.FD})
		}
		for _, m := range opened.Mounts {
			given = append(given, api.StartFolder{Target: m.Target, FD: *m.FD})
		}
		return call(given, files)
	})
}

// shellWords is a command line as a shell reads it.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = hostfs.Quote(w)
	}
	return strings.Join(quoted, " ")
}
