package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/client"
)

func newScan() *cobra.Command {
	var language string
	var allowed []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "scan [flags] FILE|-",
		Short:   "Look through code for what reaches beyond the program",
		GroupID: groupSandbox,
		Long: `scan reads Python, JavaScript or shell by a parser and lists what reaches files, the network, other processes, runs code that
is made while it runs, or hides what it does. Nothing is run. The exit code is 0 when nothing makes the code risky, else 1.

A scan is a hint, not a wall: code without findings may still do harm. What holds code is a sandbox.`,
		Example: `  hutch scan setup.py
  curl -s https://example.com/install.sh | hutch scan --language shell -
  hutch scan --allow json --allow math job.py`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := readCode(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			p := api.ScanParams{Language: cmp.Or(language, languageOf(args[0], code)), Code: code, AllowedImports: allowed}
			if p.Language == "" {
				return api.Errorf(api.InvalidArgument, "scan %s: its language is not known", args[0]).WithField("language").
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
	cmd.Flags().StringVar(&language, "language", "", "python, javascript or shell (default: by the file's name or first line)")
	cmd.Flags().StringArrayVar(&allowed, "allow", nil, "a module that may be imported, with what is below it; all others are findings")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
	for _, l := range []struct{ program, language string }{{"python", "python"}, {"node", "javascript"}, {"sh", "shell"}} {
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
