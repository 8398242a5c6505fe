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

// verb makes the command of a name, which lists of commands show in a group, with what it does; no group hides it.
type verb struct {
	name, group, short string
	make               func() *cobra.Command
}

// command is the verb's, with flags and commands below it only where whole is set: making these takes longer than most
// verbs do.
func (v *verb) command(whole bool) *cobra.Command {
	cmd := &cobra.Command{Use: v.name, Run: func(*cobra.Command, []string) {}}
	if whole {
		cmd = v.make()
	}
	cmd.Short, cmd.GroupID, cmd.Hidden = v.short, v.group, v.group == ""
	return cmd
}

// verbs are all there are.
var verbs = []verb{
	{"run", groupSandbox, "Run a command in a new sandbox", newRun},
	{"create", groupSandbox, "Create a sandbox and print its id", newCreate},
	{"exec", groupSandbox, "Run a command in a sandbox that exists", newExec},
	{"ps", groupSandbox, "List sandboxes", newPs},
	{"inspect", groupSandbox, "Print the records of sandboxes as JSON", newInspect},
	{"logs", groupSandbox, "Print what a background command has written", newLogs},
	{"wait", groupSandbox, "Wait until background commands have ended, and print their exit codes", newWait},
	{"events", groupSandbox, "Print what happens in the daemon, as it happens", newEvents},
	{"cp", groupSandbox, "Copy files and folders into and out of a sandbox", newCp},
	{"update", groupSandbox, "Change limits and life of sandboxes that run", newUpdate},
	{"network", groupSandbox, "Show, change and ask what sandboxes may reach", newNetwork},
	{"port", groupSandbox, "Reach servers in sandboxes from this host", newPort},
	{"why", groupSandbox, "Say what a sandbox was refused and what failed outside of it, why, and what to do", newWhy},
	{"audit", groupSandbox, "Print what was done with a sandbox, and what it did", newAudit},
	{"stats", groupSandbox, "Show what sandboxes use, again and again", newStats},
	{"top", groupSandbox, "Show the busiest sandboxes, or the processes of one", newTop},
	{"agent", groupSandbox, "Run an agent in a sandbox, and apply what it has changed once you have seen it", newAgent},
	{"workspace", groupSandbox, "Look at what a sandbox has changed in your folder, and apply it or throw it away",
		newWorkspace},
	{"template", groupSandbox, "Make sandboxes by a name: an image, steps, limits, what runs in them", newTemplate},
	{"agents", groupSandbox, "List the agents that there are templates for, and what is proven of them", newAgents},
	{"pool", groupSandbox, "Keep sandboxes ready before anybody needs one", newPool},
	{"scope", groupSandbox, "Sandboxes by what they are for: a session, an agent, or everybody", newScope},
	{"volume", groupSandbox, "Folders that outlive sandboxes", newVolume},
	{"scan", groupSandbox, "Look through code for what reaches beyond the program", newScan},
	{"mcp", groupSandbox, "Give a language model a sandbox, over the Model Context Protocol", newMCP},
	{"web", groupSandbox, "Serve sandboxes over HTTP", newWeb},
	{"pause", groupSandbox, "Stop the processes of sandboxes where they are", newPause},
	{"resume", groupSandbox, "Let paused sandboxes go on", newResume},
	{"stop", groupSandbox, "End the processes of sandboxes and keep the rest for later", newStop},
	{"start", groupSandbox, "Start sandboxes that were stopped", newStart},
	{"snapshot", groupSandbox, "Keep the files of a sandbox as they are, and go back to them", newSnapshot},
	{"fork", groupSandbox, "Make sandboxes that go on from the files of another", newFork},
	{"undo", groupSandbox, "Take back what a tool call has done to the files of a sandbox", newUndo},
	{"kill", groupSandbox, "Kill every process of sandboxes; their files stay", newKill},
	{"rm", groupSandbox, "Remove sandboxes with their files", newRm},
	{"image", groupImage, "Fetch, import, save, check, list and remove images", newImage},
	{"commit", groupImage, "Make an image of what a sandbox has written", newCommit},
	{"push", groupImage, "Send an image to a registry", newPush},
	{"login", groupImage, "Store a user name and password for a registry", newLogin},
	{"logout", groupImage, "Remove what hutch login has stored", newLogout},
	{"doctor", groupSystem, "Show what this machine offers and how to get what is missing", newDoctor},
	{"config", groupSystem, "Show, check and reload the configuration file", newConfig},
	{"serve", groupSystem, "Run the daemon in the foreground", newServe},
	{"rpc", groupSystem, "Call any method of the daemon", newRPC},
	{"debug", groupSystem, "Look at how sandboxes are made, and what they are refused", newDebug},
	{"gc", groupSystem, "Sweep what a killed daemon left behind", newGC},
	{"version", groupSystem, "Print which hutch this is", newVersion},
	{"tour", "", "Run a program in a sandbox and show what it can and cannot see", newTour},
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
	root.SetHelpCommand(newHelp(root))
	root.SetHelpCommandGroupID(groupSystem)
	root.SetCompletionCommandGroupID(groupSystem)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(printHelp)
	root.SuggestionsMinimumDistance = 2 // letters; for unknownCommand
	whole := wanted(args)
	only := whole >= 0 && verbs[whole].name == args[0]
	root.CompletionOptions.DisableDefaultCmd = only
	for i := range verbs {
		if !only || i == whole {
			root.AddCommand(verbs[i].command(whole == i || whole == allVerbs))
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

// newHelp is cobra's help command, but for commands that there are not, which are errors.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(about, append(rest, args...)[0])
			}
			return about.Help()
		},
	}
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

// What wanted finds beside one of the verbs.
const (
	noVerb   = -1 // they are only listed
	allVerbs = -2
)

// wanted is the index of the verb whose flags and commands a command line needs: that which it begins with, or asks
// about.
func wanted(args []string) int {
	if len(args) > 1 && (args[0] == "help" || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)) {
		args = args[1:]
	}
	switch {
	case args == nil: // of a test
		return allVerbs
	case len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help":
		return noVerb
	}
	if i := slices.IndexFunc(verbs, func(v verb) bool { return v.name == args[0] }); i >= 0 {
		return i
	}
	return allVerbs
}
