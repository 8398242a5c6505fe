package main

import (
	"bytes"
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

// exitRisky is what linters exit with when they have found something.
const exitRisky = 1

func newScan() *cobra.Command {
	var p api.ScanParams
	asJSON := false
	cmd := &cobra.Command{
		Use:     "scan [flags] FILE|-",
		Short:   "Look through code for what reaches beyond the program",
		GroupID: groupSandbox,
		Long: `Look through Python, JavaScript or shell, without running it, for what reaches files, the network and other programs,
and for what is decided or hidden while it runs. The language is that of the file's name or of its first line.

It is a hint, not a wall: who means to hide something from it can. The wall is the sandbox.

Exit codes: 0 nothing risky, 1 something risky (medium or high) or code that can not be parsed, 125 hutch itself failed.`,
		Example: `  hutch scan setup.py
  hutch scan --language python --allow-import json --allow-import math - <code
  hutch scan --json install.sh | jq '.findings[].rule'`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if p.Code, err = scanInput(args[0], cmd.InOrStdin()); err != nil {
				return cli.Usage(cmd.CommandPath(), err)
			}
			if p.Language == "" {
				if p.Language, err = scanLanguage(args[0], p.Code); err != nil {
					return cli.Usage(cmd.CommandPath(), err)
				}
			}
			var res api.ScanResult
			if err = withDaemon(cmd.Context(), func(c *client.Client) (err error) {
				res, err = c.ScanCode(cmd.Context(), p)
				return err
			}); err != nil {
				return err
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), res)
			} else {
				err = printFindings(cmd.OutOrStdout(), args[0], &res)
			}
			if err == nil && res.Risky {
				return &cli.Exit{Code: exitRisky}
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&p.Language, "language", "l", "", "python, javascript or shell")
	cmd.Flags().StringArrayVar(&p.AllowedImports, "allow-import", nil, "report every import but of this module and what is below it (repeatable)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all that is known, an object")
	return cmd
}

// scanInput reads the code.
func scanInput(name string, stdin io.Reader) (string, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(in, api.MaxCodeBytes+1)); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	switch {
	case b.Len() == 0:
		return "", fmt.Errorf("%s is empty", name)
	case b.Len() > api.MaxCodeBytes:
		return "", fmt.Errorf("%s has more than %d bytes", name, api.MaxCodeBytes)
	}
	return b.String(), nil
}

// scanLanguage tells a language by the ending of a file's name, else by the interpreter of its first line.
func scanLanguage(name, code string) (string, error) {
	switch filepath.Ext(name) {
	case ".py", ".pyi", ".pyw":
		return "python", nil
	case ".js", ".mjs", ".cjs":
		return "javascript", nil
	case ".sh", ".bash", ".ksh", ".dash":
		return "shell", nil
	}
	first, _, _ := strings.Cut(code, "\n")
	if line, ok := strings.CutPrefix(first, "#!"); ok {
		for i, word := range strings.Fields(line) {
			switch program := strings.TrimRight(filepath.Base(word), "0123456789."); {
			case i > 2: // env, an option of its, the interpreter
			case program == "python" || program == "pypy":
				return "python", nil
			case program == "node" || program == "nodejs":
				return "javascript", nil
			case program == "sh" || program == "bash" || program == "dash" || program == "ash" || program == "ksh" || program == "zsh":
				return "shell", nil
			}
		}
	}
	return "", fmt.Errorf("the language of %s is not told by its name or first line: use --language python, javascript or shell", name)
}

// printFindings prints a line for each, as compilers do.
func printFindings(w io.Writer, name string, res *api.ScanResult) error {
	var b strings.Builder
	for i := range res.Findings {
		f := &res.Findings[i]
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s: %s (%s)\n", cli.Line(name), f.Line, f.Column, f.Severity, f.Why, cli.Line(f.Text), f.Rule)
	}
	if res.Truncated {
		b.WriteString("there is more than is told here\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
