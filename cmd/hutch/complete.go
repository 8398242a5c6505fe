package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

// completionPatience bounds how long somebody who presses Tab waits for names.
const completionPatience = time.Second

// completed lists the names that a word of a usage line stands for.
var completed = map[string]func(ctx context.Context, c *client.Client) ([]string, error){
	"SANDBOX": func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.ListSandboxes(ctx, nil)
		for i := range list {
			if sb := &list[i]; sb.Name != "" {
				names = append(names, sb.Name+"\t"+sb.ID+", "+string(sb.State))
			} else {
				names = append(names, sb.ID+"\t"+sb.Image+", "+string(sb.State))
			}
		}
		return names, err
	},
	"IMAGE": func(ctx context.Context, c *client.Client) ([]string, error) {
		list, err := c.ListImages(ctx)
		names := []string{"host\tthis host's own programs"}
		for i := range list {
			names = append(names, list[i].Ref)
		}
		return names, err
	},
	"TEMPLATE": func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.Templates(ctx)
		for i := range list {
			names = append(names, list[i].Name)
		}
		return names, err
	},
	"POOL": func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.Pools(ctx)
		for i := range list {
			names = append(names, list[i].Name)
		}
		return names, err
	},
	"SNAPSHOT": func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.Snapshots(ctx, api.SnapshotListParams{})
		for i := range list {
			if s := &list[i]; s.Name != "" {
				names = append(names, s.Name+"\t"+s.ID)
			} else {
				names = append(names, s.ID)
			}
		}
		return names, err
	},
	"VOLUME": func(ctx context.Context, c *client.Client) (names []string, err error) {
		list, err := c.Volumes(ctx, api.VolumeListParams{})
		for i := range list {
			names = append(names, list[i].Name)
		}
		return names, err
	},
}

// flagValues are those of flags that take no others.
var flagValues = map[string][]cobra.Completion{
	"apparmor":  {"auto", "on"},
	"guard-new": {"auto", "refuse", "tell"},
	"ids":       {"auto", "emulate", "real"},
	"landlock":  {"auto", "on", "off"},
	"language":  {"python", "javascript", "shell"},
	"mode":      {"all", "selective", "off"},
	"on-stop":   {"kill", "keep"},
	"pull":      {"missing", "always", "never"},
	"signal":    {"HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "STOP", "CONT"},
}

// completeNames has shells complete what the words of usage lines stand for, in cmd and all below it.
func completeNames(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		completeNames(sub)
	}
	words, _, _ := strings.Cut(cmd.Use, " | ")
	var places []string
	for _, w := range strings.Fields(words)[1:] {
		w, _, _ = strings.Cut(strings.Trim(w, "[]."), "|")
		if w != "" && w != "flags" && w != "--" && !strings.HasPrefix(w, "-") {
			places = append(places, strings.Trim(w, "[]."))
		}
	}
	repeated := strings.HasSuffix(strings.TrimSuffix(words, "]"), "...")
	if cmd.HasParent() && cmd.Parent().Name() == "volume" && len(places) == 1 && cmd.Name() == "rm" {
		places[0] = "VOLUME"
	}
	if len(places) > 0 && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			at := len(args)
			if repeated {
				at = min(at, len(places)-1)
			}
			if at >= len(places) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return namesOf(places[at])
		}
	}
	for flag, values := range flagValues {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if f := cmd.Flags().Lookup("attach"); f != nil && f.Value.Type() != "bool" {
		_ = cmd.RegisterFlagCompletionFunc("attach", func(*cobra.Command, []string, string) ([]string,
			cobra.ShellCompDirective) {
			return namesOf("SANDBOX")
		})
	}
	for _, flag := range []string{"template", "pool"} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string,
				cobra.ShellCompDirective) {
				return namesOf(strings.ToUpper(flag))
			})
		}
	}
}

// namesOf asks a daemon that runs: none is started for this.
func namesOf(word string) ([]string, cobra.ShellCompDirective) {
	list, ok := completed[word]
	if !ok {
		return nil, cobra.ShellCompDirectiveDefault
	}
	places, err := paths.Resolve(os.Getenv, os.Geteuid())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c, err := client.Dial(ctx, places.Socket)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	names, _ := list(ctx, c) // what there is of them
	return names, cobra.ShellCompDirectiveNoFileComp
}
