package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

type statsFlags struct {
	once, json bool
	interval   float64
}

func (o *statsFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&o.once, "no-stream", "n", false, "print once, and end")
	fs.Func("interval", "`TIME` from one print to the next (default 1s)", func(v string) (err error) {
		if o.interval, err = cli.ParseTimeout(v); err == nil && (o.interval < 0.1 || o.interval > 3600) {
			err = fmt.Errorf("%q is not 0.1 s to an hour", v)
		}
		return err
	})
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line and sandbox")
	o.interval = 1
}

func newStats() *cobra.Command {
	o := &statsFlags{}
	cmd := &cobra.Command{
		Use: "stats [flags] [SANDBOX...]",
		Long: `Show what sandboxes use, all that run or those that are named: until interrupted, on a
terminal always in the same place.

CPU is in per cent of one CPU since the print before, memory with the page cache of
files, IO what disks have read and written since the sandbox began, PRESSURE the share
of the last 10 seconds in which some process waited for CPU, memory or IO. A dash is
what this host does not count; --json has all numbers, with their source.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				s := sampler{c: c, names: args}
				return o.repeat(cmd, func(ctx context.Context, w io.Writer, first bool) error {
					rows, err := s.sample(ctx)
					if err != nil || o.json {
						return errors.Join(err, printLines(w, rows))
					}
					if first && o.once { // a share of CPU needs two
						if err := pause(ctx, statsGap); err != nil {
							return err
						}
						if rows, err = s.sample(ctx); err != nil {
							return err
						}
					}
					printStats(w, rows)
					return nil
				})
			})
		},
	}
	o.add(cmd)
	return cmd
}

// statsGap is what a share of CPU is measured over when nobody waits for more.
const statsGap = 250 * time.Millisecond

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// repeat prints once, or again and again until the user has seen enough: on a terminal
// over what was printed before.
func (o *statsFlags) repeat(cmd *cobra.Command, show func(ctx context.Context, w io.Writer, first bool) error) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	screen := !o.once && !o.json && isTerminal(out)
	for first := true; ; first = false {
		w := &lines{}
		if err := show(ctx, w, first); err != nil {
			return err
		}
		text := w.String()
		if screen {
			text = "\x1b[H\x1b[2J" + text // home, and clear
		}
		if _, err := io.WriteString(out, text); err != nil || o.once {
			return err
		}
		if err := pause(ctx, time.Duration(o.interval*float64(time.Second))); err != nil {
			return err
		}
	}
}

// used is one sandbox's row: its statistics, and its share of CPU since the ones before.
type used struct {
	api.Stats
	percent float64 // of one CPU; negative when there is nothing before
}

// sampler asks for the statistics of some sandboxes, or all.
type sampler struct {
	c     *client.Client
	names []string
	last  map[string]api.Stats
}

func (s *sampler) sample(ctx context.Context) ([]used, error) {
	names := s.names
	if len(names) == 0 {
		list, err := s.c.ListSandboxes(ctx, nil)
		if err != nil {
			return nil, err
		}
		for _, sb := range living(list, false) {
			names = append(names, sb.ID)
		}
	}
	now, rows := map[string]api.Stats{}, make([]used, 0, len(names))
	for _, name := range names {
		st, err := s.c.Stats(ctx, name)
		if err != nil {
			if len(s.names) == 0 && isGone(err) {
				continue // it ended meanwhile
			}
			return nil, err
		}
		u := used{Stats: st, percent: -1}
		if before, ok := s.last[st.Sandbox]; ok && st.CPU != nil && before.CPU != nil {
			if wall := st.Time.Sub(before.Time); wall > 0 {
				u.percent = max(0, (st.CPU.UsedMS-before.CPU.UsedMS)/wall.Seconds()/10)
			}
		}
		now[st.Sandbox] = st
		rows = append(rows, u)
	}
	s.last = now
	return rows, nil
}

// isGone says that a sandbox that was listed has ended.
func isGone(err error) bool {
	switch api.ErrorCode(err) {
	case api.NotFound, api.FailedPrecondition:
		return true
	}
	return false
}

func printLines(w io.Writer, rows []used) error {
	for _, u := range rows {
		line, err := json.Marshal(u.Stats)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n", line)
	}
	return nil
}

func printStats(w io.Writer, rows []used) {
	t := cli.Table{
		Header: []string{"SANDBOX", "NAME", "CPU %", "MEMORY", "LIMIT", "PEAK", "PIDS", "IO READ", "WRITTEN", "DISK",
			"PRESSURE"},
		Right: []bool{false, false, true, true, true, true, true, true, true, true, true},
	}
	for _, u := range rows {
		t.Row(u.cells()...)
	}
	t.Print(w, "", nil)
	if i := slices.IndexFunc(rows, func(u used) bool { return u.Source == api.SourceProcesses }); i >= 0 {
		fmt.Fprintln(w, "There are no cgroups: these are sums over the processes that live at this moment.")
	}
}

// dash is a number that this host does not count.
const dash = "-"

func (u *used) cells() []string {
	cells := []string{u.Sandbox, u.Name, dash, dash, dash, dash, dash, dash, dash, dash, dash}
	if u.percent >= 0 {
		cells[2] = strconv.FormatFloat(u.percent, 'f', 1, 64)
	}
	if m := u.Memory; m != nil {
		cells[3], cells[4], cells[5] = cli.Bytes(m.CurrentBytes), size(m.LimitBytes), size(m.PeakBytes)
	}
	if p := u.PIDs; p != nil {
		cells[6] = strconv.FormatInt(p.Current, 10)
		if p.Limit > 0 {
			cells[6] += "/" + strconv.FormatInt(p.Limit, 10)
		}
	}
	if io := u.IO; io != nil {
		cells[7], cells[8] = cli.Bytes(io.ReadBytes), cli.Bytes(io.WriteBytes)
	}
	if d := u.Disk; d != nil {
		cells[9] = cli.Bytes(d.UsedBytes)
		if d.LimitBytes > 0 {
			cells[9] += "/" + cli.Bytes(d.LimitBytes)
		}
	}
	if p := u.Pressure; p != nil {
		cells[10] = share(p.CPU) + " " + share(p.Memory) + " " + share(p.IO)
	}
	return cells
}

func size(n int64) string {
	if n == 0 {
		return dash
	}
	return cli.Bytes(n)
}

func share(p *api.Pressure) string {
	if p == nil {
		return dash
	}
	return strconv.FormatFloat(p.Some.Avg10, 'f', 0, 64)
}
