package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
)

// The groups of verbs in the help.
const (
	groupSandbox = "sandbox"
	groupImage   = "image"
	groupSystem  = "system"
)

// verb makes the command of a name.
type verb struct {
	name string
	make func() *cobra.Command
}

// verbs are all there are.
var verbs = []verb{
	{"run", newRun}, {"create", newCreate}, {"exec", newExec}, {"ps", newPs}, {"inspect", newInspect}, {"logs", newLogs}, {"wait", newWait},
	{"events", newEvents}, {"cp", newCp}, {"update", newUpdate}, {"network", newNetwork}, {"port", newPort}, {"why", newWhy}, {"audit", newAudit}, {"stats", newStats},
	{"top", newTop}, {"workspace", newWorkspace}, {"template", newTemplate}, {"pool", newPool}, {"scope", newScope}, {"volume", newVolume}, {"scan", newScan}, {"mcp", newMCP}, {"pause", newPause}, {"resume", newResume}, {"stop", newStop}, {"start", newStart}, {"snapshot", newSnapshot}, {"fork", newFork}, {"undo", newUndo}, {"kill", newKill}, {"rm", newRm},
	{"image", newImage}, {"commit", newCommit}, {"push", newPush}, {"login", newLogin}, {"logout", newLogout},
	{"doctor", newDoctor}, {"config", newConfig}, {"serve", newServe}, {"rpc", newRPC}, {"debug", newDebug}, {"gc", newGC},
	{"version", newVersion}, {"tour", newTour},
}

// newRoot joins the verbs that a command line may need: the one that it begins with, since
// making the others takes longer than most verbs do, or all.
func newRoot(args []string) *cobra.Command {
	root := &cobra.Command{
		Use:   "hutch",
		Short: "Run untrusted code in rootless sandboxes",
		Example: `  hutch run -- true                          in a sandbox made of this host's own files
  hutch run python:3.12 python3 -c 'print(6*7)'
  hutch run --workspace . -- make test
  hutch doctor                               what this machine offers`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	root.AddGroup(
		&cobra.Group{ID: groupSandbox, Title: "Sandboxes"},
		&cobra.Group{ID: groupImage, Title: "Images"},
		&cobra.Group{ID: groupSystem, Title: "The system"},
	)
	root.SetHelpCommandGroupID(groupSystem)
	root.SetCompletionCommandGroupID(groupSystem)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(printHelp)
	root.SuggestionsMinimumDistance = 2 // letters; for unknownCommand
	only := slices.IndexFunc(verbs, func(v verb) bool { return len(args) > 0 && v.name == args[0] })
	root.CompletionOptions.DisableDefaultCmd = only >= 0
	for i, v := range verbs {
		if only < 0 || i == only {
			root.AddCommand(v.make())
		}
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) { // with descriptions or without
		completeNames(root)
	}
	return root
}

// flagError makes a usage error of what pflag says, unless a flag's own check
// already made an error for users.
func flagError(cmd *cobra.Command, err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known
	}
	return unknownFlag(cmd.CommandPath(), cli.Usage(cmd.CommandPath(), err), err.Error())
}

func unknownCommand(cmd *cobra.Command, name string) error {
	err := cli.Usage(cmd.CommandPath(), fmt.Errorf("there is no command %q", name))
	if close := cmd.SuggestionsFor(name); len(close) > 0 {
		var known *api.Error
		if errors.As(err, &known) {
			return known.WithHint("%s %s", cmd.CommandPath(), strings.Join(close, ", "))
		}
	}
	return err
}

// wantArgs checks the number of a verb's arguments; atMost < 0 is no limit.
func wantArgs(atLeast, atMost int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < atLeast:
			return cli.Usage(cmd.CommandPath(), fmt.Errorf("an argument is missing: %s", cmd.UseLine()))
		case atMost >= 0 && len(args) > atMost:
			return cli.Usage(cmd.CommandPath(), fmt.Errorf("unexpected argument %q: %s", args[atMost], cmd.UseLine()))
		}
		return nil
	}
}

// parentOnly is RunE of a verb that only has verbs below it.
func parentOnly(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}
