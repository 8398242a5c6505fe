package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/paths"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newScan() *cobra.Command {
	var language string
	var allowed []string
	var asJSON, rules bool
	cmd := &cobra.Command{
		Use: "scan [flags] FILE|- | scan --rules",
		Long: `scan reads Python, JavaScript or shell by a parser and lists what reaches files, the network, other processes, runs code that
is made while it runs, or hides what it does. Nothing is run. The exit code is 0 when nothing makes the code risky, else 1.

A scan is a hint, not a wall: code without findings may still do harm. What holds code is a sandbox.`,
		Example: `  hutch scan setup.py
  curl -s https://example.com/install.sh | hutch scan --language shell -
  hutch scan --allow json --allow math job.py
  hutch scan --rules | grep '^shell'`,
		Args: wantArgs(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case rules && len(args) > 0:
				return cli.Usage(cmd.CommandPath(), errors.New("--rules takes no file"))
			case rules:
				return printRules(cmd.Context(), cmd.OutOrStdout(), asJSON)
			case len(args) == 0:
				return cli.Usage(cmd.CommandPath(), errors.New("no file is given; - is standard input"))
			}
			code, err := readCode(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			p := api.ScanParams{Language: cmp.Or(language, languageOf(args[0], code)), Code: code,
				AllowedImports: allowed}
			if p.Language == "" {
				return api.Errorf(api.InvalidArgument, "scan %s: its language is not known", args[0]).
					WithField("language").
					WithHint("give --language python, javascript or shell")
			}
			return withDaemon(cmd.Context(), func(c *client.Client) error {
				res, err := c.ScanCode(cmd.Context(), p)
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), res)
				} else {
					printScan(cmd.OutOrStdout(), args[0], &res)
				}
				if err == nil && res.Risky {
					return &cli.Exit{Code: 1}
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&language, "language", "",
		"python, javascript or shell (default: by the file's name or first line)")
	cmd.Flags().StringArrayVar(&allowed, "allow", nil,
		"a module that may be imported, with what is below it; all others are findings")
	cmd.Flags().BoolVar(&rules, "rules", false, "print the rules instead, by which --mode selective decides as well")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printRules prints what scans go by. hutch-scan has the tables; nothing is looked through, and no daemon is asked.
func printRules(ctx context.Context, w io.Writer, asJSON bool) error {
	path, err := paths.Sibling("hutch-scan")
	if err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, path, "--rules").Output()
	var all api.ScanRules
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	switch {
	case err != nil:
		return fmt.Errorf("ask %s for its rules: %w", path, err)
	case asJSON:
		return printJSON(w, all)
	}
	t := cli.Table{Header: []string{"RULE", "SEVERITY", "CATEGORY", "NAME", "WHY"}}
	for _, r := range all.Rules {
		t.Row(r.Rule, string(r.Severity), string(r.Category), cmp.Or(r.Name, "-"), r.Why)
	}
	t.Print(w, "", nil)
	for _, language := range slices.Sorted(maps.Keys(all.Harmless)) {
		fmt.Fprintf(w, "\nharmless in %s: %s\n", language, strings.Join(all.Harmless[language], " "))
	}
	_, err = fmt.Fprintln(w, "\nwhat is in neither list is risky")
	return err
}

// readCode reads a file or standard input, no more than a scan takes.
func readCode(stdin io.Reader, name string) (string, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, api.MaxCodeBytes+1))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return string(data), nil
}

// languageOf guesses by the file's name, then by the first line.
func languageOf(name, code string) string {
	switch filepath.Ext(name) {
	case ".py", ".pyw":
		return "python"
	case ".js", ".mjs", ".cjs":
		return "javascript"
	case ".sh", ".bash":
		return "shell"
	}
	first, _, _ := strings.Cut(code, "\n")
	if !strings.HasPrefix(first, "#!") {
		return ""
	}
	for _, l := range []struct{ program, language string }{{"python", "python"}, {"node", "javascript"},
		{"sh", "shell"}} {
		if strings.Contains(first, l.program) {
			return l.language
		}
	}
	return ""
}

// printScan shows findings as compilers do.
func printScan(w io.Writer, name string, res *api.ScanResult) {
	for i := range res.Findings {
		f := &res.Findings[i]
		fmt.Fprintf(w, "%s:%d:%d: %s: %s: %s [%s]\n", name, f.Line, f.Column, f.Severity, f.Why, f.Text, f.Rule)
	}
	if res.Truncated {
		fmt.Fprintln(w, "there is more than is shown")
	}
	verdict := "not risky, as far as a scan can tell"
	if res.Risky {
		verdict = "risky"
	}
	fmt.Fprintf(w, "%s: %s, %d findings\n", name, verdict, len(res.Findings))
}
