package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

type eventsFlags struct {
	since    int64
	kinds    []string
	sandbox  string
	noFollow bool
	json     bool
}

func newEvents() *cobra.Command {
	o := &eventsFlags{}
	cmd := &cobra.Command{
		Use:   "events [flags]",
		Short: "Print what happens in the daemon, as it happens",
		Long: `Print what happens in the daemon, as it happens: until interrupted, or with -n what
has happened so far. Events are numbered, across restarts of the daemon too; --since
replays what is left of them, and a gap says which are not.

Each line has time, number, kind, sandbox, exec and details.`,
		GroupID: groupSandbox,
		Args:    wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.since < 1 && cmd.Flags().Changed("since") {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("--since %d: events count from 1", o.since))
			}
			return followDaemon(cmd.Context(), func(c *client.Client) error {
				return o.run(cmd.Context(), c, cmd.OutOrStdout())
			})
		},
	}
	fs := cmd.Flags()
	fs.Int64Var(&o.since, "since", 0, "begin with the event of this `NUMBER`")
	fs.StringArrayVar(&o.kinds, "kind", nil, "only this `KIND`, such as exec.exited; may be repeated")
	fs.StringVar(&o.sandbox, "sandbox", "", "only events of this `SANDBOX`")
	fs.BoolVarP(&o.noFollow, "no-follow", "n", false, "print what has happened, and end")
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line")
	return cmd
}

func (o *eventsFlags) run(ctx context.Context, c *client.Client, out io.Writer) error {
	follow := !o.noFollow
	p := api.SubscribeParams{Sandbox: o.sandbox, Follow: &follow}
	for _, k := range o.kinds {
		p.Kinds = append(p.Kinds, api.EventKind(k))
	}
	switch {
	case o.since > 0:
		p.FromSeq = &o.since
	case o.noFollow:
		first := int64(1)
		p.FromSeq = &first
	}
	events, err := c.Subscribe(ctx, p)
	if err != nil {
		return err
	}
	defer events.Close()
	for e, err := range events.All(ctx) {
		if err != nil {
			return err
		}
		asked := o.since > 0
		o.since = e.Seq + 1 // for the next daemon
		if !asked && e.Kind == api.EventGap {
			continue // nobody asked for what is gone
		}
		if err := o.print(out, &e); err != nil {
			return err
		}
	}
	return nil
}

func (o *eventsFlags) print(out io.Writer, e *api.Event) error {
	if o.json {
		e.Subscription = "" // means something on its connection only
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%s\n", line)
		return err
	}
	fields := []string{e.Time.Format(time.RFC3339Nano), strconv.FormatInt(e.Seq, 10), string(e.Kind)}
	for _, id := range []string{e.Sandbox, e.Exec} {
		if id != "" {
			fields = append(fields, id)
		}
	}
	_, err := fmt.Fprintln(out, strings.Join(append(fields, details(e.Data)...), " "))
	return err
}

// details are an event's data as NAME=VALUE, on one line whatever is in them.
func details(data json.RawMessage) []string {
	var values map[string]any
	if json.Unmarshal(data, &values) != nil {
		return nil
	}
	list := make([]string, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text, err := json.Marshal(values[name])
		if err != nil {
			continue
		}
		if s, ok := values[name].(string); ok && s != "" && strconv.Quote(s) == `"`+s+`"` && !strings.Contains(s, " ") {
			text = []byte(s)
		}
		list = append(list, name+"="+string(text))
	}
	return list
}
