package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/hutch-sh/hutch/internal/cli"
	"github.com/hutch-sh/hutch/internal/probe"
	"github.com/hutch-sh/hutch/runtime/api"
)

// fixer runs the remedies that are commands, each after it was shown and agreed to.
type fixer struct {
	in      io.Reader
	out     io.Writer
	yes     bool // agree to all
	command func(script string) *exec.Cmd
}

// fixChecks offers what can be fixed of checks. It reports whether anything was run;
// the error is that of a remedy that failed.
func (f fixer) fixChecks(ctx context.Context, checks []probe.Check) (ran bool, err error) {
	answers := bufio.NewReader(f.in)
	offered := map[string]bool{} // two checks may have one remedy
	for _, c := range checks {
		if !c.Fixable || offered[c.Remedy] {
			continue
		}
		offered[c.Remedy] = true
		fmt.Fprintf(f.out, "\n%s: %s\nThis is run:\n\n    %s\n\n", strings.ReplaceAll(c.Name, "_", " "), c.Detail,
			strings.ReplaceAll(strings.TrimSpace(c.Remedy), "\n", "\n    "))
		if !f.yes {
			fmt.Fprint(f.out, "Run it now? [y/N] ")
			answer, err := answers.ReadString('\n')
			if err != nil {
				return ran, fmt.Errorf("read the answer: %w", err)
			}
			if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
				continue
			}
		}
		ran = true
		if err := f.command(c.Remedy).Run(); err != nil {
			return ran, api.Errorf(api.FailedPrecondition, "the remedy for %s failed: %w",
				strings.ReplaceAll(c.Name, "_", " "), err).
				WithHint("nothing after it was run; its commands are above, to be tried one by one")
		}
		if ctx.Err() != nil {
			return ran, context.Cause(ctx)
		}
	}
	if len(offered) == 0 {
		fmt.Fprintln(f.out, "\nThere is nothing that a command could fix.")
	}
	return ran, nil
}

// runFix is `hutch doctor --fix`: it shows the findings, fixes, and shows them again.
func runFix(ctx context.Context, state string, yes bool) error {
	if !yes && !cli.IsTerminal(os.Stdin) {
		return api.Errorf(api.InvalidArgument, "--fix asks before it runs anything, and stdin is not a terminal").
			WithHint("see the commands by `hutch doctor`, then agree to all of them: hutch doctor --fix --yes")
	}
	checks := probe.All(ctx, probe.Options{StateFolder: state})
	style := cli.StyleFor(os.Stdout)
	printChecks(os.Stdout, style, checks)
	f := fixer{in: os.Stdin, out: os.Stdout, yes: yes, command: func(script string) *exec.Cmd {
		// sudo may ask for a password. -e: a later command builds on the ones before.
		cmd := exec.CommandContext(ctx, "sh", "-ec", script)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		return cmd
	}}
	ran, err := f.fixChecks(ctx, checks)
	if err != nil {
		return err
	}
	if ran {
		fmt.Print("\nA daemon that runs knows nothing of this yet: `hutch rpc system.shutdown` ends it, the next command starts another.\n\nNow:\n")
		return doctorAgain(ctx)
	}
	if !probe.CanRun(checks) {
		return &cli.Exit{Code: 1}
	}
	return nil
}

// doctorAgain looks anew, in another process: a profile of AppArmor's holds from exec on.
func doctorAgain(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, "doctor")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return &cli.Exit{Code: exit.ExitCode()}
	}
	return err
}
