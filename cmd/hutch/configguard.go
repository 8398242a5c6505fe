package main

import (
	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/guard"
)

// guardRow is a line of `hutch config guard --json`.
type guardRow struct {
	Name   string      `json:"name"`
	In     guard.Depth `json:"in"`
	Report bool        `json:"report,omitempty"`
	Words  bool        `json:"words,omitempty"`
	Who    string      `json:"who"`
	When   string      `json:"when"`
	Source string      `json:"source"`
}

// guardIn says in which folders a name is guarded.
var guardIn = map[guard.Depth]string{guard.Top: "the top", guard.Project: "each but dependencies", guard.Any: "each"}

func newConfigGuard() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Print which names a sandbox cannot write in your folders, and why",
		Long: `Print which names a sandbox cannot write, make or move away in folders that it has in mode rw
(--workspace PATH:rw, -v SRC:DST:rw): programs of yours take from them what to run although you did
not ask them to run anything of the folder's. workspace apply wants each of them named.

IN says in which folders: at the top of the one that the sandbox has, in each that is not below
node_modules or site-packages, or in each. A name that is only reported can be made, as can one that is guarded
in changes: words that agents obey, which workspace apply alone wants named.
Nor does a repository come to be that you did not ask for: --unguard git-new allows that.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows := []guardRow{{
				Name: guard.NewRepository, In: guard.Any, Who: "git", When: "git status, and each prompt that asks git",
				Source: "gitrepository-layout(5): a new .git, or a folder with HEAD, objects and refs, or with HEAD and commondir",
			}}
			for _, r := range guard.Rows {
				rows = append(rows, guardRow{Name: r.Name, In: r.Depth, Report: r.Report, Words: r.Words, Who: r.Who,
					When: r.When, Source: r.Source})
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), rows)
			}
			t := &cli.Table{Header: []string{"NAME", "IN", "OBEYED BY", "WHEN", "SOURCE"}}
			for _, r := range rows {
				in := guardIn[r.In]
				if r.Report {
					in += ", reported"
				}
				if r.Words {
					in += ", in changes"
				}
				t.Row(r.Name, in, r.Who, r.When, r.Source)
			}
			t.Print(cmd.OutOrStdout(), "", nil)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a list of objects")
	return cmd
}
