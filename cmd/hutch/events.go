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
	from, to   string    // --since and --until
	since      int64     // the number that --since is, else the first of all
	begin, end time.Time // the moments that they are
	kinds      []string
	sandbox    string
	noFollow   bool
	json       bool
}

func newEvents() *cobra.Command {
	o := &eventsFlags{}
	cmd := &cobra.Command{
		Use: "events [flags]",
		Long: `Print what happens in the daemon, as it happens: until interrupted, or with -n what
has happened so far. Events are numbered, across restarts of the daemon too; --since
replays what is left of them, and a gap says which are not.

Each line has time, number, kind, sandbox, exec and details.`,
		Args: wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(cmd.Flags().Changed("since")); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			return followDaemon(cmd.Context(), func(c *client.Client) error {
				return o.run(cmd.Context(), c, cmd.OutOrStdout())
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.from, "since", "",
		"begin with the event of this `NUMBER`, or of this time: 10m is ten minutes ago, or 2006-01-02T15:04:05Z")
	fs.StringVar(&o.to, "until", "", "end with those of this `TIME`: 0s is now")
	fs.StringArrayVar(&o.kinds, "kind", nil, "only this `KIND`, such as exec.exited; may be repeated")
	fs.StringVar(&o.sandbox, "sandbox", "", "only events of this `SANDBOX`")
	fs.BoolVarP(&o.noFollow, "no-follow", "n", false, "print what has happened, and end")
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line")
	ignored(fs, "follow,f")
	return cmd
}

// parse reads --since and --until.
func (o *eventsFlags) parse(since bool) (err error) {
	if o.to != "" {
		if o.end, err = parseMoment("until", o.to); err != nil {
			return err
		}
		o.noFollow = !o.end.After(time.Now())
	}
	if !since {
		return nil
	}
	if o.since, err = strconv.ParseInt(o.from, 10, 64); err == nil {
		if o.since < 1 {
			err = fmt.Errorf("--since %d: events count from 1", o.since)
		}
		return err
	}
	o.since = 1
	o.begin, err = parseMoment("since", o.from)
	return err
}

// parseMoment reads a time, or how long ago it was.
func parseMoment(flag, v string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return time.Time{}, fmt.Errorf("--%s %q: it is a time such as 10m, or 2006-01-02T15:04:05Z", flag, v)
	}
	return time.Now().Add(-d), nil
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
		if e.Time.Before(o.begin) {
			continue
		}
		if !o.end.IsZero() && e.Time.After(o.end) {
			return nil
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
