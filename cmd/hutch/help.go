package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
)

// helpWidth is where flag descriptions wrap, in columns.
const helpWidth = 100

// printHelp writes the help of one verb: what it does, how it is called,
// examples, verbs below it, flags. It is our own because cobra's goes through
// text/template, which every start of hutch would pay for.
func printHelp(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(text), useLine(cmd))
	if cmd.Example != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	printCommands(w, cmd)
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\nFlags:\n%s", flags.FlagUsagesWrapped(helpWidth))
	}
	if cmd.Annotations[exitCodesKey] != "" {
		fmt.Fprintf(w, "\n%s\n", cli.ExitCodes)
	}
}

// exitCodesKey annotates verbs whose exit code is a command's.
const exitCodesKey = "exit-codes"

var commandExitCodes = map[string]string{exitCodesKey: "command"}

func useLine(cmd *cobra.Command) string {
	if !cmd.HasAvailableSubCommands() {
		return cmd.UseLine()
	}
	command := cmd.CommandPath() + " COMMAND"
	// it does something itself
	if _, _, takes := strings.Cut(cmd.Use, " "); takes && !strings.HasSuffix(cmd.Use, " COMMAND") {
		return cmd.UseLine() + "\n  " + command
	}
	return command
}

func printCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	list := func(title, group string) {
		t := cli.Table{}
		n := 0
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() && c.GroupID == group {
				t.Row(c.Name(), c.Short)
				n++
			}
		}
		if n > 0 {
			fmt.Fprintf(w, "\n%s:\n", title)
			t.Print(w, "  ", nil)
		}
	}
	for _, g := range cmd.Groups() {
		list(g.Title, g.ID)
	}
	if len(cmd.Groups()) == 0 {
		list("Commands", "")
	}
	fmt.Fprintf(w, "\n%s COMMAND --help says more.\n", cmd.CommandPath())
}
