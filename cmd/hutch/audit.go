package main

import (
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

	"github.com/hutch-sh/hutch/internal/audit"
	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

type auditFlags struct {
	follow bool
	since  string
	kinds  []string
	exec   string
	head   bool
	json   bool
}

func newAudit() *cobra.Command {
	o := &auditFlags{}
	cmd := &cobra.Command{
		Use: "audit [flags] SANDBOX",
		Long: `Print what was done with a sandbox and what it did: commands with what they read and
wrote, files, connections that were refused, changes of its limits and policy. The record
outlives the sandbox: of one that was removed, give the id. "hutch audit host" prints what
ran outside of any sandbox, by --mode.

Each record has the hash of the one before. --head prints the last one's: kept elsewhere, it
lets "hutch audit verify --head" tell later whether anything before it was changed.
--json prints the records as they are stored, for "hutch audit verify --file".`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			since, err := parseSince(o.since, time.Now())
			if err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			p := api.AuditReadParams{Sandbox: args[0], Since: since, Exec: o.exec}
			for _, k := range o.kinds {
				p.Kinds = append(p.Kinds, api.AuditKind(k))
			}
			connect := withDaemon
			if o.follow {
				connect = followDaemon
			}
			return connect(cmd.Context(), func(c *client.Client) error {
				if o.head {
					return printHead(cmd.Context(), c, cmd.OutOrStdout(), args[0], o.json)
				}
				return o.run(cmd.Context(), c, cmd.OutOrStdout(), &p)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVarP(&o.follow, "follow", "f", false, "wait for more, until the sandbox is removed")
	fs.StringVar(&o.since, "since", "",
		"begin at this `TIME`, such as 2026-01-02T15:04:05Z, or so long ago, such as 10m")
	fs.StringArrayVar(&o.kinds, "kind", nil, "only this `KIND`, such as exec.started; may be repeated")
	fs.StringVar(&o.exec, "exec", "", "only what is about this `EXEC`")
	fs.BoolVar(&o.head, "head", false, "print number and hash of the last record")
	fs.BoolVar(&o.json, "json", false, "print one JSON object a line")
	cmd.AddCommand(newAuditVerify(), newAuditLs())
	return cmd
}

// parseSince reads a time, or how long ago it was.
func parseSince(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		t := now.Add(-d)
		return &t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("--since %q is neither a time such as 2026-01-02T15:04:05Z nor one such as 10m", text)
	}
	return &t, nil
}

func printHead(ctx context.Context, c *client.Client, out io.Writer, sandbox string, asJSON bool) error {
	h, err := c.AuditHead(ctx, sandbox)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, h)
	}
	_, err = fmt.Fprintln(out, h)
	return err
}

// auditWait is how long one call waits for a record, in seconds.
const auditWait = 60

// run prints records from p on. It may be called again, with another daemon.
func (o *auditFlags) run(ctx context.Context, c *client.Client, out io.Writer, p *api.AuditReadParams) error {
	if o.follow {
		p.WaitS = auditWait
	}
	for {
		res, err := c.ReadAudit(ctx, *p)
		if err != nil {
			return err
		}
		p.Sandbox = res.Sandbox // its name may be another's by then
		for _, r := range res.Records {
			if err := o.print(out, r); err != nil {
				return err
			}
		}
		if res.Broken > 0 {
			fmt.Fprintf(os.Stderr, "hutch: %d lines are no records: hutch audit verify %s\n", res.Broken, res.Sandbox)
		}
		p.FromSeq = res.Next
		if !res.More && (!o.follow || res.Ended) {
			return nil
		}
	}
}

func (o *auditFlags) print(out io.Writer, line json.RawMessage) error {
	if o.json {
		_, err := fmt.Fprintf(out, "%s\n", line)
		return err
	}
	var r api.AuditRecord
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	fields := []string{r.Time.Format(time.RFC3339Nano), strconv.FormatInt(r.Seq, 10), string(r.Kind)}
	if r.Exec != "" {
		fields = append(fields, r.Exec)
	}
	fields = append(fields, details(r.Data)...)
	if r.By != nil {
		fields = append(fields, fmt.Sprintf("by.uid=%d by.pid=%d", r.By.UID, r.By.PID))
	}
	_, err := fmt.Fprintln(out, strings.Join(fields, " "))
	return err
}

func newAuditVerify() *cobra.Command {
	var head, file string
	asJSON := false
	cmd := &cobra.Command{
		Use:   "verify [flags] SANDBOX",
		Short: "Check that no record was changed, removed or moved",
		Long: `Check that no record of a sandbox's audit log was changed, removed or moved, and name those
that were. Without --head this proves nothing about somebody who may write to hutch's
state folder and hashes all of it anew: keep heads where they cannot write.

With --file, check what "hutch audit SANDBOX --json" printed; no daemon is asked.`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := api.AuditVerifyParams{}
			if head != "" {
				h, err := api.ParseAuditHead(head)
				if err != nil {
					return cli.Usage(cmd.CommandPath(), err)
				}
				p.Head = &h
			}
			if (file == "") == (len(args) == 0) {
				return cli.Usage(cmd.CommandPath(), fmt.Errorf("name a sandbox, or a file with --file"))
			}
			var res api.AuditVerified
			var err error
			if file != "" {
				res, err = verifyFile(file, p.Head)
			} else {
				p.Sandbox = args[0]
				err = withDaemon(cmd.Context(), func(c *client.Client) (err error) {
					res, err = c.VerifyAudit(cmd.Context(), p)
					return err
				})
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), res)
			} else {
				printVerified(cmd.OutOrStdout(), &res)
			}
			if err == nil && !res.OK {
				err = api.Errorf(api.FailedPrecondition, "the audit log of sandbox %s is not as it was written",
					res.Sandbox).
					WithHint("what is listed was changed, removed or lost since then")
			}
			return err
		},
	}
	cmd.Flags().StringVar(&head, "head", "", "the log must have this `HEAD`, which --head has printed before")
	cmd.Flags().StringVar(&file, "file", "", "check this `FILE` instead; - is stdin")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func verifyFile(name string, head *api.AuditHead) (api.AuditVerified, error) {
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return api.AuditVerified{}, err
		}
		defer f.Close()
	}
	var heads []api.AuditHead
	if head != nil {
		heads = append(heads, *head)
	}
	return audit.VerifyStream(f, name, heads...)
}

func printVerified(out io.Writer, v *api.AuditVerified) {
	for _, b := range v.Issues {
		where := b.File
		if b.Line > 0 {
			where += ":" + strconv.Itoa(b.Line)
		}
		fmt.Fprintf(out, "record %d: %s (%s)\n", b.Seq, cli.Line(b.Detail), cli.Line(where))
	}
	if v.Untold > 0 {
		fmt.Fprintf(out, "and %d problems more\n", v.Untold)
	}
	if v.OK {
		fmt.Fprintf(out, "ok: %d records, %d to %d; head %s\n", v.Records, v.First, v.Head.Seq, v.Head)
	}
	if v.Resumed > 0 {
		fmt.Fprintf(out, "%d times a daemon was killed: what it knew in its last moment may be missing\n", v.Resumed)
	}
	if v.Lost > 0 {
		fmt.Fprintf(out, "%d records could not be written, as the log says\n", v.Lost)
	}
}

func newAuditLs() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "List the audit logs that are kept",
		Args:  wantArgs(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				logs, err := c.ListAudit(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), api.AuditLogs{Logs: slices.Clip(logs)})
				}
				t := cli.Table{Header: []string{"SANDBOX", "RECORDS", "BYTES", "WRITTEN", "SANDBOX IS"},
					Right: []bool{false, true, true}}
				for _, l := range logs {
					state := "kept"
					if l.Removed {
						state = "removed"
					}
					t.Row(l.Sandbox, strconv.FormatInt(l.Records, 10), strconv.FormatInt(l.Bytes, 10),
						cli.Ago(time.Now(), l.Written), state)
				}
				t.Print(cmd.OutOrStdout(), "", nil)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
