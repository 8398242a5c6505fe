package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/agents"
	"github.com/hutch-sh/hutch/internal/cli"
)

func newAgents() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use: "agents [flags]",
		Long: `List the agents that this hutch has templates for, and what is proven of them.

Proven is what an end-to-end test has seen of this very template, told by a scripted model: it ran a command, edited a
file and ended. COMMAND does a task without a question; the variable KEY holds the key of the model. hutch agent runs
one on a copy of your folder.`,
		Example: `  hutch agents
  hutch agent claude -- --dangerously-skip-permissions -p 'Find the bug that makes the tests fail.'`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			proofs, err := agents.Proofs()
			if err != nil {
				return err
			}
			type row struct {
				Template string        `json:"template"`
				Agent    string        `json:"agent"`
				Version  string        `json:"version"`
				Command  []string      `json:"command"`
				Key      string        `json:"key"`
				Address  string        `json:"address"`
				Proof    *agents.Proof `json:"proof"` // null: nothing is proven
			}
			rows := make([]row, 0, len(agents.All))
			t := cli.Table{Header: []string{"TEMPLATE", "AGENT", "VERSION", "PROVEN", "KEY", "COMMAND"}}
			for i := range agents.All {
				a := &agents.All[i]
				r, proven := row{a.Template, a.Title, a.Version, a.Unattended, a.Key, a.Address, nil}, "no"
				if p, ok := proofs[a.Template]; ok {
					r.Proof, proven = &p, strings.Join(p.Did, ", ")
				}
				rows = append(rows, r)
				t.Row(a.Template, a.Title, a.Version, proven, a.Key, a.Line())
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), rows)
			}
			t.Print(cmd.OutOrStdout(), "", nil)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
