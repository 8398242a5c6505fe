package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newTop() *cobra.Command {
	o := &statsFlags{}
	cmd := &cobra.Command{
		Use: "top [flags] [SANDBOX]",
		Long: `Show the busiest sandboxes first, or with SANDBOX its processes: until interrupted, and
once where the output is no terminal.

PID is a process's in the sandbox, HOST PID outside of it; CPU is in per cent of one
CPU since the print before. Names and command lines are the sandbox's own words.`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !isTerminal(cmd.OutOrStdout()) && !cmd.Flags().Changed("interval") {
				o.once = true
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				if len(args) == 0 {
					s := sampler{c: c}
					return o.repeat(cmd, s.busiest(o))
				}
				t := topOf{c: c, name: args[0]}
				return o.repeat(cmd, t.show(o))
			})
		},
	}
	o.add(cmd)
	return cmd
}

// twice runs sample, and again a moment later where there is nothing to compare with.
func twice(ctx context.Context, again bool, sample func() error) error {
	if err := sample(); err != nil || !again {
		return err
	}
	if err := pause(ctx, statsGap); err != nil {
		return err
	}
	return sample()
}

// busiest prints sandboxes, those that use the most CPU first.
func (s *sampler) busiest(o *statsFlags) func(context.Context, io.Writer, bool) error {
	return func(ctx context.Context, w io.Writer, first bool) error {
		var rows []used
		err := twice(ctx, first && !o.json, func() (err error) {
			rows, err = s.sample(ctx)
			return err
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(rows, func(a, b used) int { return cmp.Compare(b.percent, a.percent) })
		if o.json {
			return printLines(w, rows)
		}
		printStats(w, rows)
		return nil
	}
}

// topOf asks for the processes of one sandbox.
type topOf struct {
	c    *client.Client
	name string
	last map[int]float64 // CPU time by pid outside
	at   time.Time
}

func (t *topOf) show(o *statsFlags) func(context.Context, io.Writer, bool) error {
	return func(ctx context.Context, w io.Writer, first bool) error {
		var list api.Processes
		percent := map[int]float64{}
		err := twice(ctx, first && !o.json, func() (err error) {
			if list, err = t.c.Processes(ctx, t.name); err != nil {
				return err
			}
			percent = t.compare(list.Processes)
			return nil
		})
		if err != nil {
			return err
		}
		if o.json {
			line, err := json.Marshal(list)
			if err == nil {
				fmt.Fprintf(w, "%s\n", line)
			}
			return err
		}
		printProcesses(w, list, percent)
		return nil
	}
}

// compare is how much of a CPU each process has used since it was called last.
func (t *topOf) compare(list []api.Process) map[int]float64 {
	now, percent := map[int]float64{}, map[int]float64{}
	at := time.Now()
	for _, p := range list {
		now[p.HostPID] = p.CPUMS
		if before, ok := t.last[p.HostPID]; ok {
			percent[p.HostPID] = max(0, (p.CPUMS-before)/at.Sub(t.at).Seconds()/10)
		}
	}
	t.last, t.at = now, at
	return percent
}

func printProcesses(w io.Writer, list api.Processes, percent map[int]float64) {
	t := cli.Table{
		Header: []string{"PID", "HOST PID", "STATE", "THREADS", "CPU %", "TIME", "MEMORY", "COMMAND"},
		Right:  []bool{true, true, false, true, true, true, true},
	}
	slices.SortStableFunc(list.Processes,
		func(a, b api.Process) int { return cmp.Compare(percent[b.HostPID], percent[a.HostPID]) })
	for _, p := range list.Processes {
		command := strings.Join(p.Argv, " ")
		if command == "" {
			command = "[" + p.Name + "]"
		}
		if len(command) > 100 {
			command = command[:97] + "..."
		}
		share := dash
		if v, ok := percent[p.HostPID]; ok {
			share = strconv.FormatFloat(v, 'f', 1, 64)
		}
		t.Row(strconv.Itoa(p.PID), strconv.Itoa(p.HostPID), p.State, strconv.Itoa(p.Threads), share,
			(time.Duration(p.CPUMS) * time.Millisecond).Round(10*time.Millisecond).String(), cli.Bytes(p.RSSBytes),
			strings.ToValidUTF8(command, "?"))
	}
	t.Print(w, "", nil)
	if list.Truncated {
		fmt.Fprintln(w, "There are more.")
	}
}

// lines collects what is printed at once.
type lines struct{ strings.Builder }

// isTerminal says whether w shows on a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && cli.IsTerminal(f)
}
