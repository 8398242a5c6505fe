package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newPs() *cobra.Command {
	var all, quiet, asJSON bool
	var labels, filters []string
	format := ""
	cmd := &cobra.Command{
		Use:  "ps [flags]",
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			keep, err := parseFilters(filters, &labels, &all)
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			want, err := cli.ParseLabels(labels)
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			var f *formatter
			if format != "" {
				if f, err = parseFormat(format); err != nil {
					return cli.Usage(cmd.CommandPath(), err)
				}
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				list, err := c.ListSandboxes(cmd.Context(), want)
				if err != nil {
					return err
				}
				list = slices.DeleteFunc(living(list, all), func(sb api.Sandbox) bool { return !keep(&sb) })
				if f != nil {
					records := make([]any, len(list))
					for i := range list {
						records[i] = list[i]
					}
					return f.print(cmd.OutOrStdout(), records...)
				}
				return printSandboxes(cmd, list, quiet, asJSON)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&all, "all", "a", false, "also those that have ended, and those that wait in pools")
	fs.BoolVarP(&quiet, "quiet", "q", false, "ids only")
	fs.BoolVar(&asJSON, "json", false, "print the records")
	fs.StringVar(&format, "format", "",
		"a line for each, such as `{{.ID}} {{.Image}}`, or json; --json shows the fields")
	fs.StringArrayVarP(&filters, "filter", "f", nil,
		"only those with `KEY=VALUE` for name, id, status, image or label; may be repeated")
	fs.StringArrayVarP(&labels, "label", "l", nil, "only those with `NAME[=VALUE]`; may be repeated")
	return cmd
}

// parseFilters makes one question of filters: each key must have one of its values. Labels go to labels, and who asks
// for a state sees all.
func parseFilters(filters []string, labels *[]string, all *bool) (func(*api.Sandbox) bool, error) {
	of := map[string]func(sb *api.Sandbox, value string) bool{
		"name": func(sb *api.Sandbox, v string) bool { return strings.Contains(sb.Name, v) },
		"id":   func(sb *api.Sandbox, v string) bool { return strings.HasPrefix(sb.ID, v) },
		"status": func(sb *api.Sandbox, v string) bool {
			return string(sb.State) == v || v == "exited" && (sb.State == api.Stopped || hasExited(sb))
		},
		"image": func(sb *api.Sandbox, v string) bool { return sb.Image == v || strings.HasPrefix(sb.Image, v+":") },
	}
	wanted := map[string][]string{}
	for _, f := range filters {
		key, value, ok := strings.Cut(f, "=")
		key = cmp.Or(map[string]string{"state": "status", "ancestor": "image"}[key], key)
		switch {
		case key == "label" && ok:
			*labels = append(*labels, value)
		case !ok || of[key] == nil:
			return nil, fmt.Errorf("--filter %q: it is KEY=VALUE, and keys are name, id, status, image and label", f)
		default:
			*all = *all || key == "status"
			wanted[key] = append(wanted[key], value)
		}
	}
	return func(sb *api.Sandbox) bool {
		for key, values := range wanted {
			if !slices.ContainsFunc(values, func(v string) bool { return of[key](sb, v) }) {
				return false
			}
		}
		return true
	}, nil
}

// living leaves out what has ended, or waits in a pool, unless all is set. It is never nil, so that
// no sandbox is an empty JSON list.
func living(list []api.Sandbox, all bool) []api.Sandbox {
	kept := make([]api.Sandbox, 0, len(list))
	for _, sb := range list {
		if all || sb.State != api.Stopped && sb.State != api.Failed && sb.State != api.Waiting {
			kept = append(kept, sb)
		}
	}
	return kept
}

func printSandboxes(cmd *cobra.Command, list []api.Sandbox, quiet, asJSON bool) error {
	w := cmd.OutOrStdout()
	switch {
	case asJSON:
		return printJSON(w, list)
	case quiet:
		for _, sb := range list {
			fmt.Fprintln(w, sb.ID)
		}
		return nil
	}
	t := cli.Table{Header: []string{"ID", "NAME", "IMAGE", "STATE", "CREATED"}}
	now := time.Now()
	for _, sb := range list {
		t.Row(sb.ID, sb.Name, sb.Image, stateOf(&sb), cli.Ago(now, sb.Created))
	}
	t.Print(w, "", nil)
	return nil
}

// hasExited reports whether the command of hutch run -d has ended, and with it what the sandbox was made for. It is
// there all the same, with its files, for other commands.
func hasExited(sb *api.Sandbox) bool {
	return sb.State == api.Running && sb.Background != nil && sb.Background.State == api.ExecExited
}

// stateOf is the state for people.
func stateOf(sb *api.Sandbox) string {
	if hasExited(sb) && sb.Background.ExitCode != nil {
		return fmt.Sprintf("running, exited (%d)", *sb.Background.ExitCode)
	}
	return string(sb.State)
}
